//! `tollgate check`: what is wrong with a configuration.

use std::path::Path;

use anyhow::Context as _;
use tollgate_coordinator::config::{Config, ConfigErrors, FILE_LEN_MAX};

use super::{Failure, say};

pub(crate) fn check(file: &Path, insecure_admin: bool) -> Result<(), Failure> {
    let config = load(file, insecure_admin)?;
    let count = config.limits.count();
    let noun = if count == 1 { "limit" } else { "limits" };
    say(&format!("{}: good, {count} {noun}", file.display())).map_err(Failure::runtime)
}

/// Reads a configuration; `insecure` is as `admin.insecure` in the file.
pub(crate) fn load(file: &Path, insecure: bool) -> Result<Config, Failure> {
    let text = read(file).map_err(Failure::Usage)?;
    let config = Config::parse(&text);
    let mut config = config.map_err(|errors| Failure::Usage(located(file, &errors)))?;
    config.admin.insecure |= insecure;
    let exposed = config.admin.may_listen(config.listen.http, false);
    exposed.map_err(|error| Failure::Usage(error.into()))?;
    Ok(config)
}

/// Reads a file that is not too large to be a configuration.
fn read(file: &Path) -> anyhow::Result<String> {
    let name = || file.display().to_string();
    let len = std::fs::metadata(file).with_context(name)?.len();
    if len > FILE_LEN_MAX as u64 {
        anyhow::bail!(
            "{}: the file has {len} bytes, more than {FILE_LEN_MAX}",
            name()
        );
    }
    std::fs::read_to_string(file).with_context(name)
}

/// Each error on its own line, as `file:line:column: field: rule`.
fn located(file: &Path, errors: &ConfigErrors) -> anyhow::Error {
    let file = file.display();
    let count = errors.0.len();
    let noun = if count == 1 { "error" } else { "errors" };
    let mut text = format!("{count} {noun} in {file}");
    for error in &errors.0 {
        let separator = if error.line > 0 { ":" } else { ": " };
        text.push_str(&format!("\n{file}{separator}{error}"));
    }
    anyhow::anyhow!(text)
}
