//! The books of a resource, line by line, for whoever goes on with them.

use alloc::vec::Vec;
use core::time::Duration;

use super::{ClientKey, Resource};
use crate::lease::{ClientId, ClientRun, Demand, Unit};
use crate::limit::Limit;
use crate::units::{Capacity, Instant};

/// All that the books know of one client of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSnapshot {
    /// The client and its run.
    pub client: ClientRun,
    /// Of its latest request.
    pub sequence: u64,
    /// What it last wanted, as far as that counts.
    pub demand: Demand,
    /// What it was granted last.
    pub granted: LeaseSnapshot,
    /// How long ago that was.
    pub granted_ago: Duration,
    /// On what that rests, see [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub fingerprint: u64,
    /// A larger or longer lease that it may still be using instead.
    pub prior: Option<LeaseSnapshot>,
}

/// Capacity that somebody has, for as long as remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// How much.
    pub capacity: Capacity,
    /// How long still.
    pub remaining: Duration,
}

// === impl Resource ===

impl Resource {
    /// What the books say of each client.
    pub(crate) fn client_snapshots(&self, now: Instant) -> Vec<ClientSnapshot> {
        let clients = self.clients.iter();
        clients
            .map(|(key, entry)| {
                let id = key.id.clone();
                let run = key.run(entry);
                entry.snapshot(now, ClientRun { id, run })
            })
            .collect()
    }

    /// The books that `lines` tell of; else the client that has two of them.
    pub(crate) fn restore(
        now: Instant,
        unit: Unit,
        limit: Limit,
        learning: Duration,
        client_snapshots: &[ClientSnapshot],
    ) -> Result<Self, ClientId> {
        let mut resource = Self::new(unit, limit, now.saturating_add(learning));
        // The first refresh tells until when the coordinator as a whole learns.
        resource.collect_until(now);
        for snapshot in client_snapshots {
            let key = ClientKey::new(&snapshot.client);
            if resource.clients.contains_key(&key) {
                return Err(key.id);
            }
            let entry = resource.allocation.restore(now, key.tie_break(), snapshot);
            resource.expiries.insert(entry.queued_at, key.clone());
            resource.clients.insert(key, entry);
        }
        Ok(resource)
    }

    /// Until when no more than shares is confirmed while it learns.
    pub(crate) fn crowded_until(&self) -> Instant {
        self.allocation.crowded_until()
    }

    pub(crate) fn set_crowded_until(&mut self, until: Instant) {
        self.allocation.set_crowded_until(until);
    }
}
