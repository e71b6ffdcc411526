//! All processes together admit no more than the burst of the limit and what its capacity earns, in
//! any window: of the one scope, or of a pool that all scopes are members of all the time. The part of the burst that a process has with its first lease comes on top.
//!
//! For requests alone, where nothing passes without a lease, but for standby capacity and credit of processes that
//! draw and are cut off: that comes on top. A lowered capacity may be exceeded for one lease.

use std::collections::BTreeMap;

use tollgate_core::client::{LeaseState, Mode};
use tollgate_core::lease::Unit;
use tollgate_core::units::Instant;
use tollgate_sim::{ClientKey, ClientView, tokens};

use super::Law;
use crate::fleet::Fleet;

#[derive(Default)]
pub(crate) struct Law6 {
    /// Tokens of a process's first burst that it has not spent; none before its first lease.
    first: BTreeMap<ClientKey, Option<f64>>,
    /// Tokens above what the capacity has worn off.
    level: f64,
    at: Instant,
    /// The largest burst so far, and what the processes that have ever run may hold in caches.
    burst: f64,
    cached: f64,
}

impl Law for Law6 {
    fn name(&self) -> &'static str {
        "law 6, the fleet admits what there is"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let history = &fleet.plan.history;
        let Some(limit) = history.shared_by_all() else {
            return Ok(());
        };
        if fleet.plan.work.unit() != Unit::Requests {
            return Ok(());
        }
        let capacity = limit
            .capacity_max(fleet.elapsed(), fleet.held_up())
            .as_f64();
        let passed = fleet.now().saturating_since(self.at).as_secs_f64();
        self.level = (self.level - capacity * passed).max(0.0);
        self.at = fleet.now();
        let burst = limit.limit(fleet.elapsed()).burst;
        self.burst = self.burst.max(tokens(burst));
        for client in fleet.simulation.touched_clients() {
            if client.policy().no_lease != Mode::Pessimistic {
                return Ok(());
            }
            self.add(&client, capacity);
        }
        if self.level <= self.burst + self.cached + 1e-3 {
            Ok(())
        } else {
            Err(format!(
                "{} were admitted beyond the capacity, at most {} and {} in caches",
                self.level, self.burst, self.cached
            ))
        }
    }
}

impl Law6 {
    /// Adds what a process has admitted since the last event.
    fn add(&mut self, client: &ClientView<'_>, capacity: f64) {
        let workers = client.workers() as f64;
        let first = self.first.entry(client.key()).or_insert_with(|| {
            // A burst of one token at least, and the caches.
            self.cached += 1.0 + workers * (1.0 + capacity * 0.005);
            None
        });
        if first.is_none() && client.state() == LeaseState::Leased {
            let (_, burst) = client.flow();
            *first = Some(burst);
        }
        if client.state() == LeaseState::NoLease {
            return;
        }
        let admitted = client.spent().admitted as f64;
        let spent = first.map_or(0.0, |left| left.min(admitted));
        *first = first.map(|left| left - spent);
        self.level += admitted - spent;
    }
}
