//! The books of a resource, line by line, for whoever goes on with them.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::{ClientKey, Resource};
use crate::lease::{ClientId, ClientRun, Demand, Unit};
use crate::limit::Limit;
use crate::units::{Capacity, Instant};

/// All that the books know of one client of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The client and its run.
    pub client: ClientRun,
    /// Of its latest request.
    pub sequence: u64,
    /// What it last wanted, as far as that counts.
    pub demand: Demand,
    /// What it was granted last.
    pub granted: Lent,
    /// How long ago that was.
    pub granted_ago: Duration,
    /// On what that rests, see [`LeaseTerms::basis`](crate::lease::LeaseTerms::basis).
    pub basis: u64,
    /// A larger or longer lease that it may still be using instead.
    pub prior: Option<Lent>,
}

/// Capacity that somebody has, for as long as remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// How much.
    pub capacity: Capacity,
    /// How long still.
    pub remaining: Duration,
}

// === impl Resource ===

impl Resource {
    /// What the books say of each client.
    pub(crate) fn lines(&self, now: Instant) -> Vec<Line> {
        let clients = self.clients.iter();
        clients
            .map(|(key, entry)| {
                let id = key.id.clone();
                let run = key.run(entry);
                entry.line(now, ClientRun { id, run })
            })
            .collect()
    }

    /// The books that `lines` tell of; else the client that has two of them.
    pub(crate) fn restore(
        now: Instant,
        unit: Unit,
        limit: Limit,
        learning: Duration,
        lines: &[Line],
    ) -> Result<Self, ClientId> {
        let mut resource = Self::new(unit, limit, now.saturating_add(learning));
        // The first refresh tells until when the coordinator as a whole learns.
        resource.collect_until(now);
        for line in lines {
            let key = ClientKey::new(&line.client);
            if resource.clients.contains_key(&key) {
                return Err(key.id);
            }
            let entry = resource.division.restore(now, key.rank(), line);
            resource.expiries.insert((entry.queued_at, key.clone()));
            resource.clients.insert(key, entry);
        }
        Ok(resource)
    }

    /// Until when no more than shares is confirmed while it learns.
    pub(crate) fn crowded_until(&self) -> Instant {
        self.division.crowded_until()
    }

    pub(crate) fn set_crowded_until(&mut self, until: Instant) {
        self.division.set_crowded_until(until);
    }

    /// How much it counts in its pool, if it is a member of one.
    pub(crate) fn weight(&self) -> Option<NonZeroU32> {
        self.division.weight()
    }
}
