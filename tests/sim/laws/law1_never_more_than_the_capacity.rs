//! At every instant the leases of a resource sum to at most its capacity, and those lent from a
//! pool to at most the pool's: in the master's lease table, and in the clients' use. There are
//! three exceptions. A lowered capacity may be exceeded for one lease, and after a snapshot
//! transfer for as much longer as the transfer took. A pool may be exceeded for one lease after a
//! member has come with its leases. A resource that moves to another shard may be lent once more
//! while the leases of the old one last.

use std::time::Duration;

use tollgate_sim::ClientView;

use super::Law;
use crate::fleet::Fleet;

pub(crate) struct Law1;

// === impl Law1 ===

impl Law for Law1 {
    fn name(&self) -> &'static str {
        "law 1, never more than the capacity"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let (history, now) = (&fleet.plan.history, fleet.elapsed());
        let mut pooled = 0;
        for (i, member) in history.members.iter().enumerate() {
            let used: u128 = fleet.clients_of(i).map(claims).sum();
            within(used, history.in_use_max(now, i), "in use")?;
            if member.is_attached(now) {
                pooled += used;
            }
            let capacity = member.own.capacity_max(now, fleet.held_up());
            check_table(fleet, i, capacity.as_micros().into())?;
        }
        if let Some(capacity) = history.pool_capacity_max(now, Duration::ZERO) {
            within(pooled, capacity.as_micros().into(), "of the pool in use")?;
        }
        match (
            fleet.pool(),
            history.pool_capacity_max(now, fleet.held_up()),
        ) {
            (Some(pool), Some(capacity)) => {
                let capacity = capacity.as_micros().into();
                within(pool.sum_has(), capacity, "lent of the pool")
            }
            _ => Ok(()),
        }
    }
}

// === free functions ===

fn claims(client: ClientView<'_>) -> u128 {
    client.claims().as_micros().into()
}

fn check_table(fleet: &Fleet, member: usize, capacity: u128) -> Result<(), String> {
    let Some(resource) = fleet.resource(member) else {
        return Ok(());
    };
    let clients = resource.clients();
    let sum: u128 = clients.map(|c| u128::from(c.has.as_micros())).sum();
    let counted = resource.sum_has();
    if sum != counted {
        return Err(format!("the table says {counted} but adds up to {sum}"));
    }
    within(sum, capacity, "lent")
}

pub(super) fn within(sum: u128, capacity: u128, use_of: &str) -> Result<(), String> {
    if sum > capacity {
        Err(format!("{sum} of {capacity} millionths are {use_of}"))
    } else {
        Ok(())
    }
}
