//! The laws for trees. What a process must keep it must keep below any coordinator; those laws are
//! the same as elsewhere.

use tollgate_sim::ClientView;

use crate::borrowing::Borrowing;
use crate::fleet::Fleet;

pub(super) mod law1_at_every_level;
pub(super) mod law3_and_4_down_the_tree;
pub(super) mod law5_no_longer_than_borrowed;
pub(super) mod law7_a_parent_that_is_away;

// === free functions ===

/// Returns the facts about a tree.
fn facts(fleet: &Fleet) -> &Borrowing {
    fleet.borrowing.as_ref().expect("a tree")
}

/// Returns the processes that ask at `coordinator`.
fn clients_at(fleet: &Fleet, coordinator: usize) -> impl Iterator<Item = ClientView<'_>> {
    let clients = fleet.clients_of(0);
    clients.filter(move |client| fleet.plan.coordinator_of(client.envoy) == coordinator)
}

/// Returns the coordinators right below `coordinator`.
fn below(fleet: &Fleet, coordinator: usize) -> impl Iterator<Item = usize> {
    let coordinators = fleet.simulation.coordinators().enumerate();
    coordinators
        .filter(move |(_, below)| below.parent() == Some(coordinator))
        .map(|(index, _)| index)
}

/// Returns the use of the root's capacity by the processes at `coordinator` and below it.
fn used_below(fleet: &Fleet, coordinator: usize) -> u128 {
    let clients = clients_at(fleet, coordinator);
    let lent = clients.filter(|client| !facts(fleet).is_safe(client.envoy));
    let own: u128 = lent
        .map(|client| u128::from(client.has().as_micros()))
        .sum();
    let below = below(fleet, coordinator).map(|child| used_below(fleet, child));
    own + below.sum::<u128>()
}
