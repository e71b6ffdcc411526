//! When demand is stable, everyone has what it wants, or the capacity is fully leased: its own or the
//! pool's, each without its reserve.

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
        let used = |member: usize| world.processes_of(member).map(has).sum::<f64>();
        let sources = world.sources();
        let attached = sources
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.attached);
        let pooled: f64 = attached.map(|(i, _)| used(i)).sum();
        let spent = |used: f64, capacity: f64| used >= capacity * 0.99 - 0.1;
        let pool_spent = sources
            .pool
            .as_ref()
            .is_some_and(|p| spent(pooled, p.divided()));
        for (i, member) in sources.members.iter().enumerate() {
            let (used, capacity) = (used(i), member.own.divided());
            if spent(used, capacity) || member.attached && pool_spent {
                continue;
            }
            // A demand of a few in a second is measured coarsely, hence the one.
            let unsatisfied = |p: &&Process| has(p) + 1.0 < p.wants(now) * 0.99;
            if let Some(p) = world.processes_of(i).find(unsatisfied) {
                return Err(format!(
                    "{} wants {} and has {}, but only {used} of {capacity} are used",
                    p.id.as_str(),
                    p.wants(now),
                    has(p)
                ));
            }
        }
        Ok(())
    }
}
