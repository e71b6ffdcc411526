//! A process whose demand exceeds its lease spends the whole lease, also if requests wait in the
//! queues of several workers, or pay when they have passed. The law skips buckets that hold only
//! one request: requests at equal intervals can miss half of the rate there.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_sim::ClientKey;

use super::{Busy, Law};
use crate::fleet::Fleet;

/// Longest time between two looks: the tokens that arrive in it must fit into the bucket.
const TICKS: Duration = Duration::from_millis(30);
/// Time for which a process is watched, at the end of a run.
const WATCHED: Duration = Duration::from_secs(6);

#[derive(Default)]
pub(crate) struct CanBeUsed {
    seen: BTreeMap<ClientKey, Busy>,
}

impl Law for CanBeUsed {
    fn name(&self) -> &'static str {
        "what is lent can be used"
    }

    /// Observes clients while there are no faults.
    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        if fleet.left() > WATCHED {
            return Ok(());
        }
        for p in fleet.simulation.touched_clients() {
            if p.state() != LeaseState::Leased {
                self.seen.remove(&p.key());
                continue;
            }
            let (has, (_, burst)) = (p.has().as_f64(), p.flow());
            if let Some(seen) = self.seen.get_mut(&p.key()) {
                seen.flow = seen.flow.min(has);
            }
            let room = 2.0 * p.requests().largest as f64 + has * TICKS.as_secs_f64();
            if !p.unit().is_concurrency() && burst < room {
                continue;
            }
            let begin = || Busy::begin(fleet.now(), &p, has);
            self.seen.entry(p.key()).or_insert_with(begin);
        }
        Ok(())
    }

    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        fleet.simulation.clients().try_for_each(|p| {
            let Some(seen) = self.seen.get(&p.key()) else {
                return Ok(());
            };
            seen.check(fleet.now(), &p, (p.asked_for(), 0.95, 2.0))
        })
    }
}
