//! When demand is stable, the clients' capacity is the max-min fair allocation. A pool is divided
//! between its members, a member's capacity between priority bands from the highest down, and each
//! band between its clients.
//!
//! The law computes the allocation by filling: every client gets the same small amount again and
//! again until satisfied. Slow and obvious, and nothing like the tree in the core. Other
//! algorithms are not max-min, and left to the core's own tests.

use tollgate_core::limit::Algorithm;
use tollgate_sim::{ClientKey, ClientView};

use super::has;
use crate::fleet::Fleet;
use crate::plan::Work;

/// Returns the processes that have less than their shares.
pub(super) fn short(fleet: &Fleet) -> Vec<(ClientKey, String)> {
    let mut short = Vec::new();
    let members = fleet.plan.history.members.iter();
    // One in a hundred, and one request per second, for the coarseness of demand; and as much of the
    // capacity of all other processes, which moves the shares. Waiting requests are counted anew as
    // long as they wait, which is coarser, and so are bytes.
    let part = match fleet.plan.work {
        Work::Waiting { .. } => 0.94,
        Work::Bytes { .. } => 0.96,
        _ => 0.99,
    };
    for ((i, member), capacity) in members.enumerate().zip(allotted(fleet)) {
        if member.own.limit(fleet.elapsed()).algorithm != Algorithm::FairShare {
            continue;
        }
        let clients: Vec<_> = fleet.clients_of(i).collect();
        let shares = shares(&clients.iter().map(wants_of).collect::<Vec<_>>(), capacity);
        let less = |(client, share): &(ClientView<'_>, f64)| {
            !client.only_draws() && has(client) < share * part - 1.0 - slack(fleet)
        };
        let less = clients.into_iter().zip(shares).filter(less);
        short.extend(less.map(|(client, share)| {
            let (name, has) = (client.name, has(&client));
            (
                client.key(),
                format!("{name} has {has}, its share is {share}"),
            )
        }));
    }
    short
}

/// Returns the capacity that each member's clients may divide.
fn allotted(fleet: &Fleet) -> Vec<f64> {
    let (now, history) = (fleet.elapsed(), &fleet.plan.history);
    let own = history.members.iter();
    let own: Vec<_> = own.map(|member| member.own.divided(now)).collect();
    let Some(pool) = &history.pool else {
        return own;
    };
    let wants = |i: usize| -> f64 {
        let wants = fleet.clients_of(i).map(|client| client.wants());
        wants.sum::<f64>().min(own[i])
    };
    let members = history.members.iter().enumerate();
    let clients = members.map(|(i, member)| {
        let wants = if member.is_attached(now) {
            wants(i)
        } else {
            0.0
        };
        (wants, f64::from(member.weight(now).get()))
    });
    let filled = fill(&clients.collect::<Vec<_>>(), pool.divided(now));
    let members = history.members.iter().zip(filled).zip(own);
    members
        .map(|((member, filled), own)| if member.is_attached(now) { filled } else { own })
        .collect()
}

/// Wants of a client by priority, and the number of clients that have them.
pub(super) type Wants = [(f64, f64); 16];

/// Returns the wants of one client.
pub(super) fn wants_of(client: &ClientView<'_>) -> Wants {
    let mut all = Wants::default();
    let wants = client.wants();
    if wants > 0.0 {
        all[usize::from(client.policy().priority.level())] = (wants, 1.0);
    }
    all
}

/// Returns the share of each client in `capacity`, from the highest priority down.
pub(super) fn shares(clients: &[Wants], mut capacity: f64) -> Vec<f64> {
    let mut shares = vec![0.0; clients.len()];
    for level in (0..16).rev() {
        let band: Vec<_> = clients.iter().map(|wants| wants[level]).collect();
        for (share, filled) in shares.iter_mut().zip(fill(&band, capacity)) {
            *share += filled;
            capacity -= filled;
        }
    }
    shares
}

/// Returns the tolerance in a pool, and above a lower band: one client's sway is another's share.
fn slack(fleet: &Fleet) -> f64 {
    let mut priorities = fleet
        .simulation
        .clients()
        .map(|client| client.policy().priority);
    let first = priorities.next();
    let alike = priorities.all(|priority| Some(priority) == first);
    if alike && fleet.plan.history.pool.is_none() {
        return 0.0;
    }
    let clients = fleet.simulation.clients();
    clients.map(|client| client.wants() * 0.01 + 1.0).sum()
}

/// Returns the shares of clients with these wants and weights in `capacity`.
fn fill(clients: &[(f64, f64)], capacity: f64) -> Vec<f64> {
    const STEPS: u32 = 100_000;
    let step = capacity / f64::from(STEPS);
    let mut shares = vec![0.0; clients.len()];
    let mut left = capacity;
    while left > 0.0
        && shares
            .iter()
            .zip(clients)
            .any(|(share, (want, _))| share < want)
    {
        for (share, (want, weight)) in shares.iter_mut().zip(clients) {
            if *share < *want && left > 0.0 {
                let more = (step * weight).min(*want - *share).min(left);
                *share += more;
                left -= more;
            }
        }
    }
    shares
}
