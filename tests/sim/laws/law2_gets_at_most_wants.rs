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
            let Some(resource) = world.resource(i) else {
                continue;
            };
            let before = member.own.capacity_max_before(now, world.held_up());
            let most = resource.capacity().max(before);
            if let Some(client) = resource.clients().find(|c| c.has > most) {
                return Err(format!("{client:?} has more than there is"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let members = world.sources().members.iter().enumerate();
        let resources = members.map(|(i, member)| (member.own.id.unit, world.resource(i)));
        let mut resources = resources.filter_map(|(unit, resource)| Some((unit, resource?)));
        resources.try_for_each(|(unit, resource)| check_settled(unit, resource))
    }
}

fn check_settled(unit: Unit, resource: &Resource) -> Result<(), String> {
    let wanted = Capacity::from_micros(u64::try_from(resource.sum_wants()).unwrap_or(u64::MAX));
    let spare = resource.capacity().saturating_sub(wanted);
    let headroom = resource.limit().headroom.of(spare);
    // Two in a hundred for what demand measurements differ between two refreshes; what is in flight
    // is measured by its peaks, and differs more.
    let (part, more) = match unit.is_concurrency() {
        true => (1.1, 3.0),
        false => (1.02, 1.0),
    };
    for client in resource.clients() {
        let most = client.wants.saturating_add(headroom).as_f64() * part + more;
        if client.has.as_f64() > most {
            return Err(format!("{client:?} has more than {most}"));
        }
    }
    Ok(())
}
