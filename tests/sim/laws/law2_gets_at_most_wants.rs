//! No client gets more than it wants, except for the headroom that the limit grants.
//!
//! Checked when everything has settled: a client gets its earlier wants until it has reported its
//! present ones.

use tollgate_core::lease::Unit;
use tollgate_core::resource::Resource;
use tollgate_core::units::Capacity;

use super::{Fleet as _, Law};
use crate::world::World;

pub(crate) struct Law2;

impl Law for Law2 {
    fn name(&self) -> &'static str {
        "law 2, gets at most wants"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let (members, now) = (&world.sources().members, world.now());
        for (i, member) in members.iter().enumerate() {
            let Some(books) = world.books(i) else {
                continue;
            };
            let before = member.own.capacity_max_before(now, world.held_up());
            let most = books.capacity().max(before);
            if let Some(client) = books.clients().find(|c| c.has > most) {
                return Err(format!("{client:?} has more than there is"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let members = world.sources().members.iter().enumerate();
        let books = members.map(|(i, member)| (member.own.id.unit, world.books(i)));
        let mut books = books.filter_map(|(unit, books)| Some((unit, books?)));
        books.try_for_each(|(unit, books)| check_settled(unit, books))
    }
}

fn check_settled(unit: Unit, books: &Resource) -> Result<(), String> {
    let wanted = Capacity::from_micros(u64::try_from(books.sum_wants()).unwrap_or(u64::MAX));
    let spare = books.capacity().saturating_sub(wanted);
    let headroom = books.limit().headroom.of(spare);
    // Two in a hundred for what demand measurements differ between two refreshes; what is in flight
    // is measured by its peaks, and differs more.
    let (part, more) = match unit.is_concurrency() {
        true => (1.1, 3.0),
        false => (1.02, 1.0),
    };
    for client in books.clients() {
        let most = client.wants.saturating_add(headroom).as_f64() * part + more;
        if client.has.as_f64() > most {
            return Err(format!("{client:?} has more than {most}"));
        }
    }
    Ok(())
}
