//! Wants of a rate limiter, as it reports them, and when they are news.

use super::{ABANDONED_AFTER, RateLimiter};
use crate::client::Policy;
use crate::client::demand_estimator::deviation;
use crate::units::{Capacity, Instant, Tokens};

/// Wants of a client that has something to report, and wants nothing.
const LEAST: Capacity = Capacity::from_micros(1);

// === impl RateLimiter ===

impl RateLimiter {
    /// Time from which there is something else to say than was said, if the wants have changed.
    pub(super) fn news_at(&self, now: Instant) -> Option<Instant> {
        let reported = self.lease.reported;
        if differs(reported, self.to_say(now), self.grain()) {
            return Some(now);
        }
        if !differs(reported, self.demand.wants(), self.grain()) {
            return None;
        }
        let paid = self.bucket.time_until(now, Tokens::ZERO)?;
        if paid.is_zero() {
            self.refills_until(now)
        } else {
            Some(now.saturating_add(paid))
        }
    }

    /// Whether more is wanted than the coordinator has heard of, and it will hear soon.
    pub(super) fn wants_more(&self) -> bool {
        let (reported, wants) = (self.lease.reported, self.demand.wants());
        let client = &self.lease.client;
        client.lease.is_some_and(|lease| lease.capacity < wants)
            && wants > reported
            && client.failures == 0
            && differs(reported, wants, self.grain())
    }

    /// Wants of the client at `now`: the attempts, or, when they have ended, its last wants until
    /// its bucket is full again. Tokens that a bucket earns are part of the capacity as much as
    /// those that are spent: earned beside the leases they would come on top.
    pub(super) fn wants_at(&self, now: Instant, policy: &Policy) -> Capacity {
        let silence = now.saturating_since(self.last_attempt);
        let wants = self.to_say(now);
        if wants > Capacity::ZERO && silence < policy.idle_after {
            return wants;
        }
        // A client with requests that wait does not release its lease, though they are none in the mean.
        if self.draws.needs > Tokens::ZERO {
            return Capacity::from_micros(self.draws.needs.as_micros());
        }
        if self.draws.offered && self.draws.is_settling(now) {
            return LEAST;
        }
        if silence >= ABANDONED_AFTER {
            return Capacity::ZERO;
        }
        if self.refills_until(now).is_some() {
            return self.lease.reported;
        }
        // Counts since the last report reach the coordinator before the lease is released.
        let client = &self.lease.client;
        let has_news = client.tally.has_more() && client.failures == 0;
        if has_news && self.lease.reported > LEAST {
            LEAST
        } else {
            Capacity::ZERO
        }
    }

    /// Wants to say by the present attempts, if they have not been silent for long.
    pub(super) fn to_say(&self, now: Instant) -> Capacity {
        let (wants, reported) = (self.demand.wants(), self.lease.reported);
        if self.bucket.balance(now) < 0 || self.draws.owed > Tokens::ZERO {
            // A client that is told when the debt is paid counts on the rate that it is paid at.
            return wants.max(reported);
        }
        if wants == Capacity::ZERO && self.refills_until(now).is_some() {
            reported
        } else {
            wants
        }
    }
}

// === free functions ===

/// Whether wants have changed enough to tell before the next regular refresh: by a tenth
/// (PIP-82) and by two standard deviations of one second's arrivals, or to or from zero.
fn differs(reported: Capacity, wants: Capacity, grain: u64) -> bool {
    let (old, new) = (reported.as_micros(), wants.as_micros());
    let noise = deviation(old, grain).saturating_mul(2);
    old.abs_diff(new) > noise.max(old / 10) || (old == 0) != (new == 0)
}
