//! Clients of a resource in a snapshot.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::{ClientKey, Resource};
use crate::lease::{ClientId, ClientRun, Demand};
use crate::lease_server::ResourceSnapshot;
use crate::units::{Capacity, Instant, Tokens};

/// State of one client of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSnapshot {
    /// The client and its run.
    pub client: ClientRun,
    /// Sequence of its latest request.
    pub sequence: u64,
    /// Wants of that request, as far as they count.
    pub demand: Demand,
    /// Lease that was granted last.
    pub granted: LeaseSnapshot,
    /// Time since that grant.
    pub granted_ago: Duration,
    /// Its max-rate, if that is the algorithm and there has been a round.
    pub max_rate: Option<Capacity>,
    /// Grant fingerprint of that lease, see
    /// [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub fingerprint: u64,
    /// A larger or longer lease that it may still be using instead.
    pub prior: Option<LeaseSnapshot>,
    /// Its presence.
    pub presence: PresenceSnapshot,
    /// Time for which it has got less than it wants at each refresh; none if it got as much at the
    /// last one.
    pub throttled_for: Option<Duration>,
    /// Its draws of the fleet's bucket.
    pub draws: ClientDraws,
}

/// Draws of one client of the fleet's bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientDraws {
    /// The account that the numbers are of.
    pub account: u64,
    /// Whether it may draw, by its last request.
    pub is_offered: bool,
    /// Tokens that were ever granted to it.
    pub granted: Tokens,
    /// The part of these that it may not have spent.
    pub holds: Tokens,
    /// Capacity that it may use while it is cut off.
    pub standby: Capacity,
}

/// Presence of a client in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceSnapshot {
    /// Time after which its next refresh is missed.
    pub missed_in: Duration,
    /// Whether its wants do not count until it asks again.
    pub silent: bool,
    /// Whether it is known that its refresh is missed.
    pub missed: bool,
    /// Time since its latest request.
    pub asked_ago: Duration,
    /// Time for which it is young, from its latest request on.
    pub young_for: Duration,
}

/// Lease in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// Capacity of the lease.
    pub capacity: Capacity,
    /// Time that is left of it.
    pub remaining: Duration,
}

// === impl Resource ===

impl Resource {
    /// Returns the state of each client.
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

    /// Returns the state of `client`, if it has a lease or waits for one.
    pub fn client_snapshot(&self, now: Instant, client: &ClientRun) -> Option<ClientSnapshot> {
        let entry = self.clients.get(&ClientKey::new(client))?;
        Some(entry.snapshot(now, client.clone()))
    }

    /// Has the next request of each client decided, however early it comes, because what could be lent
    /// when the client was answered says nothing of what can be lent now. Nor is a lease told again
    /// that has not aged on the way of a snapshot.
    pub(crate) fn decide_anew(&mut self) {
        for entry in self.clients.values_mut() {
            entry.decide_anew();
        }
    }

    /// Restores a resource from its clients; an error names a client that is there twice.
    pub(crate) fn restore(now: Instant, snapshot: &ResourceSnapshot) -> Result<Self, ClientId> {
        let learning_until = now.saturating_add(snapshot.learning);
        let mut resource = Self::new(snapshot.id.unit, snapshot.limit.clone(), learning_until);
        resource.allocation.crowded_until = now.saturating_add(snapshot.crowded);
        resource.allocation.balance_at = now.saturating_add(snapshot.balance);
        let bucket = snapshot.bucket.as_ref();
        resource
            .allocation
            .fleet
            .restore(now, bucket, &snapshot.quotas);
        // The first refresh tells until when the coordinator as a whole learns.
        resource.allocation.collect_from = now;
        resource.allocation.collect_until = now;
        for snapshot in &snapshot.clients {
            let key = ClientKey::new(&snapshot.client);
            if resource.clients.contains_key(&key) {
                return Err(key.id);
            }
            let entry = resource.allocation.restore(now, key.tie_break(), snapshot);
            resource.allocation.is_drawn |= snapshot.draws.is_offered;
            resource.allocation.fleet.is_drawn |= snapshot.draws.is_offered;
            resource.expiries.insert(entry.queued_at, key.clone());
            resource.clients.insert(key, Box::new(entry));
        }
        resource.watch_all();
        resource.allocation.fill(now);
        Ok(resource)
    }
}
