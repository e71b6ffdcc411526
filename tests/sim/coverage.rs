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
            self.reached += client.tally();
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
        self.missing(&others(&OF_TREES))
    }

    /// Returns what fleets that count other units have not tried.
    pub(crate) fn missing_of_other_units(&self) -> Vec<String> {
        self.missing(&OF_WORKERS)
    }

    /// Returns what trees have not tried.
    pub(crate) fn missing_in_trees(&self) -> Vec<String> {
        let mut missing = self.missing(&others(&OF_CLUSTERS));
        let names = ["safe lent", "safe lent on", "levels", "bands"];
        let counts = names.iter().zip(self.trees);
        let counts = counts.filter(|(_, count)| *count == 0);
        missing.extend(counts.map(|(name, _)| (*name).to_owned()));
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
