//! `tollgate man`: manual pages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::cli::Cli;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tollgate man ~/.local/share/man/man1
  tollgate man /usr/local/share/man/man1";

/// Write a manual page for each command into a directory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// The directory, which is made if it does not exist.
    dir: PathBuf,
}

// === impl Man ===

impl Man {
    pub(crate) fn run(self) -> Result<(), Failure> {
        fs::create_dir_all(&self.dir)
            .and_then(|()| clap_mangen::generate_to(Cli::with_help(), &self.dir))
            .with_context(|| format!("cannot write manual pages into {}", self.dir.display()))
            .map_err(Failure::Runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        let man1 = dir.path().join("new/man1");
        Man { dir: man1.clone() }.run().unwrap();
        let page = |name: &str| fs::read_to_string(man1.join(name)).unwrap();
        assert!(page("tollgate.1").contains("Exit codes:"));
        for command in Cli::with_help().get_subcommands() {
            let page = page(&format!("tollgate-{}.1", command.get_name()));
            assert!(page.contains("Examples:"), "{}", command.get_name());
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let dir = file.path().join("man1");
        let failure = Man { dir: dir.clone() }.run().unwrap_err();
        let (error, code) = failure.into_parts();
        assert!(format!("{error:#}").contains(dir.to_str().unwrap()));
        assert_eq!(code, 1);
    }
}
