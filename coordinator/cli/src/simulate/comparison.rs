//! Comparison of the algorithms on one scenario.

use maud::Markup;
use serde::Serialize;
use tollgate_core::limit::Algorithm;
use tollgate_sim::figures::Figures;
use tollgate_sim::sample::Violation;

use super::figures::{longest_unfair, percent, seconds};
use crate::failure::Failure;
use crate::print::{self, or_dash};

/// Algorithms that are compared, from the simplest to the fairest, then those that go by usage.
pub(super) const COMPARED: [Algorithm; 5] = [
    Algorithm::Static,
    Algorithm::ProportionalShare,
    Algorithm::FairShare,
    Algorithm::UsageShare,
    Algorithm::MaxRate,
];

/// Columns of the table.
pub(super) const HEADER: &str = "ALGORITHM|HANDED OUT|FAIRNESS|SAMPLES OVER|OVERSHOOT|\
                                 TIME TO FAIR|LONGEST|MESSAGES";

/// Runs of one scenario with each algorithm.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) seed: u64,
    /// Seconds.
    pub(super) duration: f64,
    pub(super) runs: Vec<ComparedRun>,
}

/// One run of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct ComparedRun {
    pub(super) algorithm: &'static str,
    pub(super) figures: Figures,
    pub(super) violations: Vec<Violation>,
    /// Chart of the fleet, if a report is made.
    #[serde(skip)]
    pub(super) chart: Markup,
}

// === impl Comparison ===

impl Comparison {
    /// Returns the table, a row for each run.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        self.runs.iter().map(ComparedRun::row).collect()
    }

    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            print::json(self)
        } else {
            print::table(HEADER, self.rows())
        }
    }
}

// === impl ComparedRun ===

impl ComparedRun {
    fn row(&self) -> Vec<String> {
        let Figures {
            of_attainable,
            fairness,
            samples,
            over_capacity,
            worst,
            time_to_fair,
            messages,
            ..
        } = &self.figures;
        vec![
            self.algorithm.to_owned(),
            percent(*of_attainable),
            or_dash(fairness.map(|index| format!("{index:.3}"))),
            format!("{over_capacity} of {samples}"),
            percent((worst - 1.0).max(0.0)),
            or_dash(time_to_fair.map(seconds)),
            longest_unfair(&self.figures),
            messages.to_string(),
        ]
    }
}
