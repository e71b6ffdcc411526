//! When demand is stable, every client has its wants, or the capacity is fully leased: its own or
//! the pool's, each without its reserve. Algorithms that go by usage promise it only where all that
//! is wanted fits.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::units::Instant;

use super::{Fleet as _, Law};
use crate::process::Process;
use crate::world::World;

/// Time for which a process may want capacity that other processes leave unused. Concurrency is
/// measured by its peaks, and a brief demand is over before the coordinator hears of it.
pub(super) const BRIEFLY: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(crate) struct Law3 {
    /// Time since which a process has wanted more, by incarnation.
    wanting: BTreeMap<u64, Instant>,
}

impl Law for Law3 {
    fn name(&self) -> &'static str {
        "law 3, nothing left over"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.left() <= 2 * BRIEFLY && world.sources().is_concurrency() {
            let now = world.now();
            let wanting = unsatisfied(world);
            self.wanting
                .retain(|known, _| wanting.iter().any(|p| p.incarnation == *known));
            for p in wanting {
                self.wanting.entry(p.incarnation).or_insert(now);
            }
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        let long = |p: &&Process| {
            let since = self.wanting.get(&p.incarnation);
            let briefly = |since: &Instant| now.saturating_since(*since) < BRIEFLY;
            !world.sources().is_concurrency() || since.is_some_and(|since| !briefly(since))
        };
        match unsatisfied(world).into_iter().find(long) {
            Some(p) => Err(format!(
                "{} wants {} and has {}, but not all is used",
                p.id.as_str(),
                p.wants(now),
                p.has(now)
            )),
            None => Ok(()),
        }
    }
}

/// Returns the processes that want more although capacity is unused.
fn unsatisfied(world: &World) -> Vec<&Process> {
    let now = world.now();
    let sources = world.sources();
    let has = |p: &Process| p.has(now).as_f64();
    let used = |member: usize| world.processes_of(member).map(has).sum::<f64>();
    let attached = sources
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| m.attached);
    let pooled: f64 = attached.map(|(i, _)| used(i)).sum();
    // Less than one permit for each of five cannot be lent.
    let whole = if sources.is_concurrency() { 5.0 } else { 0.1 };
    let spent = |used: f64, capacity: f64| used >= capacity * 0.99 - whole;
    let pool_spent = sources
        .pool
        .as_ref()
        .is_some_and(|p| spent(pooled, p.divided()));
    let mut unsatisfied = Vec::new();
    for (i, member) in sources.members.iter().enumerate() {
        if spent(used(i), member.own.divided()) || member.attached && pool_spent {
            continue;
        }
        let wants = world.processes_of(i).map(|p| p.wants(now));
        let fits = !member.attached && wants.sum::<f64>() < member.own.divided() * 0.95 - 1.0;
        if member.own.limit.algorithm.goes_by_usage() && !fits {
            continue;
        }
        // A demand of a few in a second is measured coarsely, hence the one; and bytes more so.
        let more = |p: &&Process| {
            let usual = p.work().usual();
            let part = if usual > 1 { 0.96 } else { 0.99 };
            has(p) + (usual as f64) < p.wants(now) * part
        };
        unsatisfied.extend(world.processes_of(i).filter(more));
    }
    unsatisfied
}
