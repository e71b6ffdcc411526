//! Report of a run: one page that works offline, and its numbers beside it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use tollgate_sim::figures::Figures;
use tollgate_sim::sample::{Mark, Sample, Violation};
use tollgate_sim::simulation::Simulation;

use crate::failure::Failure;

mod chart;
mod csv;
mod page;

/// Everything that a run recorded.
#[derive(Debug, Serialize)]
struct RunRecord<'a> {
    name: &'a str,
    description: &'a str,
    seed: u64,
    /// Seconds.
    duration: f64,
    figures: &'a Figures,
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
    fn of(simulation: &'a Simulation, figures: &'a Figures) -> Self {
        let scenario = simulation.scenario();
        Self {
            name: &scenario.name,
            description: &scenario.description,
            seed: scenario.seed,
            duration: scenario.duration.0.as_secs_f64(),
            figures,
            marks: simulation.marks(),
            violations: simulation.violations(),
            scopes: simulation.watched_scopes(),
            envoys: simulation.watched_envoys(),
            samples: simulation.samples(),
        }
    }
}

// === free functions ===

/// Writes the report into `folder`, which is made if there is none.
pub(super) fn write(
    folder: &Path,
    simulation: &Simulation,
    figures: &Figures,
) -> Result<(), Failure> {
    let record = RunRecord::of(simulation, figures);
    let json = serde_json::to_string(&record).map_err(Failure::runtime)?;
    let files = [
        ("report.html", page::render(&record)),
        ("report.json", json),
        ("samples.csv", csv::samples(&record)),
        ("scopes.csv", csv::scopes(&record)),
        ("clients.csv", csv::clients(&record)),
    ];
    let made = fs::create_dir_all(folder).with_context(|| folder.display().to_string());
    made.map_err(Failure::Usage)?;
    for (name, text) in files {
        let path = folder.join(name);
        let written = fs::write(&path, text).with_context(|| path.display().to_string());
        written.map_err(Failure::Runtime)?;
    }
    Ok(())
}
