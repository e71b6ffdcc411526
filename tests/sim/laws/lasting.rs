//! States that laws tolerate for a while at the end of a run, because the demand is not steady.
//!
//! Concurrency is measured by its peaks, and a brief demand is over before the coordinator hears of
//! it. A process that is asked for so little that its lease is given back between two requests comes
//! and goes, and each time the shares of the others change.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::units::Instant;

use super::Fleet as _;
use crate::process::Process;
use crate::world::World;

/// Time for which such a state may last.
const BRIEFLY: Duration = Duration::from_secs(3);

/// Processes in a state that may not last, by incarnation, with the times since when.
#[derive(Default)]
pub(super) struct Lasting(BTreeMap<u64, Instant>);

// === impl Lasting ===

impl Lasting {
    /// Takes the processes that are in the state now.
    pub(super) fn note(&mut self, now: Instant, incarnations: &[u64]) {
        self.0.retain(|known, _| incarnations.contains(known));
        for incarnation in incarnations {
            self.0.entry(*incarnation).or_insert(now);
        }
    }

    /// Returns whether a process that is in the state now has been so for too long, or may not be in
    /// it at all.
    pub(super) fn is_wrong(&self, world: &World, incarnation: u64) -> bool {
        let since = self.0.get(&incarnation);
        let long = |since: &Instant| world.now().saturating_since(*since) >= BRIEFLY;
        !is_unsteady(world) || since.is_some_and(long)
    }
}

// === free functions ===

/// Returns whether processes in the state have to be noted now.
pub(super) fn is_to_note(world: &World) -> bool {
    world.left() <= 2 * BRIEFLY && is_unsteady(world)
}

fn is_unsteady(world: &World) -> bool {
    world.sources().is_concurrency() || world.processes().iter().any(comes_and_goes)
}

fn comes_and_goes(p: &Process) -> bool {
    p.demand > 0 && p.demand as f64 * p.policy.idle_after.as_secs_f64() <= 1.0
}
