//! Defects that are planted to test the tester.

use tollgate_core::limit::{Algorithm, Limit, Part};
use tollgate_core::message::Refreshed;

use crate::sources::set_capacity;

/// Defect between processes, or their workers, and their surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Now and then shared data hands out an old record as if it were the newest, so that workers
    /// draw the same tokens.
    StaleRead,
    /// Shared data stores what should lose against another worker's write.
    LostCompare,
    /// Leases are longer on their way to the process.
    LateExpiry,
    /// Coordinators divide half of the capacity.
    HalfCapacity,
    /// Coordinators divide in proportion to wants where shares should be max-min fair.
    Proportional,
}

// === impl Defect ===

impl Defect {
    /// Returns the limit by which coordinators divide in place of `limit`.
    pub(crate) fn limit(self, limit: &Limit) -> Option<Limit> {
        let mut planted = limit.clone();
        match self {
            Self::HalfCapacity => set_capacity(&mut planted, Part::HALF.of(limit.capacity)),
            Self::Proportional if limit.algorithm == Algorithm::FairShare => {
                planted.algorithm = Algorithm::ProportionalShare;
            }
            _ => return None,
        }
        Some(planted)
    }

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
