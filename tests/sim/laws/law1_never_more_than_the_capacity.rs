//! At every instant the leases of a resource sum to at most its capacity, and those lent from a
//! pool to at most the pool's: in the master's lease table, and in the clients' use. There are
//! three exceptions. A lowered capacity may be exceeded for one lease, and after a snapshot
//! transfer for as much longer as the transfer took. A pool may be exceeded for one lease after a
//! member has come with its leases. A resource that moves to another shard may be lent once more
//! while the leases of the old one last.

use super::{Fleet as _, Law};
use crate::world::World;

pub(crate) struct Law1;

impl Law for Law1 {
    fn name(&self) -> &'static str {
        "law 1, never more than the capacity"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let (sources, now) = (world.sources(), world.now());
        let mut pooled = 0;
        for (i, member) in sources.members.iter().enumerate() {
            let used = used(world, i);
            within(used, sources.in_use_max(now, i), "in use")?;
            if member.attached {
                pooled += used;
            }
            let capacity = member.own.capacity_max_before(now, world.held_up());
            check_table(world, i, capacity.as_micros().into())?;
        }
        let Some(capacity) = sources.pool_capacity_max(now) else {
            return Ok(());
        };
        let capacity = u128::from(capacity.as_micros());
        within(pooled, capacity, "of the pool in use")?;
        let Some(pool) = world.pool() else {
            return Ok(());
        };
        let capacity = sources.pool_capacity_max_before(now, world.held_up());
        capacity.map_or(Ok(()), |capacity| {
            let capacity = capacity.as_micros().into();
            within(pool.sum_has(), capacity, "lent of the pool")
        })
    }
}

fn used(world: &World, member: usize) -> u128 {
    let used = world.processes_of(member).map(|p| p.claims(world.now()));
    used.map(|has| u128::from(has.as_micros())).sum()
}

fn check_table(world: &World, member: usize, capacity: u128) -> Result<(), String> {
    let Some(resource) = world.resource(member) else {
        return Ok(());
    };
    let clients = resource.clients();
    let sum: u128 = clients.map(|c| u128::from(c.has.as_micros())).sum();
    let said = resource.sum_has();
    if sum != said {
        return Err(format!("the table says {said} but adds up to {sum}"));
    }
    within(sum, capacity, "lent")
}

fn within(sum: u128, capacity: u128, what: &str) -> Result<(), String> {
    if sum > capacity {
        return Err(format!("{sum} of {capacity} millionths are {what}"));
    }
    Ok(())
}
