//! `tollgate simulate`: a fleet on a virtual clock, to plan capacity with.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use tollgate_sim::figures::Figures;
use tollgate_sim::sample::{Mark, Violation};
use tollgate_sim::simulation::Simulation;

use crate::failure::Failure;
use crate::print;

mod figures;
mod file;
mod limits;
mod progress;
mod report;
mod trace;

use self::file::ScenarioFile;
use self::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  tollgate simulate tests/scenarios/doorman-5.yaml
      Plays a tree of 13 coordinators and 45 Envoys, and prints the figures.
  tollgate simulate fleet.yaml --report out
      Writes out/report.html, which works offline, and the samples as CSV and JSON beside it.
  tollgate simulate fleet.yaml --seed 7 --json | jq .figures.of_attainable
      Another course of the same scenario, for programs.";

/// Play a scenario with real engines and lease servers on a virtual clock, and print its figures.
///
/// A scenario names Envoys, coordinators, their network, the demand and the events; its limits are
/// those of a coordinator's configuration. The same seed takes the same course. Asks no coordinator.
/// Exit code 1 if a law was broken.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Simulate {
    /// The scenario, YAML.
    scenario: PathBuf,

    /// Seed of every random choice, instead of the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write a report into this folder: report.html, report.json, samples.csv, scopes.csv, clients.csv.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Result of a run, for programs.
#[derive(Debug, Serialize)]
struct RunSummary<'a> {
    name: &'a str,
    seed: u64,
    figures: &'a Figures,
    marks: &'a [Mark],
    violations: &'a [Violation],
}

// === impl Simulate ===

impl Simulate {
    pub(crate) fn run(self, json: bool) -> Result<(), Failure> {
        let ScenarioFile {
            mut scenario,
            limits,
        } = ScenarioFile::read(&self.scenario)?;
        if let Some(seed) = self.seed {
            scenario.seed = seed;
        }
        let simulation = Simulation::new(scenario, limits);
        let mut simulation = simulation.map_err(|errors| {
            let file = self.scenario.display();
            let lines = errors.iter().map(|error| format!("\n{file}: {error}"));
            let lines: String = lines.collect();
            Failure::Usage(anyhow!("{} errors in {file}{lines}", errors.len()))
        })?;
        play(&mut simulation);
        let figures = simulation.figures();
        if let Some(folder) = &self.report {
            report::write(folder, &simulation, &figures)?;
        }
        if json {
            print::json(&RunSummary {
                name: &simulation.scenario().name,
                seed: simulation.scenario().seed,
                figures: &figures,
                marks: simulation.marks(),
                violations: simulation.violations(),
            })?;
        } else {
            let rows = figures::rows(&figures).into_iter();
            let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
            print::table("FIGURE|VALUE", rows.collect())?;
        }
        match simulation.violations() {
            [] => Ok(()),
            [first, ..] => Err(Failure::Runtime(anyhow!(
                "{} laws broken, the first after {} s: {}",
                figures.violations,
                first.at,
                first.text
            ))),
        }
    }
}

// === free functions ===

/// Plays the simulation to its end, and shows how far it is.
fn play(simulation: &mut Simulation) {
    let duration = simulation.scenario().duration.0;
    let mut progress = Progress::new(duration);
    while let Some(next) = progress.next_stop() {
        simulation.run_until(next);
        progress.show(simulation.elapsed(), simulation.events());
    }
}
