//! Soak: real Envoys and a real cluster for hours, under changing tenants and faults.
//!
//! One tenant wants more than its capacity all the time; other tenants come, send a few requests and
//! never come again. Coordinators are killed, stopped and restarted in turn, and Envoys get other
//! configurations. Memory, latency and the greedy tenant's rate are sampled; the run fails if the capacity
//! is exceeded, if memory grows, or if requests fail.

mod churn;
mod fault;
mod fleet;
mod report;
mod sample;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;
use tollgate_tests::process::log_tails;

use crate::fault::Fault;
use crate::fleet::SoakFleet;
use crate::report::Report;

/// Runs real Envoys, coordinators and etcd for hours, with faults, and reports memory and latency.
#[derive(Debug, Parser)]
struct Options {
    /// Length of the run, in hours.
    #[arg(default_value_t = 1.0, value_parser = hours)]
    hours: f64,
    /// Directory of the report: `soak.md`, `soak.csv`.
    #[arg(long, default_value = "target/soak")]
    report: PathBuf,
    /// Interval between samples, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    sample: u64,
    /// Interval between the beginnings of faults, in seconds; 0 injects none.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    faults: u64,
}

/// Reads a length in hours.
fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "not a number of hours")?;
    if (0.01..=1000.0).contains(&hours) {
        Ok(hours)
    } else {
        Err("must be from 0.01 to 1000 hours".to_owned())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match soak(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("The soak failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the soak and writes its report; returns whether every check of the report holds.
async fn soak(options: &Options) -> Result<bool> {
    let dir = TempDir::with_prefix("tollgate-soak-")?;
    let length = Duration::from_secs_f64(options.hours * 3600.0);
    eprintln!(
        "Starting etcd, {} coordinators and {} Envoys ...",
        fleet::NODES,
        fleet::ENVOYS.len()
    );
    let started = SoakFleet::start(dir.path()).await;
    let mut fleet = started.with_context(|| log_tails(dir.path()))?;
    let mut report = Report::default();
    let run = run(&mut fleet, &mut report, options, length).await;
    // The report is written also of a run that ends early.
    let holds = report.write(&options.report)?;
    eprintln!("Report: {}", options.report.join("soak.md").display());
    run.with_context(|| log_tails(dir.path()))?;
    Ok(holds)
}

async fn run(
    fleet: &mut SoakFleet,
    report: &mut Report,
    options: &Options,
    length: Duration,
) -> Result<()> {
    let every = Duration::from_secs(options.sample);
    let mut next_fault = Duration::from_secs(options.faults);
    let mut faults = Fault::all();
    let mut at = every;
    while at <= length {
        fleet.run_until(at).await;
        let sample = fleet.sample().await?;
        eprintln!("{}", sample.line(length));
        report.add(sample);
        // The last faults end before the run does, so that its end shows a healthy fleet.
        let begins = options.faults > 0 && at >= next_fault && at + fault::LASTS * 2 < length;
        if begins && let Some(fault) = faults.next() {
            report.note(at, fault);
            fleet.inject(fault).await?;
            next_fault = at + Duration::from_secs(options.faults);
        }
        at = fleet.elapsed().max(at) + every;
    }
    Ok(())
}
