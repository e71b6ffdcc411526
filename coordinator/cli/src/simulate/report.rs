//! Report of a run: one page that works offline, and its numbers beside it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use maud::Markup;
use serde::Serialize;
use tollgate_sim::figures::{Figures, LimitFigures};
use tollgate_sim::sample::{Mark, Sample, Violation};
use tollgate_sim::simulation::Simulation;

use super::comparison::Comparison;
use crate::failure::Failure;

mod chart;
mod page;
mod tables;

/// Everything that a run recorded.
#[derive(Debug, Serialize)]
struct RunRecord<'a> {
    name: &'a str,
    description: &'a str,
    seed: u64,
    /// Algorithm in place of that of the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    /// Seconds.
    duration: f64,
    figures: &'a Figures,
    limits: Vec<LimitFigures>,
    marks: &'a [Mark],
    violations: &'a [Violation],
    /// Names of the scopes that samples have one by one.
    scopes: Vec<&'a str>,
    /// Names of the Envoys that samples have one by one.
    envoys: Vec<&'a str>,
    samples: &'a [Sample],
}

// === impl RunRecord ===

impl<'a> RunRecord<'a> {
    fn of(
        simulation: &'a Simulation,
        figures: &'a Figures,
        algorithm: Option<&'static str>,
    ) -> Self {
        let scenario = simulation.scenario();
        Self {
            name: &scenario.name,
            description: &scenario.description,
            seed: scenario.seed,
            algorithm,
            duration: scenario.duration.0.as_secs_f64(),
            figures,
            limits: simulation.limit_figures(),
            marks: simulation.marks(),
            violations: simulation.violations(),
            scopes: simulation.watched_scopes(),
            envoys: simulation.watched_envoys(),
            samples: simulation.samples(),
        }
    }

    /// Returns whether the scope of a number never had a capacity, nor leases with a bound.
    fn is_unlimited(&self, scope: usize) -> bool {
        let samples = self.samples.iter();
        let mut samples = samples.filter_map(|sample| sample.scopes.get(scope));
        samples.all(|scope| scope.capacity.is_none() && scope.has.is_none_or(|has| has == 0.0))
    }
}

// === free functions ===

/// Writes the report into `folder`, which is made if there is none.
pub(super) fn write(
    folder: &Path,
    simulation: &Simulation,
    figures: &Figures,
    algorithm: Option<&'static str>,
) -> Result<(), Failure> {
    let record = RunRecord::of(simulation, figures, algorithm);
    let json = serde_json::to_string(&record).map_err(Failure::runtime)?;
    let files = [
        ("report.html", page::render(&record)),
        ("report.json", json),
        ("samples.csv", tables::samples(&record)?),
        ("scopes.csv", tables::scopes(&record)?),
        ("clients.csv", tables::clients(&record)?),
        ("limits.csv", tables::limits(&record)?),
    ];
    save(folder, &files)
}

/// Writes the comparison of algorithms into `folder`.
pub(super) fn write_comparison(folder: &Path, comparison: &Comparison) -> Result<(), Failure> {
    let json = serde_json::to_string(comparison).map_err(Failure::runtime)?;
    let files = [
        ("comparison.html", page::render_comparison(comparison)),
        ("comparison.json", json),
    ];
    save(folder, &files)
}

/// Returns the chart of the whole fleet of a run.
pub(super) fn fleet_chart(simulation: &Simulation, algorithm: &'static str) -> Markup {
    let figures = Figures::default();
    let record = RunRecord::of(simulation, &figures, Some(algorithm));
    page::fleet_chart(&record, algorithm)
}

fn save(folder: &Path, files: &[(&str, String)]) -> Result<(), Failure> {
    let not_written = |path: &Path| format!("the report is not written: {}", path.display());
    let created = fs::create_dir_all(folder).with_context(|| not_written(folder));
    created.map_err(Failure::Incomplete)?;
    for (name, text) in files {
        let path = folder.join(name);
        let written = fs::write(&path, text).with_context(|| not_written(&path));
        written.map_err(Failure::Incomplete)?;
    }
    Ok(())
}
