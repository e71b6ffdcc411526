//! When demand is stable, every client has its wants, or the capacity is fully leased: its own or
//! the pool's, each without its reserve. Algorithms that go by usage promise it only where all that
//! is wanted fits.

use super::lasting::{Lasting, is_to_note};
use super::{Fleet as _, Law};
use crate::process::Process;
use crate::world::World;

/// Demand per second up to which its measure sways by as much as one.
const SLOW: u64 = 10;

#[derive(Default)]
pub(crate) struct Law3 {
    /// Processes that want more.
    wanting: Lasting,
}

impl Law for Law3 {
    fn name(&self) -> &'static str {
        "law 3, nothing left over"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if is_to_note(world) {
            let wanting = unsatisfied(world).into_iter().map(|p| p.incarnation);
            self.wanting.note(world.now(), &wanting.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        let is_wrong = |p: &&Process| self.wanting.is_wrong(world, p.incarnation);
        match unsatisfied(world).into_iter().find(is_wrong) {
            Some(p) => {
                let all = world.processes().iter();
                let all: Vec<_> = all.map(|p| (p.wants(now), p.has(now).as_f64())).collect();
                let (id, wants, has) = (p.id.as_str(), p.wants(now), p.has(now));
                Err(format!(
                    "{id} wants {wants} and has {has}, but not all is used: {all:?}"
                ))
            }
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
    let whole = whole + world.processes().iter().map(sway).sum::<f64>();
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

/// Returns by how much the wants of a process may differ from one refresh to the next: a demand of a
/// few in a second is measured coarsely, and what it has left the others get only then.
fn sway(p: &Process) -> f64 {
    match p.demand {
        1..=SLOW => p.work().usual() as f64,
        _ => 0.0,
    }
}
