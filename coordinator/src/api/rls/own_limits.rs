//! Limits that descriptors bring along, which hold besides those of their scopes.
//!
//! They are in no configuration, so nobody leases them. Each is a bucket of this node, which gets that
//! part of the limit that the node's lease is of its scope's capacity: so the sum of all nodes is never
//! above the limit. Capacity that no node leases counts as used.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::bucket::TokenBucket;
use tollgate_core::units::{Instant, Rate, Tokens, mul_div};

use super::answer::Verdict;
use super::ask::OwnLimit;
use super::current_limit::CurrentLimit;

/// The most buckets at the same time.
pub(super) const BUCKETS_MAX: usize = 10_000;
/// Time between two searches for buckets that are not in use.
const CLEANUP_EVERY: Duration = Duration::from_secs(1);
/// Micro-tokens of a token.
const MICROS: u64 = 1_000_000;

/// Part of a limit that is this node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    part: u64,
    whole: u64,
}

/// Buckets by the scopes and the limits of their descriptors.
#[derive(Debug, Default)]
pub(super) struct OwnLimits {
    buckets: HashMap<(String, OwnLimit), TokenBucket>,
    cleaned_at: Option<Instant>,
}

// === impl Share ===

impl Share {
    /// All of it.
    pub(super) const WHOLE: Self = Self { part: 1, whole: 1 };

    /// The part that `part` is of `whole`; all of it if there is no whole.
    pub(super) fn of(part: u64, whole: u64) -> Self {
        match whole {
            0 => Self::WHOLE,
            whole => Self {
                part: part.min(whole),
                whole,
            },
        }
    }

    fn mul(self, number: u64) -> u64 {
        mul_div(number, self.part, self.whole.into())
    }
}

// === impl OwnLimits ===

impl OwnLimits {
    /// Takes `tokens` of a descriptor's limit, or none if there are too few; 0 only looks, and is over
    /// if there is not one. A limit for which there is no room refuses.
    pub(super) fn take(
        &mut self,
        now: Instant,
        (scope, limit): (&str, OwnLimit),
        share: Share,
        tokens: u64,
    ) -> Verdict {
        let told = CurrentLimit::per_window(limit.requests, limit.window);
        let refused = Verdict {
            is_over: true,
            limit: Some(told),
            remaining: 0,
            reset: None,
        };
        let Some(bucket) = self.bucket(now, scope, limit, share) else {
            return refused;
        };
        let mut trial = *bucket;
        let taken = trial.take(now, Tokens::from_whole(tokens.max(1)));
        if let Err(error) = taken {
            let reset = error.retry_at().map(|at| at.saturating_since(now));
            return Verdict { reset, ..refused };
        }
        if tokens > 0 {
            *bucket = trial;
        }
        let left = u64::try_from(bucket.balance(now)).unwrap_or(0);
        Verdict {
            is_over: false,
            limit: Some(told),
            remaining: left / MICROS,
            reset: bucket.time_until(now, bucket.burst()),
        }
    }

    /// Gives `tokens` back, up to the burst.
    pub(super) fn give_back(
        &mut self,
        now: Instant,
        (scope, limit): (&str, OwnLimit),
        tokens: u64,
    ) {
        if let Some(bucket) = self.buckets.get_mut(&(scope.to_owned(), limit)) {
            bucket.give_back(now, Tokens::from_whole(tokens));
        }
    }

    fn bucket(
        &mut self,
        now: Instant,
        scope: &str,
        limit: OwnLimit,
        share: Share,
    ) -> Option<&mut TokenBucket> {
        let key = (scope.to_owned(), limit);
        if self.buckets.len() >= BUCKETS_MAX && !self.buckets.contains_key(&key) {
            self.clean(now);
            if self.buckets.len() >= BUCKETS_MAX {
                return None;
            }
        }
        let requests = u64::from(limit.requests) * MICROS;
        let seconds = limit.window.as_secs().max(1);
        let rate = Rate::from_micros(share.mul(requests / seconds));
        // With less than one request no window would have any.
        let burst = Tokens::from_micros(share.mul(requests).max(requests.min(MICROS)));
        let bucket = self.buckets.entry(key);
        let bucket = bucket.or_insert_with(|| TokenBucket::new(now, rate, burst));
        if bucket.rate() != rate || bucket.burst() != burst {
            bucket.set(now, rate, burst);
        }
        Some(bucket)
    }

    /// Forgets the buckets that are full, which new ones would be as well.
    fn clean(&mut self, now: Instant) {
        let is_early = |at: Instant| now.saturating_since(at) < CLEANUP_EVERY;
        if self.cleaned_at.is_some_and(is_early) {
            return;
        }
        self.cleaned_at = Some(now);
        let is_full =
            |bucket: &TokenBucket| bucket.time_until(now, bucket.burst()) == Some(Duration::ZERO);
        self.buckets.retain(|_, bucket| !is_full(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACME: &str = "tenant/acme";

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn per_minute(requests: u32) -> OwnLimit {
        OwnLimit {
            requests,
            window: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_window_passes_at_once_and_then_its_rate() {
        let mut limits = OwnLimits::default();
        let limit = (ACME, per_minute(60));
        let taken = limits.take(at(0), limit, Share::WHOLE, 59);
        assert_eq!((taken.is_over, taken.remaining), (false, 1));
        assert_eq!(taken.reset, Some(Duration::from_secs(59)));
        let looked = limits.take(at(0), limit, Share::WHOLE, 0);
        assert_eq!((looked.is_over, looked.remaining), (false, 1));
        let refused = limits.take(at(0), limit, Share::WHOLE, 3);
        assert_eq!(
            (refused.is_over, refused.reset),
            (true, Some(Duration::from_secs(2)))
        );
        assert!(!limits.take(at(2000), limit, Share::WHOLE, 3).is_over);
        assert!(
            limits.take(at(2000), limit, Share::WHOLE, 0).is_over,
            "none is left"
        );
        limits.give_back(at(2000), limit, 1_000_000);
        let looked = limits.take(at(2000), limit, Share::WHOLE, 0);
        assert_eq!(looked.remaining, 60, "no more than the burst");
        let never = limits.take(at(2000), limit, Share::WHOLE, 61);
        assert_eq!((never.is_over, never.reset), (true, None));
    }

    #[test]
    fn a_node_has_its_share_but_at_least_one_request() {
        let mut limits = OwnLimits::default();
        let third = Share::of(100, 300);
        let taken = limits.take(at(0), (ACME, per_minute(60)), third, 1);
        assert_eq!(taken.remaining, 19);
        let grown = limits.take(at(0), (ACME, per_minute(60)), Share::WHOLE, 0);
        assert_eq!(grown.remaining, 57, "half full stays half full");
        let one = limits.take(at(0), (ACME, per_minute(1)), third, 1);
        assert!(!one.is_over);
        let none = limits.take(at(0), (ACME, per_minute(0)), third, 1);
        assert_eq!((none.is_over, none.reset), (true, None));
        assert_eq!(Share::of(5, 0), Share::WHOLE);
        assert_eq!(Share::of(7, 5), Share::of(5, 5));
    }

    #[test]
    fn more_limits_than_there_is_room_for_refuse_until_some_are_full_again() {
        let mut limits = OwnLimits::default();
        for n in 0..BUCKETS_MAX {
            let taken = limits.take(at(0), (&n.to_string(), per_minute(60)), Share::WHOLE, 1);
            assert!(!taken.is_over);
        }
        let other = ("other", per_minute(60));
        assert!(limits.take(at(0), other, Share::WHOLE, 1).is_over);
        assert!(limits.take(at(999), other, Share::WHOLE, 1).is_over);
        assert!(!limits.take(at(1000), other, Share::WHOLE, 1).is_over);
        assert_eq!(limits.buckets.len(), 1);
    }
}
