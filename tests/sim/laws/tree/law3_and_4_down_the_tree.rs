//! When demand is stable and no coordinator is away, each divides its capacity by max-min between
//! its processes and the coordinators below, from the highest priority down. A coordinator below
//! counts for as many clients as want something there. The root divides its own capacity, each
//! other coordinator the capacity that it is lent.

use tollgate_sim::ClientView;

use super::super::Law;
use super::super::law4_max_min_fair::{Wants, shares as shares_of, wants_of};
use super::facts;
use crate::fleet::Fleet;
use crate::plan::Work;

pub(crate) struct Law4;

// === impl Law4 ===

impl Law for Law4 {
    fn name(&self) -> &'static str {
        "laws 3 and 4, max-min fair down the tree"
    }

    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        let root = &fleet.plan.history.members[0].own;
        if root.limit(fleet.elapsed()).algorithm.goes_by_usage() {
            return Ok(());
        }
        let mut shares = Vec::new();
        divide(fleet, 0, root.divided(fleet.elapsed()), &mut shares);
        let work = fleet.plan.work;
        let slack: f64 = shares
            .iter()
            .map(|(client, _)| sway(work, client.wants()))
            .sum();
        for (client, share) in shares {
            let has = client.has().as_f64();
            if !client.only_draws() && has < share - sway(work, share) - slack {
                let name = client.name;
                return Err(format!("{name} has {has}, its share is {share}"));
            }
        }
        Ok(())
    }
}

// === free functions ===

/// Returns the tolerance for errors of measurement.
fn sway(work: Work, wants: f64) -> f64 {
    let part = match work {
        Work::Requests => 0.01,
        Work::Bytes { .. } | Work::Waiting { .. } => 0.05,
        Work::InFlight { .. } => 0.15,
    };
    wants * part + work.usual() as f64
}

/// Returns the wants at a coordinator and below it.
fn wants_below(fleet: &Fleet, coordinator: usize) -> Wants {
    let clients = facts(fleet).clients_at(&fleet.simulation, coordinator);
    let clients = clients.map(|client| wants_of(&client));
    let below = facts(fleet).below(coordinator);
    let below = below.map(|child| wants_below(fleet, child));
    let mut all = Wants::default();
    for more in clients.chain(below) {
        for (sum, (wants, count)) in all.iter_mut().zip(more) {
            *sum = (sum.0 + wants, sum.1 + count);
        }
    }
    let own = facts(fleet).place(coordinator).limit.capacity;
    if !own.is_unlimited() {
        // A limit of its own is in trees without priorities only.
        all[0].0 = all[0].0.min(own.as_f64());
    }
    all
}

/// Adds the share of each process in `capacity` at a coordinator to `shares`.
fn divide<'a>(
    fleet: &'a Fleet,
    coordinator: usize,
    capacity: f64,
    shares: &mut Vec<(ClientView<'a>, f64)>,
) {
    let own = facts(fleet).place(coordinator).limit.capacity;
    let capacity = if own.is_unlimited() || coordinator == 0 {
        capacity
    } else {
        capacity.min(own.as_f64())
    };
    let clients: Vec<_> = facts(fleet)
        .clients_at(&fleet.simulation, coordinator)
        .collect();
    let children: Vec<_> = facts(fleet).below(coordinator).collect();
    let own = clients.iter().map(wants_of);
    let wants: Vec<Wants> = own
        .chain(children.iter().map(|i| wants_below(fleet, *i)))
        .collect();
    let parts = shares_of(&wants, capacity);
    let (of_clients, of_coordinators) = parts.split_at(clients.len());
    shares.extend(clients.into_iter().zip(of_clients.iter().copied()));
    for (i, part) in children.into_iter().zip(of_coordinators) {
        divide(fleet, i, *part, shares);
    }
}
