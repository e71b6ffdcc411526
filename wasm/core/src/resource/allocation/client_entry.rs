//! Entry of one client in the lease table.

use super::Presence;
use crate::fleet::DrawSums;
use crate::lease::{Claim, Epoch, LeaseRequest};
use crate::resource::{ClientDraws, RefreshError, ThrottledSince};
use crate::share::BandHandles;
use crate::traffic::Tally;
use crate::units::{Capacity, Instant, Tokens};

/// State of one client.
#[derive(Debug)]
pub(in crate::resource) struct ClientEntry {
    pub(super) handles: BandHandles<TieBreak>,
    /// Term of the latest run that has asked, if the client's runs have terms.
    pub(in crate::resource) term: Epoch,
    /// Sequence of the latest request of that run.
    pub(in crate::resource) sequence: u64,
    pub(super) draws: ClientDraws,
    /// Attempts beyond an equal part of the limit, at the time of its last report.
    pub(super) excess: (Tokens, Instant),
    /// Time of its last token of the fleet's bucket.
    pub(super) served_at: Instant,
    /// Whether the last answer let it draw permits: it gives back those that are not in use by itself.
    pub(super) gives_back: bool,
    /// Its last report of what it was asked for.
    pub(super) tally: Tally,
    pub(super) granted: CountedLease,
    pub(super) granted_at: Instant,
    /// Whether it was not known then how much can be lent: so the next answer may differ, however
    /// early the client asks.
    pub(super) granted_pending: bool,
    /// Max-rate of the last round, if that is the algorithm.
    pub(in crate::resource) max_rate: Option<Capacity>,
    /// Lease that the client was told to keep instead, in learning mode: more than counts.
    pub(super) told: Option<CountedLease>,
    /// Grant fingerprint of the lease, see
    /// [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub(super) fingerprint: u64,
    /// A larger or longer lease that the client may still be using.
    pub(super) prior: Option<CountedLease>,
    pub(in crate::resource) presence: Presence,
    /// Time since when it has got less than it wants; for reading, no decision depends on it.
    pub(in crate::resource) throttled_since: Option<ThrottledSince>,
    /// Time at which the client was last named to ask again; no answer depends on it.
    pub(in crate::resource) nudged_at: Option<Instant>,
    /// Its instant in the queue of expiries.
    pub(in crate::resource) queued_at: Instant,
}

/// Counts of one client for the sums of its resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntryTotals {
    /// The most that it may be using.
    pub(super) has: Capacity,
    /// The part of that which it wants.
    pub(super) usage: Capacity,
    /// The other part, if it is silent.
    pub(super) gone: Capacity,
    pub(super) is_silent: bool,
    /// Tokens and standby capacity.
    pub(super) draws: DrawSums,
}

/// Order of clients that want the same: the hash of the id and run, so that shares do not depend on
/// who came first.
pub(in crate::resource) type TieBreak = u64;

/// Capacity that is counted as lent until its expiry.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedLease {
    pub(super) capacity: Capacity,
    pub(super) expiry: Instant,
}

// === impl CountedLease ===

impl CountedLease {
    pub(super) const fn new(capacity: Capacity, expiry: Instant) -> Self {
        Self { capacity, expiry }
    }

    /// Returns the smaller capacity of both, and the earlier end.
    pub(super) fn min(self, other: Self) -> Self {
        let capacity = self.capacity.min(other.capacity);
        Self::new(capacity, self.expiry.min(other.expiry))
    }

    /// Returns this lease, if it is larger than `granted` or, as after the lease was shortened,
    /// longer.
    pub(super) fn beyond(self, granted: Self) -> Option<Self> {
        let larger = self.capacity > granted.capacity;
        let longer = self.capacity > Capacity::ZERO && self.expiry > granted.expiry;
        (larger || longer).then_some(self)
    }
}

// === impl ClientEntry ===

impl ClientEntry {
    /// Wants of the last request, as far as they count.
    pub(in crate::resource) fn wants(&self) -> Capacity {
        self.handles.wants()
    }

    /// Number of clients for which it speaks.
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

    /// Whether the client can draw.
    pub(super) fn can_draw(&self) -> bool {
        self.draws != ClientDraws::default()
    }

    /// Whether it is a coordinator: it has leases, and tokens that come with them, and draws none.
    pub(super) fn lends_on(&self) -> bool {
        self.term > Epoch(0)
    }

    /// Whether it has a lease from before `at` and has not asked since.
    pub(in crate::resource) fn is_from_before(&self, at: Instant) -> bool {
        self.granted_at <= at && self.has() > Capacity::ZERO
    }

    /// The lease that the latest answer named.
    pub(super) fn told(&self, now: Instant) -> CountedLease {
        let lasting = self.told.filter(|told| told.expiry > now);
        lasting.unwrap_or(self.granted)
    }

    /// Notes at a refresh whether the client gets less than it wants.
    pub(super) fn note_throttled(&mut self, now: Instant) {
        // One that draws is throttled if it gets no tokens.
        if !self.draws.is_offered || self.told(now).capacity > Capacity::ZERO {
            self.note_shortage(now, self.told(now).capacity < self.wants());
        }
    }

    /// Notes whether the client got less than it wants.
    pub(super) fn note_shortage(&mut self, now: Instant, is_short: bool) {
        let since = self.throttled_since.filter(|_| is_short);
        self.throttled_since = since.or_else(|| is_short.then(|| ThrottledSince::at(now)));
    }

    /// The most that the client may be using.
    pub(in crate::resource) fn has(&self) -> Capacity {
        let prior = self.prior.map_or(Capacity::ZERO, |prior| prior.capacity);
        self.granted.capacity.max(prior)
    }

    /// Its counts for the sums of the resource.
    pub(super) fn totals(&self) -> EntryTotals {
        let has = self.has();
        let usage = has.min(self.wants());
        let is_silent = self.presence.silent;
        let gone = if is_silent {
            has.saturating_sub(usage)
        } else {
            Capacity::ZERO
        };
        EntryTotals {
            has,
            usage,
            gone,
            is_silent,
            draws: DrawSums {
                holds: self.draws.holds.as_micros().into(),
                standby: self.draws.standby.as_micros().into(),
                cut_off: if self.presence.missed {
                    self.draws.standby.as_micros().into()
                } else {
                    0
                },
            },
        }
    }

    /// Lease that a client may be using after `request`. More than was granted last means that it
    /// does not know of that yet: its lease is the prior one and ends with it. One that has several
    /// may be using as much until the last of them ends, for all that is known here.
    pub(super) fn used_by(&self, request: &LeaseRequest) -> CountedLease {
        let claimed = match request.claim {
            Claim::Lease | Claim::Several => request.has.min(self.has()),
            Claim::AtLeast => self.has(),
        };
        let expiry = match self.prior {
            Some(prior) if claimed > self.granted.capacity && request.claim == Claim::Lease => {
                prior.expiry
            }
            _ => self.end(),
        };
        CountedLease::new(claimed, expiry)
    }

    /// Next expiry of a lease.
    pub(in crate::resource) fn next_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.min(self.granted.expiry)
        })
    }

    /// Expiry of the last lease that the client may be using.
    pub(in crate::resource) fn end(&self) -> Instant {
        match self.prior {
            Some(prior) if self.granted.capacity == Capacity::ZERO => prior.expiry,
            _ => self.last_expiry(),
        }
    }

    /// Last expiry of a lease.
    pub(in crate::resource) fn last_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.max(self.granted.expiry)
        })
    }
}
