//! No client gets more than it wants, except for the headroom that the limit grants.
//!
//! Checked when everything has settled: a client gets its earlier wants until it has reported its
//! present ones.

use tollgate_core::lease::ClientRun;
use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::units::Capacity;

use super::Law;
use super::lasting::{Lasting, is_to_note};
use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Law2 {
    /// Clients that have more than they may.
    greedy: Lasting<ClientRun>,
}

// === impl Law2 ===

impl Law for Law2 {
    fn name(&self) -> &'static str {
        "law 2, gets at most wants"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let members = fleet.plan.history.members.iter().enumerate();
        for (i, member) in members {
            let Some(resource) = fleet.resource(i) else {
                continue;
            };
            let before = member.own.capacity_max(fleet.elapsed(), fleet.held_up());
            let most = resource.capacity().max(before);
            if let Some(client) = resource.clients().find(|c| c.has > most) {
                return Err(format!("{client:?} has more than there is"));
            }
        }
        if is_to_note(fleet) {
            let greedy = greedy(fleet).into_iter();
            let greedy = greedy.map(|(client, _)| key(&client));
            self.greedy.note(fleet.now(), &greedy.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        let is_wrong = |client: &ClientRecord<'_>| self.greedy.is_wrong(fleet, &key(client));
        match greedy(fleet)
            .into_iter()
            .find(|(client, _)| is_wrong(client))
        {
            Some((client, most)) => Err(format!("{client:?} has more than {most}")),
            None => Ok(()),
        }
    }
}

// === free functions ===

/// Returns the clients that have more than they want and the headroom, with the most that they may
/// have.
fn greedy(fleet: &Fleet) -> Vec<(ClientRecord<'_>, f64)> {
    let members = 0..fleet.plan.history.members.len();
    let resources = members.filter_map(|member| fleet.resource(member));
    resources
        .flat_map(|resource| greedy_of(fleet, resource))
        .collect()
}

fn greedy_of<'a>(fleet: &Fleet, resource: &'a Resource) -> Vec<(ClientRecord<'a>, f64)> {
    let wanted = Capacity::from_micros(u64::try_from(resource.sum_wants()).unwrap_or(u64::MAX));
    let spare = resource.capacity().saturating_sub(wanted);
    let headroom = resource.limit().headroom.of(spare);
    // Two in a hundred and one request for what demand measurements differ between two refreshes;
    // what is in flight is measured by its peaks, and differs more.
    let work = fleet.plan.work;
    let (part, more) = match work.unit().is_concurrency() {
        true => (1.1, 3.0),
        false => (1.02, work.usual() as f64),
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

fn key(client: &ClientRecord<'_>) -> ClientRun {
    ClientRun {
        id: client.id.clone(),
        run: client.run,
    }
}
