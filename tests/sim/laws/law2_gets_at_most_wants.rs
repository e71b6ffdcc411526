//! No client gets more than it wants, except for the headroom that the limit grants.
//!
//! Checked when everything has settled: a client gets its earlier wants until it has reported its
//! present ones.

use tollgate_core::lease::{Run, Unit};
use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::units::Capacity;

use super::lasting::{Lasting, is_to_note};
use super::{Fleet as _, Law};
use crate::world::World;

#[derive(Default)]
pub(crate) struct Law2 {
    /// Clients that have more than they may.
    greedy: Lasting,
}

impl Law for Law2 {
    fn name(&self) -> &'static str {
        "law 2, gets at most wants"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let (members, now) = (&world.sources().members, world.now());
        for (i, member) in members.iter().enumerate() {
            let Some(resource) = world.resource(i) else {
                continue;
            };
            let before = member.own.capacity_max_before(now, world.held_up());
            let most = resource.capacity().max(before);
            if let Some(client) = resource.clients().find(|c| c.has > most) {
                return Err(format!("{client:?} has more than there is"));
            }
        }
        if is_to_note(world) {
            let greedy = greedy(world).into_iter();
            let greedy = greedy.map(|(client, _)| incarnation(&client));
            self.greedy.note(now, &greedy.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let mut greedy = greedy(world).into_iter();
        match greedy.find(|(client, _)| self.greedy.is_wrong(world, incarnation(client))) {
            Some((client, most)) => Err(format!("{client:?} has more than {most}")),
            None => Ok(()),
        }
    }
}

/// Returns the clients that have more than they want and the headroom, with the most that they may
/// have.
fn greedy(world: &World) -> Vec<(ClientRecord<'_>, f64)> {
    let members = world.sources().members.iter().enumerate();
    let resources = members.map(|(i, member)| (member.own.id.unit, world.resource(i)));
    let resources = resources.filter_map(|(unit, resource)| Some((unit, resource?)));
    let usual = world.scenario().work.usual();
    let greedy = resources.flat_map(|(unit, resource)| greedy_of((unit, usual), resource));
    greedy.collect()
}

/// Looks at a resource whose requests each usually count for so many tokens of the unit.
fn greedy_of((unit, usual): (Unit, u64), resource: &Resource) -> Vec<(ClientRecord<'_>, f64)> {
    let wanted = Capacity::from_micros(u64::try_from(resource.sum_wants()).unwrap_or(u64::MAX));
    let spare = resource.capacity().saturating_sub(wanted);
    let headroom = resource.limit().headroom.of(spare);
    // Two in a hundred and one request for what demand measurements differ between two refreshes;
    // what is in flight is measured by its peaks, and differs more.
    let (part, more) = match unit.is_concurrency() {
        true => (1.1, 3.0),
        false => (1.02, usual as f64),
    };
    let most =
        |client: &ClientRecord<'_>| client.wants.saturating_add(headroom).as_f64() * part + more;
    let clients = resource.clients().map(|client| {
        let most = most(&client);
        (client, most)
    });
    clients
        .filter(|(client, most)| client.has.as_f64() > *most)
        .collect()
}

/// Returns the number of the process that `client` is.
fn incarnation(client: &ClientRecord<'_>) -> u64 {
    match client.run {
        Run::Incarnation(incarnation) => incarnation.get(),
        _ => 0,
    }
}
