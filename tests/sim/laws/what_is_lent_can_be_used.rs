//! A process whose demand exceeds its lease spends the whole lease, also if requests wait in the
//! queues of several workers, or pay when they have passed. The law skips buckets that hold only
//! one request: requests at equal intervals can miss half of the rate there.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::{Instant, MICRO};
use tollgate_sim::ClientKey;

use super::{Law, lingers, throughput};
use crate::fleet::Fleet;

/// Longest time between two looks: the tokens that arrive in it must fit into the bucket.
const TICKS: Duration = Duration::from_millis(30);
/// Time for which a process is watched, at the end of a run.
const WATCHED: Duration = Duration::from_secs(6);

#[derive(Default)]
pub(crate) struct CanBeUsed {
    seen: BTreeMap<ClientKey, ProcessUse>,
}

struct ProcessUse {
    since: Instant,
    admitted: u64,
    owed: f64,
    /// The least capacity that it had in that time.
    has: f64,
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
                seen.has = seen.has.min(has);
            }
            let room = 2.0 * p.largest() as f64 + has * TICKS.as_secs_f64();
            if !p.unit().is_concurrency() && (burst as f64) < room * MICRO as f64 {
                continue;
            }
            self.seen.entry(p.key()).or_insert_with(|| ProcessUse {
                since: fleet.now(),
                admitted: p.admitted_total(),
                owed: p.owed(),
                has,
            });
        }
        Ok(())
    }

    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        for p in fleet.simulation.clients() {
            let Some(seen) = self.seen.get(&p.key()) else {
                continue;
            };
            let seconds = fleet.now().saturating_since(seen.since).as_secs_f64();
            let busy = seconds - 1.0 - lingers(&p).as_secs_f64();
            let most = throughput(&p, seen.has).min(p.asked_for());
            let part = if p.unit().is_concurrency() {
                0.45
            } else {
                0.95
            };
            let expected = most * busy * part - seen.owed - 2.0 * p.largest() as f64;
            let admitted = (p.admitted_total() - seen.admitted) as f64;
            if admitted < expected {
                let (name, has) = (p.name, seen.has);
                return Err(format!(
                    "{name} has {has}, and admitted {admitted} in {seconds} s, not {expected}"
                ));
            }
        }
        Ok(())
    }
}
