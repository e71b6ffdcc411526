//! `tollgate simulate`: a fleet on a virtual clock, to plan capacity with.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::anyhow;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use tollgate_core::limit::Algorithm;
use tollgate_sim::figures::Figures;
use tollgate_sim::limits::LimitSource;
use tollgate_sim::sample::{Mark, Violation};
use tollgate_sim::simulation::Simulation;

use crate::failure::Failure;
use crate::print;

mod comparison;
mod document;
mod figures;
mod file;
mod limits;
mod progress;
mod report;
mod shape;
mod trace;

use self::comparison::{COMPARED, ComparedRun, Comparison};
use self::file::ScenarioFile;
use self::progress::Progress;

/// The most scopes without a limit that are named.
const UNLIMITED_NAMED: usize = 3;

const EXAMPLES: &str = "\
Examples:
  tollgate simulate tests/scenarios/doorman-5.yaml
      Plays a tree of 13 coordinators and 45 Envoys, and prints the figures.
  tollgate simulate fleet.yaml --report out
      Writes out/report.html, which works offline, and the samples as CSV and JSON beside it.
  tollgate simulate fleet.yaml --seed 7 --json | jq .figures.of_attainable
      Another course of the same scenario, for programs.
  tollgate simulate fleet.yaml --compare
      How five algorithms divide the same capacity, in one table.";

/// Play a scenario with real engines and lease servers on a virtual clock, and print its figures.
///
/// A scenario names Envoys, coordinators, their network, the demand and the events; its limits are
/// those of a coordinator's configuration. The same seed takes the same course. Asks no coordinator.
/// Exit code 1 if a law was broken, 6 if the report could not be written.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Simulate {
    /// The scenario, YAML.
    scenario: PathBuf,

    /// Seed of every random choice, instead of the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Algorithm in place of that of every limit.
    #[arg(long, value_name = "NAME", value_parser = algorithms())]
    algorithm: Option<Algorithm>,

    /// Play the scenario with each algorithm in place of that of every limit, and print one table.
    #[arg(long, conflicts_with = "algorithm")]
    compare: bool,

    /// Write a report into this folder: report.html, report.json, samples.csv, scopes.csv, clients.csv.
    /// With --compare comparison.html and comparison.json, and a folder of these for each algorithm.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Result of a run, for programs.
#[derive(Debug, Serialize)]
struct RunSummary<'a> {
    name: &'a str,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    figures: &'a Figures,
    marks: &'a [Mark],
    violations: &'a [Violation],
}

// === impl Simulate ===

impl Simulate {
    pub(crate) fn run(self, json: bool) -> Result<(), Failure> {
        let mut file = ScenarioFile::read(&self.scenario)?;
        if let Some(seed) = self.seed {
            file.scenario.seed = seed;
        }
        match self.compare {
            true => self.compare(&file, json),
            false => self.play(&file, json),
        }
    }

    /// Plays the scenario once.
    fn play(&self, file: &ScenarioFile, json: bool) -> Result<(), Failure> {
        let simulation = self.played(file, self.algorithm)?;
        let figures = simulation.figures();
        let algorithm = self.algorithm.map(Algorithm::name);
        if json {
            print::json(&RunSummary {
                name: &simulation.scenario().name,
                seed: simulation.scenario().seed,
                algorithm,
                figures: &figures,
                marks: simulation.marks(),
                violations: simulation.violations(),
            })?;
        } else {
            let rows = figures::rows(&figures).into_iter();
            let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
            print::table("FIGURE|VALUE", rows.collect())?;
        }
        let written = match &self.report {
            Some(folder) => report::write(folder, &simulation, &figures, algorithm),
            None => Ok(()),
        };
        end(simulation.violations(), written)
    }

    /// Plays the scenario with each algorithm.
    fn compare(&self, file: &ScenarioFile, json: bool) -> Result<(), Failure> {
        let mut comparison = Comparison {
            name: file.scenario.name.clone(),
            description: file.scenario.description.clone(),
            seed: file.scenario.seed,
            duration: file.scenario.duration.0.as_secs_f64(),
            runs: Vec::new(),
        };
        let mut written = Ok(());
        for algorithm in COMPARED {
            let name = algorithm.name();
            print::note(name);
            let simulation = self.played(file, Some(algorithm))?;
            let figures = simulation.figures();
            let mut run = ComparedRun {
                algorithm: name,
                figures,
                violations: simulation.violations().to_vec(),
                chart: String::new(),
            };
            if let Some(folder) = &self.report {
                let folder = folder.join(name);
                let report = report::write(&folder, &simulation, &run.figures, Some(name));
                written = written.and(report);
                run.chart = report::fleet_chart(&simulation, name);
            }
            comparison.runs.push(run);
        }
        comparison.print(json)?;
        if let Some(folder) = &self.report {
            let report = report::write_comparison(folder, &comparison);
            written = written.and(report);
        }
        let violations = comparison.runs.iter().flat_map(|run| &run.violations);
        end(&violations.cloned().collect::<Vec<_>>(), written)
    }

    /// Returns the finished run of a file, with `algorithm` in place of that of its limits.
    fn played(
        &self,
        file: &ScenarioFile,
        algorithm: Option<Algorithm>,
    ) -> Result<Simulation, Failure> {
        let limits = file.limits.iter().map(Rc::clone);
        let limits = limits.map(|limits| Box::new(limits) as Box<dyn LimitSource>);
        let scenario = file.scenario.clone();
        let simulation = Simulation::with_algorithm(scenario, limits.collect(), algorithm);
        // The file was checked when it was read.
        let mut simulation = simulation.map_err(|errors| {
            let errors = errors.iter().map(ToString::to_string);
            let errors = errors.collect::<Vec<_>>().join("\n");
            Failure::Usage(anyhow!("{}: {errors}", self.scenario.display()))
        })?;
        // Once, of the first run of a comparison.
        if !self.compare || algorithm == Some(COMPARED[0]) {
            warn_of_unlimited(&mut simulation);
        }
        run_to_end(&mut simulation);
        Ok(simulation)
    }
}

// === free functions ===

/// Returns the parser of an algorithm's name.
fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    let names = Algorithm::NAMES.map(|(name, _)| name);
    PossibleValuesParser::new(names).map(|name| {
        let known = Algorithm::NAMES
            .into_iter()
            .find(|(known, _)| *known == name);
        known.map_or_else(Algorithm::default, |(_, algorithm)| algorithm)
    })
}

/// Plays the simulation to its end, and shows how far it is.
fn run_to_end(simulation: &mut Simulation) {
    let duration = simulation.scenario().duration.0;
    let mut progress = Progress::new(duration);
    while let Some(next) = progress.next_stop() {
        simulation.run_until(next);
        progress.show(simulation.elapsed(), simulation.events());
    }
}

/// Warns of scopes whose requests all go on.
fn warn_of_unlimited(simulation: &mut Simulation) {
    let scopes = simulation.unlimited_scopes();
    let named = scopes.iter().take(UNLIMITED_NAMED).copied();
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match scopes.len().saturating_sub(UNLIMITED_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !scopes.is_empty() {
        print::note(&format!(
            "warning: no limit matches the requests of {named}{more}: all of them go on"
        ));
    }
}

/// Fails if any law was broken, or else if the report was not written.
fn end(violations: &[Violation], written: Result<(), Failure>) -> Result<(), Failure> {
    let [first, ..] = violations else {
        return written;
    };
    if let Err(failure) = written {
        print::note(&format!("{:#}", failure.into_parts().0));
    }
    Err(Failure::Runtime(anyhow!(
        "{} laws broken, the first after {} s: {}",
        violations.len(),
        first.at,
        first.text
    )))
}
