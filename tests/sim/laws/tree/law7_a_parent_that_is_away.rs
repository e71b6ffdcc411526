//! A coordinator whose parent is away lends its lease until that ends, and then the safe capacity:
//! no more than that for each client, and no less for long. A coordinator below that has taken a
//! snapshot over claims its leases of safe capacity, which have not aged during the transfer, until
//! they end.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::Instant;
use tollgate_sim::ClientKey;

use super::super::Law;
use super::facts;
use crate::fleet::Fleet;

/// Time after which every client must have noticed: the longest back-off, and refreshes.
const NOTICED: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Law7 {
    /// Time since which a process has had less than its safe capacity.
    short: BTreeMap<ClientKey, Instant>,
}

// === impl Law7 ===

impl Law for Law7 {
    fn name(&self) -> &'static str {
        "law 7, a parent that is away makes nobody unlimited or dead"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let (now, facts) = (fleet.now(), facts(fleet));
        let id = &fleet.plan.history.members[0].own.id;
        for (i, place) in facts.places().iter().enumerate().skip(1) {
            let coordinator = fleet.simulation.coordinator(i);
            let master = coordinator.and_then(|coordinator| coordinator.master(&id.scope));
            let resource = master.and_then(|master| master.resource(id));
            let (Some(since), Some(resource)) = (place.safe_since, resource) else {
                continue;
            };
            let safe = place.safe().unwrap_or_default().as_micros();
            let lease = place.limit.lease;
            let long = now.saturating_since(since);
            let most = u128::from(safe) * u128::from(facts.started());
            let sum = facts.lent_at(now, i);
            if long >= lease && sum > most && !claimed_anew(fleet, i) {
                let name = &fleet.plan.scenario.coordinators[i].name;
                return Err(format!("{name} lends {sum} millionths for {safe} each"));
            }
            if long >= lease + NOTICED {
                self.alive(fleet, i, resource.subclients())?;
            }
        }
        Ok(())
    }
}

impl Law7 {
    /// Checks that every client has its safe capacity, if it wants it. Wants that have just grown are
    /// told within a lease, and within another one the other clients have given back.
    fn alive(&mut self, fleet: &Fleet, i: usize, count: u64) -> Result<(), String> {
        let now = fleet.now();
        let place = facts(fleet).place(i);
        let own = place.limit.capacity;
        let each = place.reported_whole.min(own).divided_by(count.max(1));
        let safe = place.safe().unwrap_or_default().min(each);
        let usual = fleet.plan.work.usual() as f64;
        for client in facts(fleet).clients_at(&fleet.simulation, i) {
            let cut = fleet.plan.cut_until(client.envoy, fleet.elapsed());
            let is_heard = fleet.elapsed() >= cut + NOTICED;
            let known = client.state() == LeaseState::Leased && is_heard;
            let due = client.wants().min(safe.as_f64());
            let has = client.has().as_f64();
            if !known || has >= due * 0.9 - 2.0 * usual {
                self.short.remove(&client.key());
                continue;
            }
            let since = *self.short.entry(client.key()).or_insert(now);
            if now.saturating_since(since) >= place.limit.lease * 2 {
                let coordinator = &fleet.plan.scenario.coordinators[i].name;
                let name = client.name;
                return Err(format!(
                    "{name} has {has} of {coordinator} alone, not {due}"
                ));
            }
        }
        Ok(())
    }
}

// === free functions ===

/// Returns whether a coordinator below the one at `parent` may claim leases of a snapshot.
fn claimed_anew(fleet: &Fleet, parent: usize) -> bool {
    let mut handed_over = fleet.plan.handed_over();
    handed_over.any(|coordinator| {
        let place = fleet.simulation.coordinator(coordinator);
        let is_below = place.is_some_and(|place| place.parent() == Some(parent));
        is_below && facts(fleet).claims_safe(fleet.now(), coordinator)
    })
}
