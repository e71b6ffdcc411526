//! One client's line in the books.

use crate::lease::{Claim, Epoch, LeaseRequest};
use crate::resource::RefreshError;
use crate::share::BandHandles;
use crate::units::{Capacity, Instant};

/// What the books know of one client.
#[derive(Debug)]
pub(in crate::resource) struct ClientEntry {
    pub(super) handles: BandHandles<TieBreak>,
    /// Of the latest run that has asked, if those of the client have terms.
    pub(in crate::resource) term: Epoch,
    /// Of the latest request of that run.
    pub(in crate::resource) sequence: u64,
    pub(super) granted: CountedLease,
    pub(super) granted_at: Instant,
    /// In learning mode the lease that the client was told to keep instead: more than counts.
    pub(super) told: Option<CountedLease>,
    /// What the granted loan rests on, see [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub(super) fingerprint: u64,
    /// A larger or longer loan that the client may still be using, for all the books know.
    pub(super) prior: Option<CountedLease>,
    /// Where this entry stands in the queue of expiries.
    pub(in crate::resource) queued_at: Instant,
}

/// Where a client stands among those who want the same: the hash of its id and run, so that shares
/// do not depend on who came first.
pub(in crate::resource) type TieBreak = u64;

/// So much until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedLease {
    pub(super) capacity: Capacity,
    pub(super) expiry: Instant,
}

// === impl CountedLease ===

impl CountedLease {
    /// Of both the smaller capacity, and the earlier end.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            capacity: self.capacity.min(other.capacity),
            expiry: self.expiry.min(other.expiry),
        }
    }

    /// This loan, if it is larger than `granted` or, as after the lease was shortened, longer.
    pub(super) fn beyond(self, granted: Self) -> Option<Self> {
        let larger = self.capacity > granted.capacity;
        let longer = self.capacity > Capacity::ZERO && self.expiry > granted.expiry;
        (larger || longer).then_some(self)
    }
}

// === impl ClientEntry ===

impl ClientEntry {
    /// What the client last wanted.
    pub(in crate::resource) fn wants(&self) -> Capacity {
        self.handles.wants()
    }

    /// For how many clients it speaks.
    pub(in crate::resource) fn subclients(&self) -> u64 {
        self.handles.subclients()
    }

    /// Refuses a request of `term` and `sequence` that was sent before the latest one.
    pub(super) fn check_is_later(&self, term: Epoch, sequence: u64) -> Result<(), RefreshError> {
        if term < self.term {
            return Err(RefreshError::EarlierTerm {
                asked: term,
                seen: self.term,
            });
        }
        if term == self.term && sequence < self.sequence {
            return Err(RefreshError::Stale {
                asked: sequence,
                seen: self.sequence,
            });
        }
        Ok(())
    }

    /// Whether it was granted something before `at` and has not asked since.
    pub(in crate::resource) fn is_from_before(&self, at: Instant) -> bool {
        self.granted_at <= at && self.has() > Capacity::ZERO
    }

    /// What was granted last, and until when.
    pub(in crate::resource) fn current(&self) -> (Capacity, Instant) {
        (self.granted.capacity, self.granted.expiry)
    }

    /// The lease that the latest answer told of.
    pub(super) fn told(&self, now: Instant) -> CountedLease {
        let lasting = self.told.filter(|told| told.expiry > now);
        lasting.unwrap_or(self.granted)
    }

    /// Whether the client may be using either of two loans at `now`.
    pub(in crate::resource) fn has_two(&self, now: Instant) -> bool {
        self.prior.is_some_and(|prior| prior.expiry > now)
    }

    /// The most that the client may be using.
    pub(in crate::resource) fn has(&self) -> Capacity {
        let prior = self.prior.map_or(Capacity::ZERO, |prior| prior.capacity);
        self.granted.capacity.max(prior)
    }

    /// The loan that a client may be using after what it says in `ask`. More than was granted last
    /// means that it does not know of that yet: its loan is the prior one and ends with it. One that
    /// has several may be using as much until the last of them ends, for all that is known here.
    pub(super) fn used_by(&self, request: &LeaseRequest) -> CountedLease {
        let said = match request.claim {
            Claim::Lease | Claim::Several => request.has.min(self.has()),
            Claim::AtLeast => self.has(),
        };
        let expiry = match self.prior {
            Some(prior) if said > self.granted.capacity && request.claim == Claim::Lease => {
                prior.expiry
            }
            _ => self.end(),
        };
        CountedLease {
            capacity: said,
            expiry,
        }
    }

    /// When something of this line expires next.
    pub(in crate::resource) fn next_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.min(self.granted.expiry)
        })
    }

    /// When the last expires of what the client may be using.
    pub(in crate::resource) fn end(&self) -> Instant {
        match self.prior {
            Some(prior) if self.granted.capacity == Capacity::ZERO => prior.expiry,
            _ => self.last_expiry(),
        }
    }

    /// When the last of this line expires.
    pub(in crate::resource) fn last_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.max(self.granted.expiry)
        })
    }
}
