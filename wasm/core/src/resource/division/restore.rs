//! A client's line, written down for the next master and read again.

use super::{Division, Entry, Loan, Rank};
use crate::lease::{ClientRun, Demand, NO_BASIS};
use crate::resource::{Lent, Line};
use crate::units::{Capacity, Instant};

// === impl Entry ===

impl Entry {
    /// The line of `client` as it is told to the next master.
    pub(in crate::resource) fn line(&self, now: Instant, client: ClientRun) -> Line {
        let bands: alloc::vec::Vec<_> = self.place.bands().collect();
        // A place has one spot at least, and each priority once.
        let demand = Demand::try_from_bands(&bands);
        Line {
            client,
            sequence: self.sequence,
            demand: demand.unwrap_or(Demand::of(Capacity::ZERO)),
            granted: self.granted.lent(now),
            granted_ago: now.saturating_since(self.granted_at),
            basis: self.basis,
            prior: self.prior.map(|prior| prior.lent(now)),
        }
    }
}

// === impl Loan ===

impl Loan {
    fn lent(self, now: Instant) -> Lent {
        Lent {
            capacity: self.capacity,
            remaining: self.expiry.saturating_since(now),
        }
    }

    fn of(now: Instant, lent: Lent) -> Self {
        Self {
            capacity: lent.capacity,
            expiry: now.saturating_add(lent.remaining),
        }
    }
}

// === impl Division ===

impl Division {
    /// The entry that `line` tells of. What it says was lent counts, whatever the limit.
    pub(in crate::resource) fn restore(&mut self, now: Instant, rank: Rank, line: &Line) -> Entry {
        let granted = Loan::of(now, line.granted);
        let mut entry = Entry {
            // What each may want at most has been heeded when it asked.
            place: self.shares.insert(rank, &line.demand, Capacity::UNLIMITED),
            term: line.client.run.term(),
            sequence: line.sequence,
            granted,
            granted_at: now.saturating_sub(line.granted_ago),
            told: None,
            basis: line.basis.max(NO_BASIS),
            prior: line.prior.map(|prior| Loan::of(now, prior)),
            queued_at: granted.expiry,
        };
        entry.queued_at = entry.next_expiry();
        self.replace_sum(Capacity::ZERO, entry.has());
        entry
    }
}
