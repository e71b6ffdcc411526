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

use super::Law;
use crate::fleet::Fleet;
use crate::plan::Work;

/// Demand per second that a single request adds a good part to.
const SLOW: f64 = 2.0;
/// Time for which such a state may last.
const BRIEFLY: Duration = Duration::from_secs(3);

/// Law that no client is in a certain state at the end, or for long where the demand is not steady.
pub(super) struct Lasting<K> {
    name: &'static str,
    /// Clients that are in the state now, in words.
    wrong: fn(&Fleet) -> Vec<(K, String)>,
    /// Time between two looks.
    every: Duration,
    looked_at: Instant,
    /// Times since when clients are in the state.
    since: BTreeMap<K, Instant>,
}

// === impl Lasting ===

impl<K: Ord> Lasting<K> {
    pub(super) fn new(
        name: &'static str,
        every: Duration,
        wrong: fn(&Fleet) -> Vec<(K, String)>,
    ) -> Self {
        Self {
            name,
            wrong,
            every,
            looked_at: Instant::ZERO,
            since: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Law for Lasting<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let now = fleet.now();
        let is_due = now.saturating_since(self.looked_at) >= self.every;
        if is_due && fleet.left() <= 2 * BRIEFLY && is_unsteady(fleet) {
            self.looked_at = now;
            let mut before = std::mem::take(&mut self.since);
            let wrong = (self.wrong)(fleet).into_iter();
            self.since = wrong
                .map(|(key, _)| {
                    let since = before.remove(&key).unwrap_or(now);
                    (key, since)
                })
                .collect();
        }
        Ok(())
    }

    fn finish(&mut self, fleet: &Fleet) -> Result<(), String> {
        let is_unsteady = is_unsteady(fleet);
        let is_long = |since: &Instant| fleet.now().saturating_since(*since) >= BRIEFLY;
        let is_wrong = |key: &K| !is_unsteady || self.since.get(key).is_some_and(is_long);
        let mut wrong = (self.wrong)(fleet).into_iter();
        match wrong.find(|(key, _)| is_wrong(key)) {
            Some((_, how)) => Err(how),
            None => Ok(()),
        }
    }
}

// === free functions ===

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
