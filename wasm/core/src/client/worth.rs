//! Worth of a scope's state, for a process that has more scopes than slots.
//!
//! A scope that has earned back all that it has taken, and of which nothing is in flight, has as much
//! as one that comes for the first time, but for its leases, and these can be asked for again. So its
//! slot may go to another scope, however lately it was used. A full bucket may have earned back less:
//! its burst was cut to a smaller part of the limit, or to that of the safe rate. A new one may have
//! the larger part again with its first lease.
//!
//! The leases are released with the sequence of the latest request: a later request of the scope has a
//! higher one, so a release that comes late ends no lease but these.

use core::time::Duration;

use super::concurrency_limiter::ConcurrencyLimiter;
use super::process_lease::{Phase, ProcessLease};
use super::rate_limiter::RateLimiter;
use super::scope_state::ScopeState;
use crate::lease::Unit;
use crate::units::{Capacity, Instant, Rate, Tokens};

/// Silence after which a limit of bytes is worth nothing: a stream that goes on tells of its bytes
/// several times a second, and until then its bucket may be full.
const NO_BYTES_FOR: Duration = Duration::from_secs(1);

/// Time since the last attempt for which a limiter that draws each token counts as busy.
const BUSY: Duration = Duration::from_secs(1);

/// Worth of a state that holds nothing; of several, that of the least worth goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth {
    /// Whether it holds tokens of the fleet's bucket, which would be lost, or draws all the time.
    is_drawing: bool,
    /// Whether a coordinator has told its limit. While none answers a newcomer would not know it, so
    /// scopes of which nothing is known go first.
    is_known: bool,
    /// Time of the last attempt.
    used_at: Instant,
}

// === impl Worth ===

impl Worth {
    /// Returns the worth of two limiters of a scope.
    fn and(self, other: Self) -> Self {
        Self {
            is_drawing: self.is_drawing || other.is_drawing,
            is_known: self.is_known || other.is_known,
            used_at: self.used_at.max(other.used_at),
        }
    }
}

// === impl ProcessLease ===

impl ProcessLease {
    /// Returns the worth of a lease of which nothing is used; none while requests may be held for it, it
    /// is about to grow, it has expired and its bucket has not been settled, or its limit is what keeps
    /// the rate without a lease down to `rate`.
    fn worth(&self, now: Instant, used_at: Instant, rate: Rate) -> Option<Worth> {
        let is_pending = matches!(self.phase, Phase::Pending { until } if now < until);
        let is_settled = self.client.lease.is_none_or(|lease| lease.expiry > now);
        let worth = Worth {
            is_drawing: false,
            is_known: self.client.capacity.is_some(),
            used_at,
        };
        let is_busy = is_pending || self.is_growing(now) || self.is_bounded(now, rate);
        (is_settled && !is_busy).then_some(worth)
    }

    /// Returns whether there is no lease, and the limit that is known allows no more than `rate`: who
    /// does not know it might have more. At rest it is not: the limit would be told again.
    fn is_bounded(&self, now: Instant, rate: Rate) -> bool {
        let bounds = |capacity: Capacity| !capacity.is_unlimited() && capacity.as_rate() <= rate;
        self.client.valid_lease(now).is_none()
            && !self.is_at_rest()
            && self.client.capacity.is_some_and(bounds)
    }

    /// Returns whether nothing is wanted, and the last call was answered.
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle && self.client.failures == 0
    }
}

// === impl RateLimiter ===

impl RateLimiter {
    /// Returns whether the bucket holds its present burst.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let burst = i64::try_from(self.bucket.burst().as_micros()).unwrap_or(i64::MAX);
        self.bucket.rate().is_unlimited() || self.bucket.balance(now) >= burst
    }

    /// Returns whether a limiter that comes for the first time has as much: all that was taken has been
    /// earned back, or it is the fleet's bucket that pays.
    pub(super) fn is_as_new(&self, now: Instant) -> bool {
        if self.draws.offered {
            !self.draws.is_under_way(now) && self.draws.owed == Tokens::ZERO
        } else {
            self.bucket.is_whole(now)
        }
    }

    fn worth(&self, now: Instant) -> Option<Worth> {
        let rate = self.bucket.rate();
        let worth = self.lease.worth(now, self.last_attempt, rate)?;
        let is_busy = now.saturating_since(self.last_attempt) < BUSY;
        let is_drawing = self.draws.offered && (is_busy || self.draws.left > Tokens::ZERO);
        self.is_as_new(now).then_some(Worth {
            is_drawing,
            ..worth
        })
    }

    fn worth_of_bytes(&self, now: Instant) -> Option<Worth> {
        let is_silent = now.saturating_since(self.last_attempt) >= NO_BYTES_FOR;
        self.worth(now).filter(|_| is_silent)
    }
}

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    fn worth(&self, now: Instant) -> Option<Worth> {
        // Without a lease a limit of zero is the only one that is surely below a newcomer's.
        let worth = self.lease.worth(now, self.last_attempt, Rate::ZERO);
        worth.filter(|_| self.held() == 0)
    }
}

// === impl ScopeState ===

impl ScopeState {
    /// Returns the worth of a state that holds nothing but leases, which can be had again; none if
    /// something else would be lost with it.
    pub fn worth(&self, now: Instant) -> Option<Worth> {
        let mut worth = self.requests.worth(now)?;
        for bytes in self.request_bytes.iter().chain(&self.response_bytes) {
            worth = worth.and(bytes.worth_of_bytes(now)?);
        }
        if let Some(concurrency) = &self.concurrency {
            worth = worth.and(concurrency.worth(now)?);
        }
        Some(worth)
    }

    /// Returns the units whose leases are to be released when the state is given up at `now`, each with
    /// the sequence to release it with. A lease that is asked for counts: nobody will take the answer.
    pub fn releases(&self, now: Instant) -> impl Iterator<Item = (Unit, u64)> {
        Unit::ALL.into_iter().filter_map(move |unit| {
            let client = &self.lease(unit)?.client;
            let holds = client.is_waiting() || client.valid_lease(now).is_some();
            holds.then_some((unit, client.sequence))
        })
    }
}

#[cfg(test)]
mod tests;
