//! `tollgate completions`: scripts that complete command lines.

use std::io::{self, Write as _};

use clap::Args;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > \"${fpath[1]}/_tollgate\"
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

/// Print a script that lets your shell complete command lines of tollgate.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Your shell.
    shell: Shell,
}

// === impl Completions ===

impl Completions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // In memory first: the generator panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::with_help(), "tollgate", &mut script);
        let mut out = io::stdout().lock();
        out.write_all(&script)
            .and_then(|()| out.flush())
            .map_err(Failure::runtime)
    }
}
