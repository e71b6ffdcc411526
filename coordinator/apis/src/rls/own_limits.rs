//! Limits that descriptors bring along, which hold besides those of their scopes.
//!
//! They are in no configuration, so nobody leases them. Each is a bucket of this node, whose burst is the
//! limit divided by the number of nodes, and whose rate is that part of the limit that the node's lease
//! is of its scope's capacity: so the sum of all nodes is never above the limit, however the leases move.
//! Tokens that no node leases count as used. There are two exceptions: a node may pass at least one request, and
//! for as long as some nodes have a lease and others have lost theirs, those others earn their part as well.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_core::bucket::TokenBucket;
use tollgate_core::units::{Instant, Rate, Tokens, mul_div};

use super::ask::OwnLimit;
use super::current_limit::CurrentLimit;
use super::verdict::Verdict;

/// The most buckets at the same time.
pub(super) const BUCKETS_MAX: usize = 10_000;
/// The most limits whose scopes share a bucket when there is no room for more of their own.
const SHARED_MAX: usize = 100;
/// Time between two searches for buckets that are not in use.
const CLEANUP_EVERY: Duration = Duration::from_secs(1);
/// Micro-tokens of a request: as many as keep a full bucket below `FULL_MAX`, so that also one request per
/// year is earned at its rate.
const GRAINS: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// The most micro-tokens of a bucket for which more grains than the fewest are used.
const FULL_MAX: u64 = 1_000_000_000_000_000;

/// Part of a limit that is this node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    part: u64,
    whole: u64,
}

/// How a limit is divided between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Number of nodes, between which the burst is divided.
    pub(super) nodes: u64,
    /// Part of the rate that is this node's.
    pub(super) rate: Share,
}

/// Buckets by the scopes and the limits of their descriptors.
#[derive(Debug, Default)]
pub(super) struct OwnLimits {
    buckets: HashMap<(String, OwnLimit), TokenBucket>,
    /// Buckets of all scopes that came when there was no room for their own.
    shared: HashMap<OwnLimit, TokenBucket>,
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

// === impl OwnLimit ===

impl OwnLimit {
    /// Micro-tokens of one request.
    fn grain(self) -> u64 {
        let requests = u64::from(self.requests).max(1);
        (FULL_MAX / requests).clamp(*GRAINS.start(), *GRAINS.end())
    }

    fn tokens(self, requests: u64) -> Tokens {
        Tokens::from_micros(requests.saturating_mul(self.grain()))
    }

    /// Rate and burst of a node's bucket.
    fn flow(self, division: Division) -> (Rate, Tokens) {
        let full = self.tokens(self.requests.into()).as_micros();
        let rate = division.rate.mul(full) / self.window.as_secs().max(1);
        // With less than one request no window would have any.
        let least = full.min(self.grain());
        let burst = (full / division.nodes.max(1)).max(least);
        (Rate::from_micros(rate), Tokens::from_micros(burst))
    }

    fn bucket(self, now: Instant, division: Division) -> TokenBucket {
        let (rate, burst) = self.flow(division);
        TokenBucket::new(now, rate, burst)
    }
}

// === impl OwnLimits ===

impl OwnLimits {
    /// Takes `hits` of a descriptor's limit, or none if there are too few; 0 only looks, and is over
    /// if there is not one.
    pub(super) fn take(
        &mut self,
        now: Instant,
        (scope, limit): (&str, OwnLimit),
        division: Division,
        hits: u64,
    ) -> Verdict {
        let current = CurrentLimit::per_window(limit.requests, limit.window);
        let refused = Verdict {
            is_over: true,
            limit: Some(current),
            remaining: 0,
            reset: None,
        };
        let Some(bucket) = self.bucket(now, scope, limit, division) else {
            return refused;
        };
        let mut trial = *bucket;
        let taken = trial.take(now, limit.tokens(hits.max(1)));
        if let Err(error) = taken {
            let reset = error.retry_at().map(|at| at.saturating_since(now));
            return Verdict { reset, ..refused };
        }
        if hits > 0 {
            *bucket = trial;
        }
        let left = u64::try_from(bucket.balance(now)).unwrap_or(0);
        Verdict {
            is_over: false,
            limit: Some(current),
            remaining: left / limit.grain(),
            reset: bucket.time_until(now, bucket.burst()),
        }
    }

    /// Gives `hits` back, up to the burst.
    pub(super) fn give_back(&mut self, now: Instant, (scope, limit): (&str, OwnLimit), hits: u64) {
        let own = self.buckets.get_mut(&(scope.to_owned(), limit));
        if let Some(bucket) = own.or_else(|| self.shared.get_mut(&limit)) {
            bucket.give_back(now, limit.tokens(hits));
        }
    }

    /// Returns the bucket of a descriptor's limit; the one that all shared scopes have when there is no
    /// room, and none if there is none for that either.
    fn bucket(
        &mut self,
        now: Instant,
        scope: &str,
        limit: OwnLimit,
        division: Division,
    ) -> Option<&mut TokenBucket> {
        let key = (scope.to_owned(), limit);
        let is_new = !self.buckets.contains_key(&key);
        if is_new && self.buckets.len() >= BUCKETS_MAX {
            self.clean(now);
        }
        let fresh = || limit.bucket(now, division);
        let bucket = if !is_new || self.buckets.len() < BUCKETS_MAX {
            self.buckets.entry(key).or_insert_with(fresh)
        } else if self.shared.contains_key(&limit) || self.shared.len() < SHARED_MAX {
            self.shared.entry(limit).or_insert_with(fresh)
        } else {
            return None;
        };
        let (rate, burst) = limit.flow(division);
        bucket.set(now, rate, burst);
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
        self.shared.retain(|_, bucket| !is_full(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACME: &str = "tenant/acme";
    /// All of a limit, on a node that is alone.
    const ALONE: Division = Division {
        nodes: 1,
        rate: Share::WHOLE,
    };

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
        let taken = limits.take(at(0), limit, ALONE, 59);
        assert_eq!((taken.is_over, taken.remaining), (false, 1));
        assert_eq!(taken.reset, Some(Duration::from_secs(59)));
        let looked = limits.take(at(0), limit, ALONE, 0);
        assert_eq!((looked.is_over, looked.remaining), (false, 1));
        let refused = limits.take(at(0), limit, ALONE, 3);
        assert_eq!(
            (refused.is_over, refused.reset),
            (true, Some(Duration::from_secs(2)))
        );
        assert!(!limits.take(at(2000), limit, ALONE, 3).is_over);
        assert!(
            limits.take(at(2000), limit, ALONE, 0).is_over,
            "none is left"
        );
        limits.give_back(at(2000), limit, 1_000_000);
        let looked = limits.take(at(2000), limit, ALONE, 0);
        assert_eq!(looked.remaining, 60, "no more than the burst");
        let never = limits.take(at(2000), limit, ALONE, 61);
        assert_eq!((never.is_over, never.reset), (true, None));
    }

    #[test]
    fn a_node_has_its_part_but_at_least_one_request() {
        let mut limits = OwnLimits::default();
        let third = Division {
            nodes: 3,
            rate: Share::of(100, 300),
        };
        let taken = limits.take(at(0), (ACME, per_minute(60)), third, 1);
        assert_eq!(taken.remaining, 19);
        let one = limits.take(at(0), (ACME, per_minute(1)), third, 1);
        assert!(!one.is_over);
        let none = limits.take(at(0), (ACME, per_minute(0)), third, 1);
        assert_eq!((none.is_over, none.reset), (true, None));
        assert_eq!(Share::of(5, 0), Share::WHOLE);
        assert_eq!(Share::of(7, 5), Share::of(5, 5));
    }

    #[test]
    fn a_lease_that_moves_between_nodes_mints_no_requests() {
        let limit = (ACME, per_minute(60));
        let with = |part| Division {
            nodes: 2,
            rate: Share::of(part, 100),
        };
        let mut nodes = [OwnLimits::default(), OwnLimits::default()];
        let mut passed = 0;
        for (lent, second) in [(100, 0), (0, 10), (100, 20), (0, 30), (50, 40)] {
            for (node, part) in nodes.iter_mut().zip([lent, 100 - lent]) {
                while !node.take(at(second * 1000), limit, with(part), 1).is_over {
                    passed += 1;
                }
            }
        }
        assert_eq!(passed, 60 + 40, "the burst, and one each second");
        // Nor does a node that leaves.
        let alone = nodes.map(|mut node| node.take(at(40_000), limit, ALONE, 1).is_over);
        assert_eq!(alone, [true, true]);
    }

    #[test]
    fn few_requests_of_a_long_window_are_earned_at_their_rate() {
        const DAY: u64 = 24 * 3600;
        for (requests, days) in [(1, 365), (2, 30), (31, 365), (7, 30), (u32::MAX, 365)] {
            let limit = OwnLimit {
                requests,
                window: Duration::from_secs(days * DAY),
            };
            let mut limits = OwnLimits::default();
            let all = limits.take(at(0), (ACME, limit), ALONE, requests.into());
            assert!(!all.is_over && all.remaining == 0);
            let reset = all.reset.unwrap().as_secs_f64();
            let window = limit.window.as_secs_f64();
            assert!((reset / window - 1.0).abs() < 1e-3, "{reset} of {window}");
        }
    }

    #[test]
    fn scopes_share_a_bucket_while_there_is_no_room_for_their_own() {
        let mut limits = OwnLimits::default();
        for n in 0..BUCKETS_MAX {
            let scope = (n.to_string(), per_minute(60));
            let taken = limits.take(at(0), (&scope.0, scope.1), ALONE, 1);
            assert!(!taken.is_over);
        }
        let mut left = |millis, scope, hits| {
            let limit = (scope, per_minute(60));
            let taken = limits.take(at(millis), limit, ALONE, hits);
            (!taken.is_over).then_some(taken.remaining)
        };
        assert_eq!(left(0, "other", 40), Some(20));
        assert_eq!(left(0, "another", 15), Some(5));
        assert_eq!(left(999, "other", 10), None);
        assert_eq!(left(1000, "other", 40), Some(20), "there is room again");
        assert_eq!((limits.buckets.len(), limits.shared.len()), (1, 1));
        for n in 0..BUCKETS_MAX {
            limits.take(at(1000), (&n.to_string(), per_minute(60)), ALONE, 1);
        }
        for requests in 0..200 {
            let limit = (ACME, per_minute(requests));
            limits.take(at(1000), limit, ALONE, 1);
        }
        assert_eq!(limits.buckets.len(), BUCKETS_MAX);
        assert_eq!(limits.shared.len(), SHARED_MAX);
    }
}
