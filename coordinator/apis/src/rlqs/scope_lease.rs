//! Lease of one scope for the buckets of a proxy that lead to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::lease::{Answer, Claim, Demand, LeaseRequest, Origin};
use tollgate_core::lease_client::LeaseClient;
use tollgate_core::units::{Capacity, Instant, Tokens, mul_div};

use super::assignment::TRANSIT;
use super::split::split;

/// Time after which a refresh counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A change of wants by more than one part in so many is told early.
const NEWS: u64 = 10;

/// Lease of one scope.
#[derive(Debug)]
pub(super) struct ScopeLease {
    client: LeaseClient,
    /// Scope whose capacity is used as well, by the last answer.
    pub(super) canonical: Option<Arc<str>>,
    /// Buckets that lead here.
    pub(super) buckets: BTreeSet<u64>,
    /// Part of each bucket in the lease.
    parts: BTreeMap<u64, Capacity>,
    /// Wants that the last request told.
    told: Capacity,
    asked_at: Instant,
    safe: Option<Capacity>,
    /// Length of the last lease.
    pub(super) length: Duration,
    /// Whether the proxy has been assigned of this lease. Before that it may be using a lease of an
    /// earlier stream.
    is_assigned: bool,
    hold: Hold,
    /// When its last bucket left.
    left_at: Option<Instant>,
    /// Its instant in the queue of timers.
    pub(super) queued_at: Option<Instant>,
}

/// Delay of the next request, which acknowledges a lowered lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    None,
    /// Until the assignments of the lease have been sent.
    Unsent,
    /// Until these have arrived.
    Until(Instant),
}

/// Part of one bucket in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketPart {
    pub(super) share: Capacity,
    pub(super) burst: Tokens,
    pub(super) expiry: Instant,
}

// === impl ScopeLease ===

impl ScopeLease {
    /// No lease yet; the first request is due at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            client: LeaseClient::new(Some(now)),
            canonical: None,
            buckets: BTreeSet::new(),
            parts: BTreeMap::new(),
            told: Capacity::ZERO,
            asked_at: Instant::ZERO,
            safe: None,
            length: Duration::ZERO,
            is_assigned: false,
            hold: Hold::None,
            left_at: None,
            queued_at: None,
        }
    }

    /// Adds a bucket. A lease that was to be released is kept.
    pub(super) fn join(&mut self, now: Instant, bucket: u64) {
        self.buckets.insert(bucket);
        if self.left_at.take().is_some() {
            self.client.make_due(now);
        }
    }

    /// Takes a bucket out, to which the proxy was told at `now` at the latest that it has nothing.
    pub(super) fn leave(&mut self, now: Instant, bucket: u64) {
        self.buckets.remove(&bucket);
        self.parts.remove(&bucket);
        if self.buckets.is_empty() {
            self.left_at = Some(now);
        }
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(left_at) = self.left_at {
            return Some(left_at.saturating_add(TRANSIT));
        }
        let due = self.client.due()?;
        match self.hold {
            Hold::None => Some(due),
            Hold::Unsent => None,
            Hold::Until(at) => Some(due.max(at)),
        }
    }

    /// Whether it has no buckets any more, and the proxy knows.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.left_at.is_some() && self.due().is_some_and(|due| due <= now)
    }

    /// Gives the lease back with `sequence`. True if that is to be told.
    pub(super) fn release(&mut self, sequence: u64) -> bool {
        // The lease of an earlier stream may be in use: it is left to expire.
        self.client.release(sequence).is_some() && self.is_assigned
    }

    /// Makes the request of `sequence` for `wants`.
    pub(super) fn request(&mut self, now: Instant, sequence: u64, wants: Capacity) -> LeaseRequest {
        (self.told, self.asked_at, self.hold) = (wants, now, Hold::None);
        let demand = Demand::of(wants);
        let request = self.client.request(now, sequence, CALL_TIMEOUT, demand);
        if self.is_assigned {
            request
        } else {
            LeaseRequest {
                claim: Claim::AtLeast,
                ..request
            }
        }
    }

    /// Asks early if `wants` differs much from what was told.
    pub(super) fn note_wants(&mut self, now: Instant, wants: Capacity) {
        let (told, wants) = (self.told.as_micros(), wants.as_micros());
        if told.abs_diff(wants) > told / NEWS {
            self.hurry(now);
        }
    }

    /// Asks as soon as it may.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.client.may_hurry() {
            self.client.hurry(self.asked_at, now);
        }
    }

    /// Takes the answer to the request of `sequence`. True if it was applied.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        let before = self.capacity(now);
        let applied = self.client.handle_answer(now, sequence, origin, answer);
        if !matches!(applied, Ok(true)) {
            return false;
        }
        self.safe = answer.safe;
        if let Some(terms) = answer.lease {
            self.length = terms.duration;
        }
        if self.capacity(now) < before || !self.is_assigned {
            self.hold = Hold::Unsent;
        }
        true
    }

    /// Notes that the request of `sequence` failed; `seed` spreads those that fail together.
    pub(super) fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) {
        self.client.handle_failure(now, sequence, seed);
    }

    /// Notes that the assignments of all buckets have been sent at `now`.
    pub(super) fn handle_sent(&mut self, now: Instant) {
        if self.hold == Hold::Unsent {
            self.hold = Hold::Until(now.saturating_add(TRANSIT));
        }
    }

    /// Notes that a bucket has been assigned of this lease.
    pub(super) fn handle_assigned(&mut self) {
        self.is_assigned = true;
    }

    /// Divides the lease anew between its buckets, by the wants of each.
    pub(super) fn divide(&mut self, now: Instant, wants: &[(u64, Capacity)]) {
        self.parts = split(self.capacity(now), wants);
    }

    /// Returns what `bucket` gets; none without a valid lease.
    pub(super) fn part(&self, now: Instant, bucket: u64) -> Option<BucketPart> {
        let lease = self.client.valid_lease(now)?;
        let share = *self.parts.get(&bucket)?;
        let whole = u128::from(lease.capacity.as_micros());
        let burst = if lease.capacity.is_unlimited() {
            lease.burst
        } else {
            let burst = mul_div(lease.burst.as_micros(), share.as_micros(), whole.max(1));
            Tokens::from_micros(burst)
        };
        Some(BucketPart {
            share,
            burst,
            expiry: lease.expiry,
        })
    }

    /// Returns what each bucket falls back to without a lease, if the coordinator says it.
    pub(super) fn safe(&self) -> Option<Capacity> {
        let buckets = self.buckets.len() as u64;
        self.safe.map(|safe| safe.divided_by(buckets))
    }

    fn capacity(&self, now: Instant) -> Capacity {
        let lease = self.client.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| lease.capacity)
    }
}
