//! Tollgate on this machine in about 20 seconds: one coordinator, two real Envoys, an upstream, and three
//! tenants with different loads.

mod fleet;
mod summary;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;
use tokio::signal::ctrl_c;
use tollgate_tests::process::log_tails;

use crate::fleet::DemoFleet;
use crate::summary::Summary;
use crate::view::View;

/// Interval at which a terminal's table is redrawn.
const REDRAW: Duration = Duration::from_millis(500);
/// Interval at which a pipe gets new lines.
const REPRINT: Duration = Duration::from_secs(2);

/// Two Envoys share each tenant's capacity; watch the leases follow the demand.
#[derive(Debug, Parser)]
struct Options {
    /// Length of the load, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
}

/// Exits with 0, with 130 after an interrupt, as shells expect, and with 1 after a failure; all child
/// processes have ended by then.
#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let shown = tokio::select! {
        shown = show(Duration::from_secs(options.seconds)) => shown,
        _ = ctrl_c() => {
            eprintln!("Interrupted: everything that was started is stopped.");
            return ExitCode::from(130);
        }
    };
    match shown {
        Err(error) if !is_closed_pipe(&error) => {
            eprintln!("The demo failed: {error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Whether the reader of the output has gone, as with `| head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs the load, shows snapshots of it, and ends with the summary.
async fn show(length: Duration) -> Result<()> {
    let dir = TempDir::with_prefix("tollgate-demo-")?;
    let live = io::stdout().is_terminal();
    let mut view = View::new(io::stdout(), live);
    view.line("Starting a coordinator, two Envoys (east, west) and an upstream ...")?;
    let started = DemoFleet::start(dir.path(), length).await;
    let fleet = started.with_context(|| log_tails(dir.path()))?;
    let mut summary = Summary::new(fleet.tenants());
    let every = if live { REDRAW } else { REPRINT };
    let mut next = every;
    while next <= length {
        fleet.run_until(next).await;
        let snapshot = fleet.snapshot().await?;
        summary.note(&snapshot);
        view.show(&snapshot)?;
        next += every;
    }
    let records = fleet.end().await?;
    for line in summary.lines(&records, length) {
        view.line(&line)?;
    }
    Ok(())
}
