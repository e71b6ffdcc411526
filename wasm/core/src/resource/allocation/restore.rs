//! A client's entry, written into a snapshot and read again.

use super::{Allocation, ClientEntry, CountedLease, EntryTotals, Presence, TieBreak};
use crate::lease::{ClientRun, Demand, NO_FINGERPRINT};
use crate::resource::{ClientSnapshot, LeaseSnapshot, ThrottledSince};
use crate::traffic::Tally;
use crate::units::{Capacity, Instant, Tokens};

// === impl ClientEntry ===

impl ClientEntry {
    /// The state of `client` for the snapshot.
    pub(in crate::resource) fn snapshot(&self, now: Instant, client: ClientRun) -> ClientSnapshot {
        let bands: alloc::vec::Vec<_> = self.handles.bands().collect();
        // There is one handle at least, and each priority once.
        let demand = Demand::try_from_bands(&bands);
        ClientSnapshot {
            client,
            sequence: self.sequence,
            demand: demand.unwrap_or(Demand::of(Capacity::ZERO)),
            granted: self.granted.lent(now),
            granted_ago: now.saturating_since(self.granted_at),
            max_rate: self.max_rate,
            fingerprint: self.fingerprint,
            prior: self.prior.map(|prior| prior.lent(now)),
            presence: self.presence.snapshot(now),
            throttled_for: self.throttled_since.map(|since| since.elapsed(now)),
            draws: self.draws,
        }
    }

    /// Has the next request decided, however early it comes.
    pub(in crate::resource) fn decide_anew(&mut self) {
        self.granted_pending = true;
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
        Self::new(lent.capacity, now.saturating_add(lent.remaining))
    }
}

// === impl Allocation ===

impl Allocation {
    /// Restores an entry. Its leases count, whatever the limit.
    pub(in crate::resource) fn restore(
        &mut self,
        now: Instant,
        tie_break: TieBreak,
        snapshot: &ClientSnapshot,
    ) -> ClientEntry {
        let granted = CountedLease::of(now, snapshot.granted);
        let mut entry = ClientEntry {
            // The most that each may want was heeded when it asked.
            handles: self
                .shares
                .insert(tie_break, &snapshot.demand, Capacity::UNLIMITED),
            term: snapshot.client.run.term(),
            sequence: snapshot.sequence,
            draws: snapshot.draws,
            gives_back: false,
            excess: (Tokens::ZERO, now),
            served_at: Instant::ZERO,
            tally: Tally::default(),
            granted,
            granted_at: now.saturating_sub(snapshot.granted_ago),
            granted_pending: false,
            max_rate: snapshot.max_rate,
            told: None,
            fingerprint: snapshot.fingerprint.max(NO_FINGERPRINT),
            prior: snapshot.prior.map(|prior| CountedLease::of(now, prior)),
            presence: Presence::of(now, &snapshot.presence),
            throttled_since: snapshot
                .throttled_for
                .map(|time| ThrottledSince::ago(now, time)),
            nudged_at: None,
            queued_at: granted.expiry,
        };
        entry.queued_at = entry.next_expiry();
        self.replace_totals(EntryTotals::default(), entry.totals());
        entry
    }
}
