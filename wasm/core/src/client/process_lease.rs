//! Lease of one resource in one process, from its first attempt to its release.
//!
//! The same for all units; the capacity is spent by a [`RateLimiter`](super::RateLimiter) or a
//! [`ConcurrencyLimiter`](super::ConcurrencyLimiter).
//!
//! Its life: idle until the first attempt; pending until the first answer, while requests may be
//! held; then leased, or without a lease in the configured [`Mode`](super::policy::Mode). A lease that the next answer is
//! about to raise is growing. When nothing is wanted any more the lease is released, and all is idle
//! again.

use core::num::NonZeroU32;
use core::time::Duration;

use super::policy::Policy;
use crate::lease::{Answer, Band, Demand, LeaseRequest, Origin};
use crate::lease_client::{LeaseClient, LeaseMessage};
use crate::units::{Capacity, Instant};

/// A refresh interval that is at most this part of the lease says that the next answer will differ.
const SOON: u32 = 20;

/// Lease of one resource with its phase; plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessLease {
    pub(super) client: LeaseClient,
    pub(super) phase: Phase,
    /// Wants of the last request.
    pub(super) reported: Capacity,
}

/// Phase of a process's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is wanted.
    Idle,
    /// Awake without an answer so far; requests may be held until then.
    Pending {
        /// End of the wait, answer or not.
        until: Instant,
    },
    /// The resource is in use.
    Awake,
    /// Awake, and has less than is wanted until others have given back, or the coordinator has heard
    /// of it.
    Growing {
        /// By then it has grown, or never will.
        until: Instant,
    },
    /// Awake, and the last lease has expired.
    Lapsed,
}

/// State of a process's lease, as the process acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nothing is wanted and no lease is held.
    Idle,
    /// The first answer is awaited.
    Pending,
    /// A lease is valid.
    Leased,
    /// There is no valid lease; the [`Mode`](super::policy::Mode) says how much passes.
    NoLease,
}

/// Effect of a nudge on the lease that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NudgeEffect {
    /// None: there is no such limiter, or nothing is wanted of it.
    Ignored,
    /// None yet: the answer to a request is awaited, and may be older than the nudge.
    Awaited,
    /// The next request is due.
    Due,
}

// === impl ProcessLease ===

impl ProcessLease {
    /// No lease, and none wanted.
    pub(super) fn new() -> Self {
        Self {
            client: LeaseClient::new(None),
            phase: Phase::Idle,
            reported: Capacity::ZERO,
        }
    }

    /// Wakes an idle lease, and ends a wait that was long enough.
    pub(super) fn rouse(&mut self, now: Instant, policy: &Policy) {
        match self.phase {
            Phase::Idle => self.wake(now, policy),
            Phase::Pending { until } if now >= until => self.phase = Phase::Awake,
            Phase::Pending { .. } | Phase::Awake | Phase::Growing { .. } | Phase::Lapsed => {}
        }
    }

    fn wake(&mut self, now: Instant, policy: &Policy) {
        self.phase = match policy.first_lease_wait {
            Duration::ZERO => Phase::Awake,
            wait => Phase::Pending {
                until: now.saturating_add(wait),
            },
        };
        self.client.due = Some(now);
        self.client.failures = 0;
    }

    /// Whether a change of the wants may be told early: not while idle, while an answer is awaited or
    /// while calls fail.
    pub(super) fn may_hurry(&self) -> bool {
        self.phase != Phase::Idle && self.client.may_hurry()
    }

    /// Makes the next request early, but not before `at`. True if that moved it forward.
    pub(super) fn hurry(&mut self, at: Instant) -> bool {
        // The sequence is the time of the last request, unless two fell into one nanosecond.
        let asked_at = Instant::from_nanos(self.client.sequence);
        self.client.hurry(asked_at, at)
    }

    /// Makes the next request due at `now`, whatever interval the last answer named and however lately
    /// it came: the share has changed.
    pub(super) fn nudge(&mut self, now: Instant) -> NudgeEffect {
        if self.phase == Phase::Idle {
            return NudgeEffect::Ignored;
        }
        // A request that is lost already does not keep the next one waiting.
        if self.client.is_waiting() && !self.client.is_due(now, Duration::ZERO) {
            return NudgeEffect::Awaited;
        }
        self.client.make_due(now);
        NudgeEffect::Due
    }

    /// Asks for `wants`, or releases the lease if that is nothing. The message must be sent.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        policy: &Policy,
        has: Capacity,
        wants: Capacity,
    ) -> LeaseMessage {
        let next = self.client.sequence.saturating_add(1);
        let sequence = next.max(now.as_nanos());
        self.reported = wants;
        if wants == Capacity::ZERO {
            self.phase = Phase::Idle;
            let released = self.client.release(sequence);
            return released.unwrap_or(LeaseMessage::Nothing);
        }
        let demand = Demand::one(Band {
            priority: policy.priority,
            wants,
            subclients: NonZeroU32::MIN,
        });
        let timeout = policy.call_timeout;
        LeaseMessage::Refresh(LeaseRequest {
            has,
            ..self.client.request(now, sequence, timeout, demand)
        })
    }

    /// Whether an answer from `origin` to the request of `sequence` counts. One of an epoch that
    /// cannot follow counts as a failure, see [`LeaseClient::check_origin`].
    pub(super) fn accepts(&mut self, now: Instant, sequence: u64, origin: Origin) -> bool {
        if self.client.check_origin(now, origin).is_err() {
            self.handle_failure(now, sequence, sequence);
            return false;
        }
        self.client.awaits(now, sequence)
    }

    /// Applies an answer that was accepted.
    pub(super) fn apply(&mut self, now: Instant, origin: Origin, answer: &Answer) {
        self.phase = self.phase_after(now, answer);
        self.client.apply(now, origin, answer);
    }

    /// Growing if the answer is less than was asked for and not for long. A client that has to give
    /// back is told to come back soon, too. And a lease that has not grown in a lease's time, others
    /// do not have to make room for.
    fn phase_after(&self, now: Instant, answer: &Answer) -> Phase {
        let Some(terms) = answer.lease else {
            return Phase::Awake;
        };
        let before = self.client.valid_lease(now);
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
        if let (Phase::Awake, Some(lease)) = (self.phase, self.client.lease) {
            self.phase = Phase::Growing {
                until: lease.expiry,
            };
        }
    }

    /// Whether a lease is valid at `now` and the next answer is likely to raise it.
    pub(super) fn is_growing(&self, now: Instant) -> bool {
        let growing = matches!(self.phase, Phase::Growing { until } if now < until);
        growing && self.client.valid_lease(now).is_some()
    }

    /// Notes that the request of `sequence` failed, see [`LeaseClient::handle_failure`]. False if it is not
    /// the one that waits for its answer.
    pub(super) fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) -> bool {
        let failed = self.client.handle_failure(now, sequence, seed);
        if failed && self.phase != Phase::Lapsed {
            self.phase = Phase::Awake;
        }
        failed
    }

    pub(super) fn state(&self, now: Instant) -> LeaseState {
        match self.phase {
            Phase::Idle => LeaseState::Idle,
            Phase::Pending { until } if now < until => LeaseState::Pending,
            _ if self.client.valid_lease(now).is_some() => LeaseState::Leased,
            _ => LeaseState::NoLease,
        }
    }

    /// Forgets a lease that has expired, and returns its expiry.
    pub(super) fn lapse(&mut self, now: Instant) -> Option<Instant> {
        let expiry = self.client.take_expired(now)?;
        if matches!(self.phase, Phase::Awake | Phase::Growing { .. }) {
            self.phase = Phase::Lapsed;
        }
        Some(expiry)
    }
}

#[cfg(test)]
mod tests;
