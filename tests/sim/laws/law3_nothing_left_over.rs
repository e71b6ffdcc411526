//! When demand is stable, every client has its wants, or the capacity is fully leased: its own or
//! the pool's, each without its reserve. Algorithms that go by usage promise it only where all that
//! is wanted fits. Who draws each token has no lease; what it wants is left in the fleet's bucket.

use tollgate_sim::{ClientKey, ClientView};

use super::has;
use crate::fleet::Fleet;

/// Demand per second up to which its measure sways by as much as one.
const SLOW: f64 = 10.0;

/// Returns the processes that want more although capacity is unused.
pub(super) fn wanting(fleet: &Fleet) -> Vec<(ClientKey, String)> {
    let all = fleet.simulation.clients();
    let all: Vec<_> = all.map(|client| (client.wants(), has(&client))).collect();
    let unsatisfied = unsatisfied(fleet).into_iter().map(|client| {
        let (name, wants, has) = (client.name, client.wants(), has(&client));
        let how = format!("{name} wants {wants} and has {has}, but not all is used: {all:?}");
        (client.key(), how)
    });
    unsatisfied.collect()
}

fn unsatisfied(fleet: &Fleet) -> Vec<ClientView<'_>> {
    let (now, history) = (fleet.elapsed(), &fleet.plan.history);
    let usual = fleet.plan.work.usual();
    let used = |member: usize| {
        fleet
            .clients_of(member)
            .map(|client| {
                if client.only_draws() {
                    client.wants()
                } else {
                    has(&client)
                }
            })
            .sum::<f64>()
    };
    let members = history.members.iter().enumerate();
    let attached = members.filter(|(_, member)| member.is_attached(now));
    let pooled: f64 = attached.map(|(i, _)| used(i)).sum();
    // Less than one permit for each of five cannot be lent.
    let is_concurrency = fleet.plan.work.unit().is_concurrency();
    let whole = if is_concurrency { 5.0 } else { 0.1 };
    let whole = whole
        + fleet
            .simulation
            .clients()
            .map(|client| sway(client, usual))
            .sum::<f64>();
    let spent = |used: f64, capacity: f64| used >= capacity * 0.99 - whole;
    let pool = history.pool.as_ref();
    let pool_spent = pool.is_some_and(|pool| spent(pooled, pool.divided(now)));
    let mut unsatisfied = Vec::new();
    for (i, member) in history.members.iter().enumerate() {
        let (attached, divided) = (member.is_attached(now), member.own.divided(now));
        if spent(used(i), divided) || attached && pool_spent {
            continue;
        }
        let wants: f64 = fleet.clients_of(i).map(|client| client.wants()).sum();
        let fits = !attached && wants < divided * 0.95 - 1.0;
        if member.own.limit(now).algorithm.goes_by_usage() && !fits {
            continue;
        }
        // A demand of a few in a second is measured coarsely, hence the one; and bytes more so.
        let part = if usual > 1 { 0.96 } else { 0.99 };
        let more = |client: &ClientView<'_>| {
            !client.only_draws() && has(client) + (usual as f64) < client.wants() * part
        };
        unsatisfied.extend(fleet.clients_of(i).filter(more));
    }
    unsatisfied
}

/// Returns by how much the wants of a process may differ from one refresh to the next: a demand of a
/// few in a second is measured coarsely, and what it has left the others get only then.
fn sway(client: ClientView<'_>, usual: u64) -> f64 {
    match client.demand() {
        demand if demand > 0.0 && demand <= SLOW => usual as f64,
        _ => 0.0,
    }
}
