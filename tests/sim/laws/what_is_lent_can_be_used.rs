//! A process whose demand exceeds its lease spends the whole lease, also if requests wait in the
//! queues of several workers, or pay when they have passed. The law skips buckets that hold only
//! one request: requests at equal intervals can miss half of the rate there.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::{Instant, MICRO};

use super::{Fleet, Law};
use crate::process::Process;

/// Longest time between two looks: the tokens that arrive in it must fit into the bucket.
const TICKS: Duration = Duration::from_millis(30);
/// Time for which a process is watched, at the end of a run.
const WATCHED: Duration = Duration::from_secs(6);

#[derive(Default)]
pub(crate) struct CanBeUsed {
    /// Observations by incarnation.
    seen: BTreeMap<u64, ProcessUse>,
}

struct ProcessUse {
    since: Instant,
    admitted: u64,
    owed: f64,
    /// The least capacity that it had in that time.
    has: f64,
}

impl<W: Fleet> Law<W> for CanBeUsed {
    fn name(&self) -> &'static str {
        "what is lent can be used"
    }

    fn check(&mut self, world: &W) -> Result<(), String> {
        if world.left() <= WATCHED {
            self.watch(world.now(), world.processes());
        }
        Ok(())
    }

    fn finish(&mut self, world: &W) -> Result<(), String> {
        self.judge(world.now(), world.processes())
    }
}

impl CanBeUsed {
    /// Observes the processes after every event while there are no faults.
    fn watch(&mut self, now: Instant, processes: &[Process]) {
        for p in processes {
            let work = p.work();
            if p.state(now) != LeaseState::Leased {
                self.seen.remove(&p.incarnation);
                continue;
            }
            let (has, (_, burst)) = (p.has(now).as_f64(), p.flow(now));
            if let Some(seen) = self.seen.get_mut(&p.incarnation) {
                seen.has = seen.has.min(has);
            }
            let room = 2.0 * work.largest() as f64 + has * TICKS.as_secs_f64();
            if !p.unit().is_concurrency() && (burst as f64) < room * MICRO as f64 {
                continue;
            }
            self.seen
                .entry(p.incarnation)
                .or_insert_with(|| ProcessUse {
                    since: now,
                    admitted: p.admitted_total,
                    owed: p.owed(now),
                    has,
                });
        }
    }

    /// Judges the observations at the end.
    fn judge(&self, now: Instant, processes: &[Process]) -> Result<(), String> {
        for p in processes {
            let Some(seen) = self.seen.get(&p.incarnation) else {
                continue;
            };
            let work = p.work();
            let seconds = now.saturating_since(seen.since).as_secs_f64();
            let busy = seconds - 1.0 - work.lingers().as_secs_f64();
            let most = work.throughput(seen.has).min(p.asked_for());
            let part = if p.unit().is_concurrency() {
                0.45
            } else {
                0.95
            };
            let expected = most * busy * part - seen.owed - 2.0 * work.largest() as f64;
            let admitted = (p.admitted_total - seen.admitted) as f64;
            if admitted < expected {
                let id = p.id.as_str();
                return Err(format!(
                    "{id} has {}, and admitted {admitted} in {seconds} s, not {expected}",
                    seen.has
                ));
            }
        }
        Ok(())
    }
}
