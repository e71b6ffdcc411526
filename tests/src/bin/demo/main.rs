//! Tollgate at work, on this machine, in about 20 seconds: one coordinator, two real Envoys, an
//! upstream, and three tenants of unlike appetite.

mod stage;
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

use crate::stage::Stage;
use crate::summary::Summary;
use crate::view::View;

/// How often a terminal's table is drawn again.
const REDRAW: Duration = Duration::from_millis(500);
/// How often a pipe gets new lines.
const REPRINT: Duration = Duration::from_secs(2);

/// Two Envoys share each tenant's capacity; watch the leases follow the demand.
#[derive(Debug, Parser)]
struct Options {
    /// How long the load runs.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
}

/// Ends with 0, with 130 when it is interrupted, as shells expect, and with 1 when anything failed;
/// whichever it is, all that was started has ended before.
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

/// Whether only the reader of our output has gone, as after `| head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs the load and shows it as it goes; ends with the summary.
async fn show(length: Duration) -> Result<()> {
    let dir = TempDir::with_prefix("tollgate-demo-")?;
    let live = io::stdout().is_terminal();
    let mut view = View::new(io::stdout(), live);
    view.line("Starting a coordinator, two Envoys (east, west) and an upstream ...")?;
    let started = Stage::start(dir.path(), length).await;
    let stage = started.with_context(|| log_tails(dir.path()))?;
    let mut summary = Summary::new(stage.tenants());
    let every = if live { REDRAW } else { REPRINT };
    let mut next = every;
    while next <= length {
        stage.play_until(next).await;
        let scene = stage.look().await?;
        summary.note(&scene);
        view.show(&scene)?;
        next += every;
    }
    let records = stage.end().await?;
    for line in summary.lines(&records, length) {
        view.line(&line)?;
    }
    Ok(())
}
