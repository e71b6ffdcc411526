//! Defects that are planted to test the laws.

use tollgate_core::message::Refreshed;

/// Defect between processes, or their workers, and their surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Now and then shared data hands out an old record as if it were the newest, so that workers
    /// draw the same tokens.
    StaleRead,
    /// Shared data stores what should lose against another worker's write.
    LostCompare,
    /// Leases are longer on their way to a process.
    LateExpiry,
    /// Coordinators divide half of the capacity.
    HalfCapacity,
    /// Coordinators divide in proportion to wants where shares should be max-min fair.
    Proportional,
    /// Masters do not look at their terms before they answer.
    WithoutTerms,
    /// Coordinators forget what they have stored of slow buckets when they start.
    ForgottenBuckets,
}

// === impl Defect ===

impl Defect {
    /// Changes an answer on its way to a process.
    pub(crate) fn change(self, answer: &mut Refreshed) {
        if self != Self::LateExpiry {
            return;
        }
        let scopes = answer.scopes.iter_mut().flatten();
        let units = scopes.filter_map(|scope| scope.outcome.as_mut().ok());
        for unit in units.flatten() {
            if let Some(lease) = &mut unit.answer.lease {
                lease.duration = lease.duration * 3 / 2;
            }
        }
    }
}
