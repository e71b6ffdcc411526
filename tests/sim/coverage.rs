//! Coverage of runs, so that seeds that try too little are noticed.

use std::fmt::Debug;

use tollgate_sim::WorkerTally;
use tollgate_sim::simulation::reached::{Case, Reached};

use crate::fleet::Fleet;

/// Cases that only trees have.
const OF_TREES: [Case; 3] = [
    Case::CoordinatorNudged,
    Case::Borrowed,
    Case::CoordinatorCut,
];
/// Cases that only coordinators with several nodes have.
const OF_CLUSTERS: [Case; 3] = [Case::TermLost, Case::NotMaster, Case::WaitedInSocket];

/// Sums over runs.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    reached: Reached,
    tally: WorkerTally,
    /// Leases of safe capacity, those lent out of such a lease, trees of three levels, and runs with
    /// several priorities.
    trees: [u64; 4],
}

// === impl Coverage ===

impl Coverage {
    /// Adds a run that has ended.
    pub(crate) fn add(&mut self, fleet: &Fleet) {
        self.reached += fleet.simulation.reached();
        for client in fleet.simulation.clients() {
            self.tally += client.tally();
        }
        let facts = fleet.borrowing.as_ref();
        let [safe, safe_on] = facts.map_or([0; 2], |facts| facts.safe_lent);
        let levels = fleet.simulation.coordinators().map(|place| place.level());
        let mut priorities = fleet
            .plan
            .scenario
            .envoys
            .iter()
            .map(|envoy| envoy.priority);
        let first = priorities.next();
        let is_banded = priorities.any(|priority| Some(priority) != first);
        let more = [
            safe,
            safe_on,
            levels.max().unwrap_or_default().into(),
            is_banded.into(),
        ];
        for (count, more) in self.trees.iter_mut().zip(more) {
            *count += more;
        }
    }

    /// Returns what fleets below one coordinator have not tried.
    pub(crate) fn missing_in_clusters(&self) -> Vec<String> {
        let cases = Case::ALL.into_iter();
        self.missing(cases.filter(|case| !OF_TREES.contains(case)))
    }

    /// Returns what fleets that count other units have not tried.
    pub(crate) fn missing_of_other_units(&self) -> Vec<String> {
        let WorkerTally {
            joined,
            went,
            timed_out,
            left,
            debts_cut,
            traps,
            traps_within,
            interleaved,
            lost_writes,
            applied,
        } = self.tally;
        let counts = [
            ("joined", joined),
            ("went", went),
            ("timed out", timed_out),
            ("left", left),
            ("debts cut", debts_cut),
            ("traps", traps),
            ("traps within", traps_within),
            ("interleaved", interleaved),
            ("lost writes", lost_writes),
            ("applied", applied),
        ];
        let missing = counts.iter().filter(|(_, count)| *count == 0);
        missing.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Returns what trees have not tried.
    pub(crate) fn missing_in_trees(&self) -> Vec<String> {
        let cases = Case::ALL.into_iter();
        let mut missing = self.missing(cases.filter(|case| !OF_CLUSTERS.contains(case)));
        let names = ["safe lent", "safe lent on", "levels", "bands"];
        let counts = names.iter().zip(self.trees);
        let counts = counts.filter(|(_, count)| *count == 0);
        missing.extend(counts.map(|(name, _)| (*name).to_owned()));
        missing
    }

    fn missing(&self, cases: impl Iterator<Item = Case>) -> Vec<String> {
        let missing = cases.filter(|case| self.reached.of(*case) == 0);
        missing.map(named).collect()
    }
}

// === free functions ===

fn named(case: impl Debug) -> String {
    format!("{case:?}")
}
