//! What a process borrows of one resource, and how it speaks of it with the coordinator.
//!
//! The same for all units: what differs is what is done with the capacity, by a
//! [`RateLimiter`](super::RateLimiter) or a [`ConcurrencyLimiter`](super::ConcurrencyLimiter). Two promises that the coordinator's books
//! rely on (see [`resource`](crate::resource)) are kept here: a lease counts from when its request
//! was *sent*, and only the answer to the *latest* request is applied.
//!
//! Its life: idle until the first attempt; cold until the first answer, while requests may be
//! held; then leased, or without a lease in the configured [`Mode`]. A lease that the next answer is about
//! to raise is growing. When nothing is wanted any more the lease is released, and all is idle again.

use core::num::NonZeroU32;
use core::time::Duration;

use super::backoff::backoff;
use super::policy::Policy;
use crate::cluster::ShardId;
use crate::lease::{Answer, Band, Claim, Demand, LeaseRequest, Origin};
use crate::units::{Capacity, Instant, Tokens};

/// The soonest a change of demand makes a process ask again. The coordinator has its own minimum.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The soonest an answer is followed by the next request, whatever it says.
const INTERVAL_FLOOR: Duration = Duration::from_millis(10);

/// A refresh interval that is at most this part of the lease says that the next answer will differ.
const SOON: u32 = 20;

/// The lease of one resource and the state of its renewal; plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseClient {
    pub(super) phase: Phase,
    pub(super) lease: Option<HeldLease>,
    /// Where the last answer came from that was applied.
    pub(super) origin: Origin,
    /// The safe capacity last sent.
    pub(super) safe: Option<Capacity>,
    /// The capacity of the whole resource, last sent.
    pub(super) capacity: Option<Capacity>,
    /// What the last request said of `wants`.
    pub(super) reported: Capacity,
    /// Of the last request; its time in nanoseconds unless two fell into one.
    pub(super) sequence: u64,
    /// When the request was sent that waits for an answer.
    pub(super) asked_at: Option<Instant>,
    pub(super) due: Option<Instant>,
    pub(super) failures: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// Awake without an answer so far; requests may be held until then.
    Pending {
        until: Instant,
    },
    Awake,
    /// Awake, and has less than is wanted until others have given back, or the coordinator has heard of it.
    Growing {
        /// By then it has grown, or never will.
        until: Instant,
    },
    /// Awake, and the lease that there was has expired.
    Lapsed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    pub(super) capacity: Capacity,
    pub(super) burst: Tokens,
    pub(super) expiry: Instant,
    /// See [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub(super) fingerprint: u64,
}

/// Where a process stands with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nothing is wanted and nothing is held.
    Idle,
    /// The first answer is awaited.
    Pending,
    /// A lease is valid.
    Leased,
    /// There is no valid lease; the [`Mode`] says what passes.
    NoLease,
}

/// What there is to say to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseMessage {
    /// Nothing now.
    Nothing,
    /// LeaseRequest for a lease; the answer goes to `handle_answer` or `handle_failure` with the same
    /// sequence.
    Refresh(LeaseRequest),
    /// Tell that the lease is no longer used. No answer is awaited: if the message is lost, the
    /// lease expires.
    Release {
        /// Grows like [`LeaseRequest::sequence`].
        sequence: u64,
    },
}

// === impl LeaseClient ===

impl LeaseClient {
    /// Nothing borrowed and nothing asked.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            lease: None,
            origin: Origin::default(),
            safe: None,
            capacity: None,
            reported: Capacity::ZERO,
            sequence: 0,
            asked_at: None,
            due: None,
            failures: 0,
        }
    }

    /// Wakes who is idle, and ends the wait of who has waited long enough.
    pub(super) fn rouse(&mut self, now: Instant, policy: &Policy) {
        match self.phase {
            Phase::Idle => self.wake(now, policy),
            Phase::Pending { until } if now >= until => self.phase = Phase::Awake,
            Phase::Pending { .. } | Phase::Awake | Phase::Growing { .. } | Phase::Lapsed => {}
        }
    }

    fn wake(&mut self, now: Instant, policy: &Policy) {
        self.phase = match policy.cold_start_wait {
            Duration::ZERO => Phase::Awake,
            wait => Phase::Pending {
                until: now.saturating_add(wait),
            },
        };
        self.due = Some(now);
        self.failures = 0;
    }

    /// Whether a change of what is wanted may be told early: not while idle, while an answer is
    /// awaited or while calls fail.
    pub(super) fn may_hurry(&self) -> bool {
        self.phase != Phase::Idle && self.asked_at.is_none() && self.failures == 0
    }

    /// Makes the next request early, but not before `at`. True if that moved it forward.
    pub(super) fn hurry(&mut self, at: Instant) -> bool {
        let earliest = Instant::from_nanos(self.sequence)
            .saturating_add(MIN_INTERVAL)
            .max(at);
        let sooner = self.due.is_none_or(|due| earliest < due);
        if sooner {
            self.due = Some(earliest);
        }
        sooner
    }

    /// Whether a request is due at `now`, or would be `early` later and none awaits its answer.
    pub(super) fn is_due(&self, now: Instant, early: Duration) -> bool {
        let horizon = match self.asked_at {
            Some(_) => now,
            None => now.saturating_add(early),
        };
        self.due.is_some_and(|due| due <= horizon)
    }

    /// Asks for `wants`, or releases the lease if that is nothing. What it returns must be said.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        policy: &Policy,
        has: Capacity,
        wants: Capacity,
    ) -> LeaseMessage {
        self.sequence = self.sequence.saturating_add(1).max(now.as_nanos());
        if wants == Capacity::ZERO {
            return self.release();
        }
        self.asked_at = Some(now);
        self.due = Some(now.saturating_add(policy.call_timeout));
        self.reported = wants;
        let lease = self.valid_lease(now);
        LeaseMessage::Refresh(LeaseRequest {
            sequence: self.sequence,
            has,
            remaining: lease.map(|lease| lease.expiry.saturating_since(now)),
            fingerprint: lease.map_or(0, |lease| lease.fingerprint),
            claim: Claim::Lease,
            demand: Demand::one(Band {
                priority: policy.priority,
                wants,
                subclients: NonZeroU32::MIN,
            }),
        })
    }

    fn release(&mut self) -> LeaseMessage {
        self.phase = Phase::Idle;
        self.due = None;
        self.asked_at = None;
        self.reported = Capacity::ZERO;
        let known = self.capacity.is_some();
        self.lease = None;
        if known {
            LeaseMessage::Release {
                sequence: self.sequence,
            }
        } else {
            LeaseMessage::Nothing
        }
    }

    /// Whether an answer from `origin` to the request of `sequence` counts. One of an epoch that
    /// cannot follow counts as a failure, see [`Origin::check_after`].
    pub(super) fn accepts(&mut self, now: Instant, sequence: u64, origin: Origin) -> bool {
        if origin.check_after(self.origin).is_err() {
            self.handle_failure(now, sequence, sequence);
            return false;
        }
        self.asked_at.is_some() && sequence == self.sequence
    }

    /// Takes over an answer that was accepted.
    pub(super) fn apply(&mut self, now: Instant, origin: Origin, answer: &Answer) {
        let sent_at = self.asked_at.take().unwrap_or(now);
        self.failures = 0;
        self.phase = self.phase_after(now, answer);
        self.origin = origin;
        self.safe = answer.safe;
        self.capacity = Some(answer.capacity);
        self.due = Some(now.saturating_add(answer.refresh_interval.max(INTERVAL_FLOOR)));
        self.lease = answer
            .lease
            .map(|terms| HeldLease {
                capacity: terms.capacity,
                burst: terms.burst,
                expiry: sent_at.saturating_add(terms.duration),
                fingerprint: terms.fingerprint,
            })
            .filter(|lease| lease.expiry > now);
    }

    /// Growing if the answer is less than was asked for and not for long. Who has to give back is told to come
    /// back soon, too. And what has not grown in a lease's time, others do not have to give back.
    fn phase_after(&self, now: Instant, answer: &Answer) -> Phase {
        let Some(terms) = answer.lease else {
            return Phase::Awake;
        };
        let before = self.valid_lease(now);
        let lowered = before.is_some_and(|before| before.capacity > terms.capacity);
        let less = terms.capacity < self.reported.min(answer.capacity);
        let soon = answer.refresh_interval.saturating_mul(SOON) <= terms.duration;
        match self.phase {
            _ if lowered || !less || !soon => Phase::Awake,
            Phase::Growing { until } => Phase::Growing { until },
            _ => Phase::Growing {
                until: now.saturating_add(terms.duration),
            },
        }
    }

    /// Notes that the request that was just made asks for more than the one before.
    pub(super) fn expect_more(&mut self) {
        if let (Phase::Awake, Some(lease)) = (self.phase, self.lease) {
            self.phase = Phase::Growing {
                until: lease.expiry,
            };
        }
    }

    /// Whether a lease is valid at `now` and the next answer is likely to raise it.
    pub(super) fn is_growing(&self, now: Instant) -> bool {
        let growing = matches!(self.phase, Phase::Growing { until } if now < until);
        growing && self.valid_lease(now).is_some()
    }

    /// Notes that the request of `sequence` failed; the next one waits longer, but less and less
    /// when the lease is about to end. `seed` spreads clients that fail together.
    pub(super) fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) {
        if sequence != self.sequence || self.asked_at.take().is_none() {
            return;
        }
        if self.phase != Phase::Lapsed {
            self.phase = Phase::Awake;
        }
        self.failures = self.failures.saturating_add(1);
        let lease = self.valid_lease(now);
        let left = lease.map(|lease| lease.expiry.saturating_since(now));
        self.due = Some(now.saturating_add(backoff(self.failures, left, seed)));
    }

    /// The shard that the last answer came from, unless a call has failed since.
    pub(super) fn shard(&self) -> Option<ShardId> {
        self.origin.shard.filter(|_| self.failures == 0)
    }

    pub(super) fn state(&self, now: Instant) -> LeaseState {
        match self.phase {
            Phase::Idle => LeaseState::Idle,
            Phase::Pending { until } if now < until => LeaseState::Pending,
            _ if self.valid_lease(now).is_some() => LeaseState::Leased,
            _ => LeaseState::NoLease,
        }
    }

    /// Forgets a lease that has expired, and says when it has.
    pub(super) fn lapse(&mut self, now: Instant) -> Option<Instant> {
        let expired = self.lease.take_if(|lease| lease.expiry <= now)?;
        if matches!(self.phase, Phase::Awake | Phase::Growing { .. }) {
            self.phase = Phase::Lapsed;
        }
        Some(expired.expiry)
    }

    pub(super) fn valid_lease(&self, now: Instant) -> Option<HeldLease> {
        self.lease.filter(|lease| lease.expiry > now)
    }
}

#[cfg(test)]
mod tests;
