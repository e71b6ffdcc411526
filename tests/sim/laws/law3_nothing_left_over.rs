//! When demand is stable, everyone has what it wants or the capacity is fully leased.

use super::Law;
use crate::process::Process;
use crate::world::World;

pub(crate) struct Law3;

impl Law for Law3 {
    fn name(&self) -> &'static str {
        "law 3, nothing left over"
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        let has = |p: &Process| p.holder.has(p.clock(now)).as_f64();
        let used: f64 = world.processes().iter().map(has).sum();
        let capacity = world.limit().capacity.as_f64();
        if used >= capacity * 0.99 - 0.1 {
            return Ok(());
        }
        // A demand of a few in a second is measured coarsely, hence the one.
        let unsatisfied = |p: &&Process| has(p) + 1.0 < p.wants(now) * 0.99;
        match world.processes().iter().find(unsatisfied) {
            None => Ok(()),
            Some(p) => Err(format!(
                "{} wants {} and has {}, but only {used} of {capacity} are used",
                p.id.as_str(),
                p.wants(now),
                has(p)
            )),
        }
    }
}
