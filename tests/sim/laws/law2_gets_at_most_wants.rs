//! Nobody gets more than it wants, except for the headroom that the limit grants.
//!
//! Looked at when everything has settled: until a client has said what it wants now, it gets
//! what it wanted before.

use tollgate_core::resource::Resource;
use tollgate_core::units::Capacity;

use super::Law;
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
            let most = books.capacity().max(member.own.capacity_max(now));
            if let Some(client) = books.clients().find(|c| c.has > most) {
                return Err(format!("{client:?} has more than there is"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let members = 0..world.sources().members.len();
        let mut books = members.filter_map(|member| world.books(member));
        books.try_for_each(check_settled)
    }
}

fn check_settled(books: &Resource) -> Result<(), String> {
    let wanted = Capacity::from_micros(u64::try_from(books.sum_wants()).unwrap_or(u64::MAX));
    let spare = books.capacity().saturating_sub(wanted);
    let headroom = books.limit().headroom.of(spare);
    // One in a hundred for what demand measurements differ between two refreshes.
    for client in books.clients() {
        let most = client.wants.saturating_add(headroom).as_f64() * 1.01 + 1.0;
        if client.has.as_f64() > most {
            return Err(format!("{client:?} has more than {most}"));
        }
    }
    Ok(())
}
