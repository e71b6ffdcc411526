//! `tollgate import`: the configuration of another rate limiter, as ours.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use tollgate_config::catalog::check::ConfigErrors;
use tollgate_config::{LoadError, SourceFile};

use crate::check::counted;
use crate::failure::Failure;
use crate::print;

mod entries;
mod rules;
mod source;
mod target;

use self::source::Source;
use self::target::Target;

const EXAMPLES: &str = "\
Examples:
  tollgate import ratelimit config.yaml -o tollgate.yaml
      Exit code 0 if a limit was translated. Whatever was not goes to standard error, and into
      comments at the top of the new file.
  tollgate import ratelimit config.yaml > tollgate.yaml && tollgate check tollgate.yaml
      The same, with a look at the result.";

/// Translate the configuration of another rate limiter into that of a coordinator.
///
/// Nothing is left out in silence: each field without a translation is named with its line and the
/// reason.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Translate the descriptors of envoyproxy/ratelimit.
    ///
    /// Envoy's `ratelimit` filter then asks the coordinator's rate limit service (section `rls`).
    Ratelimit {
        /// Its configuration file.
        file: PathBuf,

        /// Write to this file, and replace it, instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

// === impl Import ===

impl Import {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let From::Ratelimit { file, output } = self.from;
        let (target, mut untranslated) = translate(&file)?;
        untranslated
            .0
            .sort_by_key(|reason| (reason.line, reason.column));
        let line = |reason| print::plain(&format!("{}:{reason}", file.display()));
        let lines: Vec<String> = untranslated.0.iter().map(line).collect();
        if !lines.is_empty() {
            let count = counted(lines.len(), "field");
            print::note(&format!("not translated: {count}\n{}", lines.join("\n")));
        }
        if target.limits.is_empty() {
            let error = format!("{}: has no limit that can be translated", file.display());
            return Err(Failure::Usage(anyhow!(error)));
        }
        let text = target.text(&file, &lines).map_err(Failure::runtime)?;
        match output {
            Some(file) => fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))
                .map_err(Failure::Runtime),
            None => print::lines(text.trim_end()),
        }
    }
}

// === free functions ===

/// Returns the translation of a file, and what has none.
fn translate(file: &Path) -> Result<(Target, ConfigErrors), Failure> {
    let content = SourceFile::read_any(file).map_err(Failure::usage)?;
    let wrong = |errors| {
        let file = file.to_owned();
        Failure::usage(LoadError::Wrong { file, errors })
    };
    let text = str::from_utf8(content.content());
    let text = text.map_err(|error| Failure::Usage(anyhow!("{}: {error}", file.display())))?;
    let source: Source = tollgate_config::yaml::read(text).map_err(wrong)?;
    let mut untranslated = source.check().map_err(wrong)?;
    let target = Target::new(&source, &mut untranslated.0);
    Ok((target, untranslated))
}
