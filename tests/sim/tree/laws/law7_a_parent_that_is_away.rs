//! A coordinator whose parent is away lends its lease until that ends, and then the safe capacity:
//! no more than that for each client, and no less for long. A coordinator below that has taken a
//! snapshot over claims its leases of safe capacity, which have not aged during the transfer, until
//! they end.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::client::LeaseState;
use tollgate_core::units::Instant;

use crate::laws::{Fleet as _, Law};
use crate::tree::World;
use crate::tree::coordinator::Coordinator;
use crate::tree::scenario::Fault;

/// Time after which every client must have noticed: the longest back-off, and refreshes.
const NOTICED: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Law7 {
    /// Time since which a process has had less than its safe capacity, by incarnation.
    short: BTreeMap<u64, Instant>,
}

impl Law<World> for Law7 {
    fn name(&self) -> &'static str {
        "law 7, a parent that is away makes nobody unlimited or dead"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        for (i, coordinator) in world.coordinators().iter().enumerate().skip(1) {
            let (Some(since), Some(node)) = (coordinator.safe_since, &coordinator.node) else {
                continue;
            };
            let safe = coordinator.safe().unwrap_or_default().as_micros();
            let lease = coordinator.spec.limit.lease;
            let long = now.saturating_since(since);
            let Some(resource) = node.resource(world.resource()) else {
                continue;
            };
            let most = u128::from(safe) * u128::from(world.started());
            let sum = world.lent_at(i);
            if long >= lease && sum > most && !claimed_anew(world, i) {
                let id = coordinator.id.as_str();
                return Err(format!("{id} lends {sum} millionths for {safe} each"));
            }
            if long >= lease + NOTICED {
                self.alive(world, i, coordinator, resource.subclients())?;
            }
        }
        Ok(())
    }
}

// === impl Law7 ===

impl Law7 {
    /// Checks that every client has its safe capacity, if it wants it. Wants that have just grown are
    /// told within a lease, and within another one the other clients have given back.
    fn alive(
        &mut self,
        world: &World,
        i: usize,
        coordinator: &Coordinator,
        count: u64,
    ) -> Result<(), String> {
        let now = world.now();
        let own = coordinator.spec.limit.capacity;
        let each = coordinator.said_whole.min(own).divided_by(count.max(1));
        let safe = coordinator.safe().unwrap_or_default().min(each);
        for (p, _) in world.processes_at(i) {
            let cut = p.deaf_until.max(p.mute_until).saturating_add(NOTICED);
            let known = p.state(now) == LeaseState::Leased && now >= cut;
            let due = p.wants(now).min(safe.as_f64());
            let has = p.has(now).as_f64();
            if !known || has >= due * 0.9 - 2.0 * p.work().usual() as f64 {
                self.short.remove(&p.incarnation);
                continue;
            }
            let since = *self.short.entry(p.incarnation).or_insert(now);
            if now.saturating_since(since) >= coordinator.spec.limit.lease * 2 {
                let (id, coordinator) = (p.id.as_str(), coordinator.id.as_str());
                return Err(format!("{id} has {has} of {coordinator} alone, not {due}"));
            }
        }
        Ok(())
    }
}

// === free functions ===

/// Returns whether a coordinator below the one at `parent` may claim leases of a snapshot.
fn claimed_anew(world: &World, parent: usize) -> bool {
    world
        .scenario()
        .faults
        .iter()
        .any(|(_, fault)| match fault {
            Fault::HandOver { coordinator, .. } => {
                world.coordinators()[*coordinator].spec.parent == Some(parent)
                    && world.claims_safe(*coordinator)
            }
            _ => false,
        })
}
