//! promtool, which checks what Prometheus reads.

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::artifact::promtool;

// === free functions ===

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
    let timed = page.lines().map(|line| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1700000000\n"),
    });
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(timed.collect::<String>().as_bytes())?;
    let blocks = tempfile::tempdir()?;
    let text = |path: &Path| path.display().to_string();
    let (file, blocks) = (text(file.path()), text(blocks.path()));
    let import = ["tsdb", "create-blocks-from", "openmetrics", &file, &blocks];
    run_promtool(&import, "")
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
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(
        output.status.success(),
        "promtool {}: {said}",
        args.join(" ")
    );
    Ok(true)
}
