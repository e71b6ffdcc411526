//! Tollgate at work, on this machine, in about 20 seconds: one coordinator, two real Envoys, an
//! upstream, and three tenants of unlike appetite.

mod stage;
mod summary;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Result, bail};
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

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let dir = TempDir::with_prefix("tollgate-demo-")?;
    let shown = tokio::select! {
        shown = show(&dir, Duration::from_secs(options.seconds)) => shown,
        _ = ctrl_c() => bail!("interrupted; everything that was started has been stopped"),
    };
    if shown.is_err() {
        eprintln!("{}", log_tails(dir.path()));
    }
    shown
}

/// Runs the load and shows it as it goes; ends with the summary.
async fn show(dir: &TempDir, length: Duration) -> Result<()> {
    let live = io::stdout().is_terminal();
    let mut view = View::new(io::stdout(), live);
    view.line("Starting a coordinator, two Envoys (east, west) and an upstream ...")?;
    let stage = Stage::start(dir.path(), length).await?;
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
