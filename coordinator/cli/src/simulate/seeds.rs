//! One scenario with many seeds.

use serde::Serialize;
use tollgate_sim::figures::Figures;
use tollgate_sim::sample::Violation;

use super::figures::{percent, seconds, tenths};
use crate::failure::Failure;
use crate::print;

/// Columns of the table.
const HEADER: &str = "FIGURE|MEAN|LEAST|MOST";

/// Figures over the seeds, in the order of those of one run.
const MEASURES: [Measure; 24] = [
    Measure::new("admitted, of one ideal bucket", |run| run.of_ideal, percent),
    Measure::new(
        "the same, of the worst scope",
        |run| run.least_of_ideal,
        percent,
    ),
    Measure::new(
        "most admitted beyond burst + rate × t",
        |run| Some(run.beyond_ideal),
        tenths,
    ),
    Measure::new(
        "of that by safe capacity",
        |run| Some(run.beyond_safe),
        tenths,
    ),
    Measure::new(
        "of that by nothing known",
        |run| Some(run.beyond_rest),
        tenths,
    ),
    Measure::new("time to the first lease", |run| run.first_lease, seconds),
    Measure::new(
        "longest wait of an Envoy for one",
        |run| run.longest_first_lease,
        seconds,
    ),
    Measure::new("time until 95 % was handed out", |run| run.settled, seconds),
    Measure::new(
        "handed out, of min(capacity, wants)",
        |run| Some(run.of_attainable),
        percent,
    ),
    Measure::new(
        "handed out, of the capacity",
        |run| Some(run.of_capacity),
        percent,
    ),
    Measure::count("samples over capacity", |run| run.over_capacity),
    Measure::new(
        "fullest scope, of its capacity",
        |run| Some(run.worst),
        percent,
    ),
    Measure::new("fairness, 1 is max-min", |run| run.fairness, index),
    Measure::new("mean time to fair", |run| run.time_to_fair, seconds),
    Measure::new(
        "longest time to fair",
        |run| run.longest_time_to_fair,
        seconds,
    ),
    Measure::count("unfair at the end", |run| run.unfair_at_end as u64),
    Measure::count("leases lost", |run| run.leases_lost),
    Measure::count("requests admitted", |run| run.admitted),
    Measure::count("requests refused", |run| run.refused),
    Measure::count("refreshes", |run| run.refreshes),
    Measure::count("nudges", |run| run.nudges),
    Measure::count("messages", |run| run.messages),
    Measure::count("messages lost", |run| run.messages_lost),
    Measure::count("laws broken", |run| run.violations as u64),
];

/// Runs of one scenario, one with each seed.
#[derive(Debug, Serialize)]
pub(super) struct SeedRuns {
    pub(super) name: String,
    pub(super) runs: Vec<SeedRun>,
}

/// Run with one seed.
#[derive(Debug, Serialize)]
pub(super) struct SeedRun {
    pub(super) seed: u64,
    pub(super) figures: Figures,
    pub(super) violations: Vec<Violation>,
}

/// Figure of a run, as it is shown.
struct Measure {
    name: &'static str,
    of: Extract,
    text: fn(f64) -> String,
}

/// Figure that is taken out of a run's: one that not every run has, or a number.
enum Extract {
    Maybe(fn(&Figures) -> Option<f64>),
    Count(fn(&Figures) -> u64),
}

// === impl SeedRuns ===

impl SeedRuns {
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            print::json(self)
        } else {
            print::table(HEADER, self.rows())
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows = MEASURES.iter().map(|measure| measure.row(&self.runs));
        rows.collect()
    }
}

// === impl Measure ===

impl Measure {
    const fn new(
        name: &'static str,
        of: fn(&Figures) -> Option<f64>,
        text: fn(f64) -> String,
    ) -> Self {
        let of = Extract::Maybe(of);
        Self { name, of, text }
    }

    const fn count(name: &'static str, of: fn(&Figures) -> u64) -> Self {
        let of = Extract::Count(of);
        let text = whole;
        Self { name, of, text }
    }

    /// Returns the name, the mean, the least and the most of the runs that have the figure.
    fn row(&self, runs: &[SeedRun]) -> Vec<String> {
        let values = runs.iter().filter_map(|run| self.of.value(&run.figures));
        let values: Vec<f64> = values.collect();
        let mut row = vec![self.name.to_owned()];
        if values.is_empty() {
            row.resize(4, "–".to_owned());
            return row;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.extend([mean, least, most].map(self.text));
        if values.len() < runs.len() {
            row[1] += &format!(", of {} runs of {}", values.len(), runs.len());
        }
        row
    }
}

// === impl Extract ===

impl Extract {
    fn value(&self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Maybe(of) => of(figures),
            Self::Count(of) => Some(of(figures) as f64),
        }
    }
}

// === free functions ===

fn index(value: f64) -> String {
    format!("{value:.3}")
}

/// Returns a number of things, or the mean of such.
fn whole(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first_lease: Option<f64>, leases_lost: u64) -> SeedRun {
        SeedRun {
            seed: 0,
            figures: Figures {
                first_lease,
                leases_lost,
                ..Figures::default()
            },
            violations: Vec::new(),
        }
    }

    fn row(runs: Vec<SeedRun>, name: &str) -> Vec<String> {
        let runs = SeedRuns {
            name: String::new(),
            runs,
        };
        let mut rows = runs.rows().into_iter();
        rows.find(|row| row[0] == name).unwrap()
    }

    #[test]
    fn figures_are_means_least_and_most_of_all_seeds() {
        let runs = vec![run(Some(0.004), 3), run(Some(0.008), 4)];
        assert_eq!(row(runs, "leases lost")[1..], ["3.5", "3", "4"]);
        let runs = vec![run(Some(0.004), 3), run(Some(0.008), 4)];
        let lease = row(runs, "time to the first lease");
        assert_eq!(lease[1..], ["0.006 s", "0.004 s", "0.008 s"]);
    }

    #[test]
    fn a_figure_that_some_runs_do_not_have_says_so() {
        let runs = vec![run(Some(0.004), 0), run(None, 0)];
        let lease = row(runs, "time to the first lease");
        assert_eq!(lease[1], "0.004 s, of 1 runs of 2");
        let none = row(vec![run(None, 0)], "time to the first lease");
        assert_eq!(none[1..], ["–", "–", "–"]);
    }
}
