//! `tollgate check`: the errors of a configuration.

use std::path::Path;

use tollgate_coordinator::config::{Config, Flags, SourceFile};

use crate::failure::Failure;
use crate::print;

pub(super) const EXAMPLES: &str = "\
Examples:
  tollgate check tollgate.yaml
      Exit code 0 if it is good, 2 if not.";

pub(crate) fn check(file: &Path, flags: Flags) -> Result<(), Failure> {
    // A person at a terminal may well give it a pipe.
    let source = SourceFile::read_any(file);
    let config = source.and_then(|source| Config::of_file(source, flags));
    let config = config.map_err(|error| Failure::Usage(error.into()))?;
    let usable = config.try_files().map_err(|(section, error)| {
        Failure::Usage(anyhow::anyhow!("{}: {section}: {error}", file.display()))
    });
    usable?;
    if config.shares() {
        let line = format!("{}: good, with limits in etcd", file.display());
        return print::lines(&line);
    }
    let catalog = &config.catalog;
    let mut counts = vec![counted(catalog.limits.count(), "limit")];
    let attachments = catalog.tenants.len() + catalog.namespaces.len();
    let others = [(catalog.groups.len(), "group"), (attachments, "attachment")];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    counts.extend(others.map(|(count, noun)| counted(count, noun)));
    let line = format!("{}: good, {}", file.display(), counts.join(", "));
    print::lines(&line)
}

/// Reads a configuration, with what the command line adds.
pub(crate) fn load(file: &Path, flags: Flags) -> Result<Config, Failure> {
    let config = Config::load(file, flags);
    config.map_err(|error| Failure::Usage(error.into()))
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
