//! Dashboards and alerts as they are shipped, and promtool, which checks what Prometheus reads.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::artifact::{promtool, workspace};

/// Prefixes of our metrics. All others in queries are Prometheus' own.
const PREFIXES: [&str; 2] = ["tollgate_", "process_"];

/// Alert of `envoy/prometheus/alerts.yml`.
#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    /// Name of the alert.
    pub alert: String,
    /// Query that is not empty when it fires.
    pub expr: String,
    /// Texts for people.
    pub annotations: Annotations,
}

/// Texts of an alert.
#[derive(Clone, Debug, Deserialize)]
pub struct Annotations {
    /// One sentence.
    pub summary: String,
    /// Section of the documentation with the remedy.
    pub runbook_url: String,
}

#[derive(Deserialize)]
struct AlertFile {
    groups: Vec<AlertGroup>,
}

#[derive(Deserialize)]
struct AlertGroup {
    name: String,
    rules: Vec<Alert>,
}

// === free functions ===

/// The alerts of the group `name`, in their order.
///
/// # Errors
/// When there are none.
pub fn alerts(name: &str) -> Result<Vec<Alert>> {
    let text = fs::read_to_string(workspace().join("envoy/prometheus/alerts.yml"))?;
    let file: AlertFile = serde_saphyr::from_str(&text)?;
    let mut groups = file.groups.into_iter();
    let group = groups.find(|group| group.name == name);
    let rules = group.with_context(|| format!("no group {name}"))?.rules;
    ensure!(!rules.is_empty(), "the group {name} is empty");
    Ok(rules)
}

/// The queries of all panels of the dashboard `file` in `envoy/grafana`.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn dashboard_queries(file: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(workspace().join("envoy/grafana").join(file))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panels = list(&dashboard["panels"]);
    let targets = panels.iter().flat_map(|panel| list(&panel["targets"]));
    let queries = targets.map(|target| target["expr"].clone());
    let queries: Vec<_> = queries
        .filter_map(|query| query.as_str().map(str::to_owned))
        .collect();
    ensure!(queries.len() >= 10, "{file} has the queries {queries:?}");
    Ok(queries)
}

/// Our metrics in `queries` that have no series on `page`.
pub fn missing_metrics(queries: &[String], page: &str) -> BTreeSet<String> {
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let known: BTreeSet<_> = series
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let words = queries
        .iter()
        .flat_map(|query| query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    words
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !known.contains(word))
        .map(str::to_owned)
        .collect()
}

/// Checks `page`, Prometheus text, with promtool, which knows the rules for names, types and help. False
/// without promtool.
///
/// # Errors
/// When promtool finds fault.
pub fn check_prometheus_text(page: &str) -> Result<bool> {
    run_promtool(&["check", "metrics"], page)
}

/// Parses `page` as OpenMetrics with promtool. It reads that format only to import samples, each of which
/// needs a time, so they get one. False without promtool.
///
/// # Errors
/// When promtool finds fault.
pub fn check_open_metrics(page: &str) -> Result<bool> {
    let timed = page.lines().map(|line| {
        if line.starts_with('#') {
            format!("{line}\n")
        } else {
            format!("{line} 1700000000\n")
        }
    });
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(timed.collect::<String>().as_bytes())?;
    let blocks = tempfile::tempdir()?;
    let text = |path: &Path| path.display().to_string();
    let (file, blocks) = (text(file.path()), text(blocks.path()));
    let import = ["tsdb", "create-blocks-from", "openmetrics", &file, &blocks];
    run_promtool(&import, "")
}

/// Checks with promtool that `queries` are PromQL, with values for Grafana's variables. False without
/// promtool.
///
/// # Errors
/// When one is not.
pub fn check_queries(queries: &[String]) -> Result<bool> {
    let rules = queries.iter().enumerate().map(|(i, query)| {
        let query = query.replace("$__rate_interval", "1m");
        json!({"record": format!("query_{i}"), "expr": query})
    });
    let rules: Vec<_> = rules.collect();
    let mut file = tempfile::NamedTempFile::new()?;
    // JSON is YAML.
    let groups = json!({"groups": [{"name": "queries", "rules": rules}]});
    file.write_all(groups.to_string().as_bytes())?;
    run_promtool(&["check", "rules", &file.path().display().to_string()], "")
}

/// The section of docs/operations.md that `alert` leads to.
///
/// # Errors
/// When there is no such section.
pub fn runbook(alert: &Alert) -> Result<String> {
    let (page, anchor) = alert
        .annotations
        .runbook_url
        .split_once('#')
        .unwrap_or_default();
    let text = fs::read_to_string(workspace().join(page))
        .with_context(|| format!("{} leads to {page}", alert.alert))?;
    let mut sections = text.split("\n#").skip(1);
    let section = sections.find(|section| {
        let heading = section.lines().next().unwrap_or_default();
        anchor_of(heading.trim_start_matches('#')) == anchor
    });
    let section = section.with_context(|| format!("{page} has no section {anchor}"))?;
    Ok(section.to_owned())
}

/// The anchor of a heading, as GitHub makes it.
fn anchor_of(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let plain = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    plain.collect::<String>().replace(' ', "-")
}

fn run_promtool(args: &[&str], input: &str) -> Result<bool> {
    let Some(promtool) = promtool() else {
        return Ok(false);
    };
    let mut file = tempfile::tempfile()?;
    file.write_all(input.as_bytes())?;
    file.rewind()?;
    let mut command = Command::new(promtool);
    let output = command.args(args).stdin(file).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(
        output.status.success(),
        "promtool {}: {text}",
        args.join(" ")
    );
    Ok(true)
}
