//! No client gets more than it wants, except for the headroom that the limit grants.
//!
//! Checked when everything has settled: a client gets its earlier wants until it has reported its
//! present ones.

use tollgate_core::lease::ClientRun;
use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::units::Capacity;

use crate::fleet::Fleet;

/// Returns the clients that have more than they want and the headroom.
pub(super) fn greedy(fleet: &Fleet) -> Vec<(ClientRun, String)> {
    let members = 0..fleet.plan.history.members.len();
    let resources = members.filter_map(|member| fleet.resource(member));
    let greedy = resources.flat_map(|resource| greedy_of(fleet, resource));
    let greedy = greedy.map(|(client, most)| {
        let run = ClientRun {
            id: client.id.clone(),
            run: client.run,
        };
        (run, format!("{client:?} has more than {most}"))
    });
    greedy.collect()
}

fn greedy_of<'a>(fleet: &Fleet, resource: &'a Resource) -> Vec<(ClientRecord<'a>, f64)> {
    let wanted = Capacity::from_micros(u64::try_from(resource.sum_wants()).unwrap_or(u64::MAX));
    let spare = resource.capacity().saturating_sub(wanted);
    let headroom = resource.limit().headroom.of(spare);
    // Two in a hundred and one request for what demand measurements differ between two refreshes;
    // what is in flight is measured by its peaks, and differs more.
    let work = fleet.plan.work;
    let (part, more) = if work.unit().is_concurrency() {
        (1.1, 3.0)
    } else {
        (1.02, work.usual() as f64)
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
