//! Table of all runs, as Markdown.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Result;
use tollgate_tests::filter::Build;

use crate::visits::{Answers, Load, PART_SECONDS, Visits};

const HEADS: [&str; 13] = [
    "build, Envoys",
    "tenants",
    "requests/s",
    "passed",
    "refused",
    "by overflow",
    "p50, p99 without the filter",
    "of visitors",
    "of known tenants",
    "VM",
    "Envoys",
    "slots",
    "coordinator",
];

/// Costs of one run; memory and slots of the Envoy that has the most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) overflow: u64,
    pub(crate) slots: u64,
    pub(crate) vm_bytes: u64,
    pub(crate) envoy_bytes: u64,
    /// Part of a core that all Envoys use.
    pub(crate) envoys_cpu: f64,
    /// Part of a core.
    pub(crate) coordinator_cpu: f64,
    pub(crate) coordinator_bytes: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) build: Build,
    pub(crate) envoys: u32,
    pub(crate) load: Load,
    pub(crate) plain: Visits,
    pub(crate) visits: Visits,
    pub(crate) cost: Cost,
}

// === impl Row ===

impl Row {
    /// Returns a line with the requests that passed and that were refused in each part of the run.
    pub(crate) fn course(&self) -> String {
        let mut line = format!(
            "{:?}, {} Envoys, {:?}: passed/refused every {PART_SECONDS} s:",
            self.build, self.envoys, self.load
        );
        for (passed, refused) in &self.visits.course {
            let _ = write!(line, " {passed}/{refused}");
        }
        line
    }

    fn cells(&self) -> [String; 13] {
        let sum =
            |of: fn(&(usize, usize)) -> usize| self.visits.course.iter().map(of).sum::<usize>();
        let cost = &self.cost;
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        [
            format!("{:?}, {}", self.build, self.envoys),
            self.load.tenants.to_string(),
            self.load.rate.to_string(),
            sum(|part| part.0).to_string(),
            sum(|part| part.1).to_string(),
            cost.overflow.to_string(),
            quantiles(&self.plain.visitors),
            quantiles(&self.visits.visitors),
            quantiles(&self.visits.known),
            mib(cost.vm_bytes),
            format!(
                "{:.0} % of a core, {}",
                100.0 * cost.envoys_cpu,
                mib(cost.envoy_bytes)
            ),
            cost.slots.to_string(),
            format!(
                "{:.0} % of a core, {}",
                100.0 * cost.coordinator_cpu,
                mib(cost.coordinator_bytes)
            ),
        ]
    }
}

// === free functions ===

/// Prints all rows.
///
/// # Errors
/// When nothing can be printed.
pub(crate) fn print(rows: &[Row]) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "| {} |", HEADS.join(" | "))?;
    writeln!(out, "|{}", "---|".repeat(HEADS.len()))?;
    for row in rows {
        writeln!(out, "| {} |", row.cells().join(" | "))?;
    }
    Ok(())
}

fn quantiles(answers: &Answers) -> String {
    let (p50, p99) = (answers.quantile_ms(0.5), answers.quantile_ms(0.99));
    format!("{p50:.2}, {p99:.2} ms")
}
