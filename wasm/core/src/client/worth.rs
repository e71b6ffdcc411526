//! Worth of a scope's state, for a process that has more scopes than slots.
//!
//! A scope whose buckets are full and of which nothing is in flight has as much as one that comes for
//! the first time, but for its leases, and these can be asked for again. So its slot may go to another
//! scope, however lately it was used. Its leases are released with the sequence of the request that
//! they answer: a later request of the scope has a higher one, so a release that comes late ends no
//! lease but these.

use core::time::Duration;

use super::concurrency_limiter::ConcurrencyLimiter;
use super::process_lease::{Phase, ProcessLease};
use super::rate_limiter::RateLimiter;
use super::scope_state::ScopeState;
use crate::lease::Unit;
use crate::units::Instant;

/// Silence after which a limit of bytes is worth nothing: a stream that goes on tells of its bytes
/// several times a second, and until then its bucket may be full.
const NO_BYTES_FOR: Duration = Duration::from_secs(1);

/// Worth of a state that holds nothing; of several, that of the least worth goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth {
    /// Whether it has a lease. While no coordinator answers there will be no other, so scopes without
    /// one go first.
    is_leased: bool,
    /// Time of the last attempt.
    used_at: Instant,
}

// === impl Worth ===

impl Worth {
    /// Returns the worth of two limiters of a scope.
    fn and(self, other: Self) -> Self {
        Self {
            is_leased: self.is_leased || other.is_leased,
            used_at: self.used_at.max(other.used_at),
        }
    }
}

// === impl ProcessLease ===

impl ProcessLease {
    /// Returns the worth of a lease of which nothing is used; none while requests may be held for it, it
    /// is about to grow, or it has expired and its bucket has not been settled.
    fn worth(&self, now: Instant, used_at: Instant) -> Option<Worth> {
        let is_pending = matches!(self.phase, Phase::Pending { until } if now < until);
        let is_settled = self.client.lease.is_none_or(|lease| lease.expiry > now);
        let worth = Worth {
            is_leased: self.client.lease.is_some(),
            used_at,
        };
        (is_settled && !is_pending && !self.is_growing(now)).then_some(worth)
    }
}

// === impl RateLimiter ===

impl RateLimiter {
    /// Returns whether the bucket has as much as a new one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let burst = i64::try_from(self.bucket.burst().as_micros()).unwrap_or(i64::MAX);
        self.bucket.rate().is_unlimited() || self.bucket.balance(now) >= burst
    }

    fn worth(&self, now: Instant) -> Option<Worth> {
        let worth = self.lease.worth(now, self.last_attempt);
        worth.filter(|_| self.is_full(now))
    }

    fn worth_of_bytes(&self, now: Instant) -> Option<Worth> {
        let is_silent = now.saturating_since(self.last_attempt) >= NO_BYTES_FOR;
        self.worth(now).filter(|_| is_silent)
    }
}

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    fn worth(&self, now: Instant) -> Option<Worth> {
        let worth = self.lease.worth(now, self.last_attempt);
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
    /// the sequence to release it with.
    pub fn releases(&self, now: Instant) -> impl Iterator<Item = (Unit, u64)> {
        Unit::ALL.into_iter().filter_map(move |unit| {
            let client = &self.lease(unit)?.client;
            client.valid_lease(now)?;
            Some((unit, client.sequence))
        })
    }
}

#[cfg(test)]
mod tests;
