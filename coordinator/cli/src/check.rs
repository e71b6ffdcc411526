//! `tollgate check`: the errors of a configuration, and the parts of it that have no effect.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use tollgate_config::catalog::FileCatalog;
use tollgate_config::catalog::check::ConfigError;
use tollgate_config::{Config, Flags, LoadError, SourceFile};

use crate::client::Client;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::print;

mod against;
mod fallback;
mod filter;
mod scope;

use self::fallback::Fallback;
use self::filter::Filters;

const EXAMPLES: &str = "\
Examples:
  tollgate check tollgate.yaml
      Exit code 0 if it is good, 2 if not. Warnings do not count.
  tollgate check tollgate.yaml --json | jq -r '.findings[] | .severity, .message'
      The same for programs, with line, column, field, value and rule of each.
  tollgate check envoy.yaml
      The same of each Tollgate filter in an Envoy's configuration, or of a filter's JSON alone.
  tollgate check --config tollgate.yaml --scope tenant/acme
      The limits that the file gives to acme, by unit, each with its origin and the reason.
  tollgate check tollgate.yaml --against http://127.0.0.1:7711
      Also warns of limits of rules that no client of that coordinator has asked for.";

/// Check a configuration file, of a coordinator or of the filter: report errors, and warn of parts that have no effect.
///
/// Of a good one it shows what each Envoy admits without a lease, as long as its filter says nothing else.
///
/// An error is a field, its value and the rule that it breaks. Warned of are limits that others come
/// before whatever the scope, that a group is below, groups, weights and settings that nothing uses,
/// and templates of `rls` and `rlqs` whose scopes have no limit. Nothing is asked but the file, the
/// files for TLS that it names, and the coordinator of --against.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The configuration: YAML of a coordinator or of an Envoy with the filter, or the filter's JSON.
    #[arg(required_unless_present = "config")]
    file: Option<PathBuf>,

    /// The same as FILE, as `serve` has it.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,

    /// Show which limits hold for this scope, such as `tenant/acme`, and why, instead of warnings.
    ///
    /// Of the file alone: a group, an attachment or an override that was written through the API is
    /// known to a coordinator only, which `tollgate get scope` asks.
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,

    /// The admin API of a running coordinator: warn of limits of rules that none of its clients asks for.
    ///
    /// --token-file, --ca and the like are for it. Its clients must have asked for two minutes.
    #[arg(long, value_name = "URL", conflicts_with = "scope")]
    against: Option<String>,

    /// The admin API may be served beyond loopback even without TLS or without a token.
    #[arg(long)]
    insecure_admin: bool,

    /// gRPC may be served beyond loopback even without TLS.
    #[arg(long)]
    insecure_grpc: bool,
}

/// Result of a check, for programs.
#[derive(Debug, Serialize)]
struct CheckReport {
    file: String,
    /// Whether a coordinator takes the file.
    good: bool,
    findings: Vec<Finding>,
    /// Fallback of each Envoy without a lease, by limit; empty if the file is not good.
    fallbacks: Vec<Fallback>,
}

/// An error or a warning.
#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    /// From 1; null if the field stands in no file.
    line: Option<u64>,
    column: Option<u64>,
    /// The path to the field; null for the whole file.
    field: Option<String>,
    /// The value, unless it is no scalar or may be secret.
    value: Option<String>,
    /// The rule that is broken, or the reason for the warning.
    rule: String,
    /// All of it in a line, as it is shown without `--json`.
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Error,
    Warning,
}

/// Reason for which a file is not good, for people and for programs.
struct Problem {
    text: String,
    findings: Vec<Finding>,
}

// === impl Check ===

impl Check {
    pub(crate) fn run(self, connection: &Connection) -> Result<(), Failure> {
        let json = connection.json;
        let file = self.config.as_ref().or(self.file.as_ref());
        let file = file.map_or_else(|| Path::new(""), PathBuf::as_path);
        // A person at a terminal may well give it a pipe.
        let loaded = SourceFile::read_any(file);
        if let Ok(source) = &loaded
            && let Some(filters) = Filters::find(source.content())
        {
            return self.check_filters(file, &filters, json);
        }
        let loaded = loaded.and_then(|source| Config::of_file(source, self.flags()));
        let good = loaded.map_err(|error| Problem::of_load(file, error));
        let good = good.and_then(|config| usable(file, config));
        let warnings = match &good {
            Ok(config) => self.warnings(config, connection, file)?,
            Err(_) => Vec::new(),
        };
        if json && (self.scope.is_none() || good.is_err()) {
            return report(file, good, &warnings);
        }
        let config = good.map_err(|problem| Failure::Usage(anyhow!(problem.text)))?;
        if let Some(scope) = &self.scope {
            return scope::show(file, &config, scope, json);
        }
        warn(file, &warnings);
        print::lines(&format!("{}: {}", file.display(), summary(&config)))?;
        fallback::show(&fallbacks(&config))
    }

    /// Returns the warnings about the file, and about it beside a running coordinator.
    fn warnings(
        &self,
        config: &Config,
        connection: &Connection,
        file: &Path,
    ) -> Result<Vec<ConfigError>, Failure> {
        let mut warnings = config.warnings();
        if let Some(url) = &self.against {
            let client = Client::at(connection, "--against", url)?;
            let more = against::warnings(config, &client);
            warnings.extend(more.inspect_err(|_| warn(file, &warnings))?);
        }
        Ok(warnings)
    }

    /// Checks the configurations of filters in a file.
    fn check_filters(&self, file: &Path, filters: &Filters, json: bool) -> Result<(), Failure> {
        if self.scope.is_some() || self.against.is_some() {
            let error = anyhow!("{}: a filter's configuration has no limits", file.display());
            return Err(Failure::Usage(error));
        }
        let findings = filters.check();
        let messages = |severity| {
            let of_severity = findings
                .iter()
                .filter(|finding| finding.severity == severity);
            of_severity.map(|finding| finding.message.clone()).collect()
        };
        let (errors, warnings): (Vec<_>, Vec<_>) =
            (messages(Severity::Error), messages(Severity::Warning));
        if json {
            print::json(&CheckReport {
                file: file.display().to_string(),
                good: errors.is_empty(),
                findings,
                fallbacks: Vec::new(),
            })?;
        } else {
            warn(file, &warnings);
        }
        if !errors.is_empty() {
            let shown = if json { &[][..] } else { &errors };
            let count = counted(errors.len(), "error");
            return Err(Failure::Usage(anyhow!(listed(file, &count, shown))));
        }
        if json {
            return Ok(());
        }
        print::lines(&format!("{}: good, {}", file.display(), filters.summary()))
    }

    fn flags(&self) -> Flags {
        Flags {
            insecure_admin: self.insecure_admin,
            insecure_grpc: self.insecure_grpc,
            ..Flags::default()
        }
    }
}

// === impl Problem ===

impl Problem {
    fn of_load(file: &Path, error: LoadError) -> Self {
        let text = error.to_string();
        match error {
            LoadError::Wrong { errors, .. } => Self {
                text,
                findings: Finding::all(Severity::Error, &errors.0),
            },
            LoadError::Read { cause, .. } => Self::of_file(file, None, &cause.to_string()),
        }
    }

    /// A problem of `field`, or of the whole `file`.
    fn of_file(file: &Path, field: Option<&str>, rule: &str) -> Self {
        let message = field.map_or_else(|| rule.to_owned(), |field| format!("{field}: {rule}"));
        let text = format!("{}: {message}", file.display());
        let finding = Finding {
            severity: Severity::Error,
            line: None,
            column: None,
            field: field.map(str::to_owned),
            value: None,
            rule: rule.to_owned(),
            message,
        };
        let findings = vec![finding];
        Self { text, findings }
    }
}

// === impl Finding ===

impl Finding {
    fn all(severity: Severity, errors: &[ConfigError]) -> Vec<Self> {
        let finding = |error: &ConfigError| Self {
            severity,
            line: Some(error.line).filter(|line| *line > 0),
            column: Some(error.column).filter(|_| error.line > 0),
            field: Some(error.field.clone()).filter(|field| !field.is_empty()),
            value: error.value.clone(),
            rule: error.rule.clone(),
            message: error.to_string(),
        };
        errors.iter().map(finding).collect()
    }
}

// === free functions ===

/// Reads a configuration, with what the command line adds.
pub(crate) fn load(file: &Path, flags: Flags) -> Result<Config, Failure> {
    let config = Config::load(file, flags);
    config.map_err(|error| Failure::Usage(error.into()))
}

/// Prints the result for programs.
fn report(
    file: &Path,
    good: Result<Config, Problem>,
    warnings: &[ConfigError],
) -> Result<(), Failure> {
    let is_good = good.is_ok();
    let (findings, fallbacks) = match good {
        Ok(config) => {
            let warnings = Finding::all(Severity::Warning, warnings);
            (warnings, fallbacks(&config))
        }
        Err(problem) => (problem.findings, Vec::new()),
    };
    let count = findings.len();
    print::json(&CheckReport {
        file: file.display().to_string(),
        good: is_good,
        findings,
        fallbacks,
    })?;
    if is_good {
        return Ok(());
    }
    let count = counted(count, "error");
    Err(Failure::Usage(anyhow!("{count} in {}", file.display())))
}

/// Returns `config` if the files that it names can be used.
fn usable(file: &Path, config: Config) -> Result<Config, Problem> {
    let usable = config.try_files();
    usable.map_err(|(field, error)| Problem::of_file(file, Some(field), &error.to_string()))?;
    Ok(config)
}

fn warn(file: &Path, warnings: &[impl Display]) {
    if !warnings.is_empty() {
        let count = counted(warnings.len(), "warning");
        print::note(&listed(file, &count, warnings));
    }
}

/// Returns messages on a file, after the `count` of all.
fn listed(file: &Path, count: &str, messages: &[impl Display]) -> String {
    let file = file.display();
    let mut text = format!("{count} in {file}");
    for message in messages {
        text.push_str(&format!("\n{file}:{message}"));
    }
    text
}

/// The fallbacks of the limits in the file; none if the limits are in etcd.
fn fallbacks(config: &Config) -> Vec<Fallback> {
    if config.shares() {
        Vec::new()
    } else {
        Fallback::all(&config.catalog)
    }
}

fn summary(config: &Config) -> String {
    if config.shares() {
        return "good, with limits in etcd".to_owned();
    }
    let catalog: &FileCatalog = &config.catalog;
    let mut counts = vec![counted(catalog.limits.count(), "limit")];
    let attachments = catalog.tenants.len() + catalog.namespaces.len();
    let others = [(catalog.groups.len(), "group"), (attachments, "attachment")];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    counts.extend(others.map(|(count, noun)| counted(count, noun)));
    format!("good, {}", counts.join(", "))
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
