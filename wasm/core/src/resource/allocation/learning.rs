//! Answers of a coordinator that is still learning which leases its clients hold.
//!
//! A coordinator without a lease table has nothing but the word of its clients, and cannot tell a
//! lie from the truth. If no client lies, all claims together are within the capacity. So claims
//! that do not fit say that a client lies, or that a message came late; which came first says
//! nothing. Three rules follow (`docs/design-leases.md`, "Learning mode", has the reasons and the proof):
//!
//! - At first claims are only collected. They are confirmed for as long as they last by the word of
//!   their clients, and a little beyond the end of this time if they would end before.
//! - A claim that does not fit is not confirmed, but its client is told to keep what it has for as
//!   long as it says that it has it: that is in use anyway.
//! - As long as claims do not fit, no client is confirmed more than its max-min share.

use core::time::Duration;

use super::grant::{Grant, suffices};
use super::{Allocation, ClientEntry, CountedLease};
use crate::lease::{Claim, LeaseRequest, NO_FINGERPRINT};
use crate::lease_times::LeaseTimes;
use crate::units::{Capacity, Instant};

/// Claims are collected for this part of the learning time. A client with a lease that calls in
/// vain asks again before a quarter of what is left of that lease has passed, so that by then all
/// have been heard that can be.
const COLLECTING_PART: u32 = 4;

/// Refresh intervals by which claims are confirmed longer meanwhile, so that their clients ask
/// again in time also if one call is lost. As long it is remembered that claims do not fit.
const SLACK_REFRESHES: u32 = 2;

// === impl Allocation ===

impl Allocation {
    /// Confirms in learning mode: the client's lease, as far as it still wants it, or nobody else does.
    ///
    /// A claim that was lent under other limits than today's may be part of more than there is, and
    /// is not prolonged: so the excess ends when it would have ended without a restart. The others
    /// sum to at most the capacity, as many times as they are confirmed: the latest of them
    /// was granted from what all others left.
    pub(super) fn confirm(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
    ) -> Grant {
        let times = self.times(now);
        let claimed = self.claimed(now, entry, used, request);
        let room = self.free(entry.has()).keep;
        let crowded = claimed.capacity > room;
        let fair = if crowded || self.is_crowded(now) {
            self.entitled_by_wants(entry)
        } else {
            Capacity::UNLIMITED
        };
        let gets = claimed.capacity.min(fair).min(room);
        let collecting = self.collecting(now);
        // A claim of several leases may be more than is in use, and could be lent on: it is never
        // told more than counts here.
        let exact = request.claim == Claim::Lease;
        let mut expiry = now.saturating_add(times.lease);
        if gets > Capacity::ZERO {
            expiry = collecting.map_or(expiry, |until| until.min(expiry));
            if !exact {
                expiry = expiry.max(claimed.expiry);
            }
            if !self.certifies(request.fingerprint) {
                expiry = expiry.min(claimed.expiry).min(used.expiry);
            }
        }
        let counted = CountedLease::new(gets, expiry);
        let claim = match collecting {
            Some(_) => claimed.capacity,
            None => claimed.capacity.min(fair),
        };
        let claim = CountedLease::new(claim, claimed.expiry);
        let lasts = claim.expiry > now.saturating_add(times.min_refresh);
        let keeps = claim.capacity > gets || claim.expiry > expiry;
        let settled = suffices(gets, claimed.capacity) && suffices(gets, used.capacity);
        let fingerprint = request.fingerprint.max(NO_FINGERPRINT);
        let refresh_interval = self.learning_interval(now, &times, settled);
        Grant {
            told: (exact && keeps && lasts && claim.capacity > Capacity::ZERO).then_some(claim),
            crowded_until: crowded.then(|| now.saturating_add(slack(&times))),
            ..Grant::of(counted, fingerprint, refresh_interval)
        }
    }

    /// The lease that the client claims, as far as it may want it and it can be true: of an earlier run
    /// no lease lasts longer than the learning time, nor is there more than there is in all.
    fn claimed(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
    ) -> CountedLease {
        let most = if self.limit.algorithm.shares() || self.pool.is_some() {
            self.capacity()
        } else {
            Capacity::UNLIMITED
        };
        // Only what is one lease can have been counted too low: as much as did not fit.
        let has = match request.claim {
            Claim::Lease => request.has.max(used.capacity),
            Claim::Several | Claim::AtLeast => used.capacity,
        };
        // Wants sway, and what is not confirmed is gone until the end of this time.
        let wanted = match entry.wants() {
            Capacity::ZERO => Capacity::ZERO,
            wants => wants.saturating_add(self.spare()),
        };
        let capacity = has.min(wanted).min(most);
        let capacity = self.shares.quantum().floor(capacity);
        CountedLease::new(capacity, self.claimed_until(now, request))
    }

    /// Time until which the claim of a newcomer counts, before it is confirmed.
    pub(super) fn claim_counts_until(&self, now: Instant, request: &LeaseRequest) -> Instant {
        let ends = self.claimed_until(now, request);
        let exact = request.claim == Claim::Lease && self.lendable.is_none();
        let collecting = self.collecting(now).filter(|_| exact);
        collecting.map_or(ends, |until| until.min(ends))
    }

    /// End of the lease that `request` claims. No lease of an earlier run is longer than the time
    /// to learn, nor is one in use when that is over. But a coordinator that lends on counts the
    /// claims of its own clients from when it heard of them.
    fn claimed_until(&self, now: Instant, request: &LeaseRequest) -> Instant {
        let lease = self.times_alone().lease;
        let longest = lease.max(self.limit.learning);
        let remaining = request.remaining.map_or(lease, |left| left.min(longest));
        let ends = now.saturating_add(remaining);
        match request.claim {
            // A lease that may be kept without counting ends before anything is lent.
            Claim::Lease if self.lendable.is_none() && now < self.collect_until => {
                ends.min(self.collect_until)
            }
            Claim::Lease if self.lendable.is_none() => ends.min(self.learning_until),
            Claim::Lease | Claim::Several | Claim::AtLeast => ends,
        }
    }

    /// Time until which claims are confirmed while they are only collected, as far as their clients
    /// do not say that they last longer. A resource that learns although its coordinator has
    /// learned, because it has moved here, collects none: capacity that does not count is lent to
    /// others of its pool.
    pub(super) fn collecting(&self, now: Instant) -> Option<Instant> {
        let learning = self.collect_until.saturating_since(self.collect_from);
        let part = learning.checked_div(COLLECTING_PART).unwrap_or_default();
        let until = self.collect_from.saturating_add(part);
        let confirmed = until.saturating_add(slack(&self.times(now)));
        (now < until).then(|| confirmed.min(self.collect_until))
    }

    fn is_crowded(&self, now: Instant) -> bool {
        now < self.crowded_until || self.pool.is_some_and(|pool| now < pool.crowded_until)
    }
}

// === free functions ===

/// The time in which a client asks again also if one call is lost.
fn slack(times: &LeaseTimes) -> Duration {
    times.refresh.saturating_mul(SLACK_REFRESHES)
}
