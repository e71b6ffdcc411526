//! States that laws tolerate for a while at the end of a run, because the demand is not steady.
//!
//! Concurrency is measured by its peaks, and a brief demand is over before the coordinator hears of
//! it. A process that is asked for so little that its lease is given back between two requests comes
//! and goes, and each time the shares of the others change. Requests that wait are counted anew as
//! long as they do: where one waits and few come, wants are a multiple of the demand for that time.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_sim::ClientView;

use crate::fleet::Fleet;
use crate::plan::Work;

/// Demand per second that a single request adds a good part to.
const SLOW: f64 = 2.0;
/// Time for which such a state may last.
const BRIEFLY: Duration = Duration::from_secs(3);

/// Clients in a state that may not last, with the times since when.
pub(super) struct Lasting<K>(BTreeMap<K, Instant>);

// === impl Lasting ===

impl<K> Default for Lasting<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Lasting<K> {
    /// Takes the clients that are in the state now.
    pub(super) fn note(&mut self, now: Instant, keys: &[K]) {
        self.0.retain(|known, _| keys.contains(known));
        for key in keys {
            self.0.entry(key.clone()).or_insert(now);
        }
    }

    /// Returns whether a client that is in the state now has been so for too long, or may not be in it
    /// at all.
    pub(super) fn is_wrong(&self, fleet: &Fleet, key: &K) -> bool {
        let since = self.0.get(key);
        let long = |since: &Instant| fleet.now().saturating_since(*since) >= BRIEFLY;
        !is_unsteady(fleet) || since.is_some_and(long)
    }
}

// === free functions ===

/// Returns whether processes in the state have to be noted now.
pub(super) fn is_to_note(fleet: &Fleet) -> bool {
    fleet.left() <= 2 * BRIEFLY && is_unsteady(fleet)
}

fn is_unsteady(fleet: &Fleet) -> bool {
    let is_sudden = |client: ClientView<'_>| match fleet.plan.work {
        Work::Waiting { .. } => client.demand() > 0.0 && client.demand() <= SLOW,
        _ => comes_and_goes(client),
    };
    fleet.plan.work.unit().is_concurrency() || fleet.simulation.clients().any(is_sudden)
}

fn comes_and_goes(client: ClientView<'_>) -> bool {
    let idle_after = client.policy().idle_after.as_secs_f64();
    client.demand() > 0.0 && client.demand() * idle_after <= 1.0
}
