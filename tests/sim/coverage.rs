//! Coverage of runs, so that seeds that try too little are noticed.

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

/// Cases of workers, which have to be tried where other units are counted.
const OF_WORKERS: [Case; 10] = [
    Case::Joined,
    Case::WentOn,
    Case::TimedOut,
    Case::Left,
    Case::DebtCut,
    Case::Trapped,
    Case::TrappedWithin,
    Case::Interleaved,
    Case::WriteLost,
    Case::Applied,
];

/// Sums over runs.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    reached: Reached,
    /// Leases of safe capacity, and those lent out of such a lease.
    safe: [u64; 2],
}

// === impl Coverage ===

impl Coverage {
    /// Adds a run that has ended.
    pub(crate) fn add(&mut self, fleet: &Fleet) {
        self.reached += fleet.simulation.reached();
        for client in fleet.simulation.clients() {
            self.reached += client.tally();
        }
        if let Some(facts) = &fleet.borrowing {
            let sum = self.safe.iter_mut().zip(facts.safe_lent);
            sum.for_each(|(sum, more)| *sum += more);
        }
    }

    /// Returns what fleets below one coordinator have not tried.
    pub(crate) fn missing_in_clusters(&self) -> Vec<String> {
        self.missing(&others(&OF_TREES))
    }

    /// Returns what fleets that count other units have not tried.
    pub(crate) fn missing_of_other_units(&self) -> Vec<String> {
        self.missing(&OF_WORKERS)
    }

    /// Returns what trees have not tried.
    pub(crate) fn missing_in_trees(&self) -> Vec<String> {
        let mut missing = self.missing(&others(&OF_CLUSTERS));
        if self.safe.contains(&0) {
            missing.push(format!("safe capacity: {:?}", self.safe));
        }
        missing
    }

    fn missing(&self, cases: &[Case]) -> Vec<String> {
        let missing = cases.iter().filter(|case| self.reached.of(**case) == 0);
        missing.map(|case| format!("{case:?}")).collect()
    }
}

// === free functions ===

/// Returns the cases of all but workers, without some.
fn others(without: &[Case]) -> Vec<Case> {
    let is_other = |case: &Case| !OF_WORKERS.contains(case) && !without.contains(case);
    Case::ALL.iter().copied().filter(is_other).collect()
}
