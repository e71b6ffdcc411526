//! `tollgate simulate`: a fleet on a virtual clock, to plan capacity with.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::anyhow;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use maud::Markup;
use serde::Serialize;
use tollgate_core::limit::Algorithm;
use tollgate_sim::figures::{Figures, LimitFigures};
use tollgate_sim::limits::LimitSource;
use tollgate_sim::sample::{Mark, Violation};
use tollgate_sim::simulation::Simulation;

use crate::failure::Failure;
use crate::print;

mod comparison;
mod figures;
mod file;
mod limits;
mod progress;
mod report;
mod seeds;
mod trace;

use self::comparison::{COMPARED, ComparedRun, Comparison};
use self::file::ScenarioFile;
use self::progress::Progress;
use self::seeds::{SeedRun, SeedRuns};

/// The most scopes without a limit that are named.
const UNLIMITED_NAMED: usize = 3;

/// The most limits that are printed.
const LIMITS_PRINTED: usize = 20;

/// The most seeds of one call.
const SEEDS_MAX: u64 = 10_000;

const EXAMPLES: &str = "\
Examples:
  tollgate simulate tests/scenarios/doorman-5.yaml
      Plays a tree of 13 coordinators and 45 Envoys, and prints the figures.
  tollgate simulate fleet.yaml --report out
      Writes out/report.html, which works offline, and the samples as CSV and JSON beside it.
  tollgate simulate fleet.yaml --seed 7 --json | jq .figures.of_attainable
      Another course of the same scenario, for programs.
  tollgate simulate fleet.yaml --seeds 20
      Twenty courses of it: the mean, the least and the most of each figure.
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

    /// Play the scenario with so many seeds, from the first one on: mean, least and most of each figure.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    #[arg(conflicts_with_all = ["compare", "report"])]
    seeds: Option<u64>,

    /// Algorithm in place of that of every limit.
    #[arg(long, value_name = "NAME", value_parser = algorithms())]
    algorithm: Option<Algorithm>,

    /// Play the scenario with each algorithm in place of that of every limit, and print one table.
    #[arg(long, conflicts_with = "algorithm")]
    compare: bool,

    /// Write a report into this folder: report.html, report.json, samples.csv, scopes.csv, clients.csv,
    /// limits.csv.
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
    limits: Vec<LimitFigures>,
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
        match self.seeds {
            Some(count) => self.play_seeds(file, count, json),
            None if self.compare => self.compare(&file, json),
            None => self.play(&file, json),
        }
    }

    /// Plays the scenario once.
    fn play(&self, file: &ScenarioFile, json: bool) -> Result<(), Failure> {
        let simulation = self.played(file, self.algorithm, true)?;
        let figures = simulation.figures();
        let algorithm = self.algorithm.map(Algorithm::name);
        if json {
            print::json(&RunSummary {
                name: &simulation.scenario().name,
                seed: simulation.scenario().seed,
                algorithm,
                figures: &figures,
                limits: simulation.limit_figures(),
                marks: simulation.marks(),
                violations: simulation.violations(),
            })?;
        } else {
            let rows = figures::rows(&figures).into_iter();
            let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
            print::table("FIGURE|VALUE", rows.collect())?;
            let limits = simulation.limit_figures();
            let rows = limits
                .iter()
                .take(LIMITS_PRINTED)
                .map(figures::shown_limit_row);
            let header = figures::LIMIT_HEADER.to_uppercase().replace('_', " ");
            print::table(&header, rows.collect())?;
        }
        let written = match &self.report {
            Some(folder) => report::write(folder, &simulation, &figures, algorithm),
            None => Ok(()),
        };
        end(simulation.violations(), written)
    }

    /// Plays the scenario with `count` seeds.
    fn play_seeds(&self, mut file: ScenarioFile, count: u64, json: bool) -> Result<(), Failure> {
        let first = file.scenario.seed;
        let mut seeds = SeedRuns {
            name: file.scenario.name.clone(),
            runs: Vec::new(),
        };
        for number in 0..count {
            file.scenario.seed = first.wrapping_add(number);
            print::note(&format!("seed {}", file.scenario.seed));
            let simulation = self.played(&file, self.algorithm, number == 0)?;
            seeds.runs.push(SeedRun {
                seed: file.scenario.seed,
                figures: simulation.figures(),
                violations: simulation.violations().to_vec(),
            });
        }
        seeds.print(json)?;
        let violations = seeds.runs.iter().flat_map(|run| &run.violations);
        end(&violations.cloned().collect::<Vec<_>>(), Ok(()))
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
            let simulation = self.played(file, Some(algorithm), algorithm == COMPARED[0])?;
            let figures = simulation.figures();
            let mut run = ComparedRun {
                algorithm: name,
                figures,
                violations: simulation.violations().to_vec(),
                chart: Markup::default(),
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

    /// Returns the finished run of a file, with `algorithm` in place of that of its limits. The first
    /// of several warns of scopes without a limit.
    fn played(
        &self,
        file: &ScenarioFile,
        algorithm: Option<Algorithm>,
        is_first: bool,
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
        if is_first {
            warn_of_unlimited(&simulation);
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
fn warn_of_unlimited(simulation: &Simulation) {
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
