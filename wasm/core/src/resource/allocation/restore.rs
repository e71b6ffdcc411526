//! A client's line, written down for the next master and read again.

use super::{Allocation, ClientEntry, CountedLease, TieBreak};
use crate::lease::{ClientRun, Demand, NO_FINGERPRINT};
use crate::resource::{ClientSnapshot, LeaseSnapshot};
use crate::units::{Capacity, Instant};

// === impl ClientEntry ===

impl ClientEntry {
    /// The line of `client` as it is told to the next master.
    pub(in crate::resource) fn snapshot(&self, now: Instant, client: ClientRun) -> ClientSnapshot {
        let bands: alloc::vec::Vec<_> = self.handles.bands().collect();
        // A place has one spot at least, and each priority once.
        let demand = Demand::try_from_bands(&bands);
        ClientSnapshot {
            client,
            sequence: self.sequence,
            demand: demand.unwrap_or(Demand::of(Capacity::ZERO)),
            granted: self.granted.lent(now),
            granted_ago: now.saturating_since(self.granted_at),
            fingerprint: self.fingerprint,
            prior: self.prior.map(|prior| prior.lent(now)),
        }
    }
}

// === impl CountedLease ===

impl CountedLease {
    fn lent(self, now: Instant) -> LeaseSnapshot {
        LeaseSnapshot {
            capacity: self.capacity,
            remaining: self.expiry.saturating_since(now),
        }
    }

    fn of(now: Instant, lent: LeaseSnapshot) -> Self {
        Self {
            capacity: lent.capacity,
            expiry: now.saturating_add(lent.remaining),
        }
    }
}

// === impl Allocation ===

impl Allocation {
    /// The entry that `line` tells of. What it says was lent counts, whatever the limit.
    pub(in crate::resource) fn restore(
        &mut self,
        now: Instant,
        tie_break: TieBreak,
        snapshot: &ClientSnapshot,
    ) -> ClientEntry {
        let granted = CountedLease::of(now, snapshot.granted);
        let mut entry = ClientEntry {
            // What each may want at most has been heeded when it asked.
            handles: self
                .shares
                .insert(tie_break, &snapshot.demand, Capacity::UNLIMITED),
            term: snapshot.client.run.term(),
            sequence: snapshot.sequence,
            granted,
            granted_at: now.saturating_sub(snapshot.granted_ago),
            told: None,
            fingerprint: snapshot.fingerprint.max(NO_FINGERPRINT),
            prior: snapshot.prior.map(|prior| CountedLease::of(now, prior)),
            queued_at: granted.expiry,
        };
        entry.queued_at = entry.next_expiry();
        self.replace_sum(Capacity::ZERO, entry.has());
        entry
    }
}
