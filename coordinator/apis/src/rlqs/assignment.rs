//! Assignments: the limit that a proxy is told for one bucket, and for how long.
//!
//! Envoy reads less of an assignment than the protocol allows, and these stay within that:
//!
//! - It reads whole seconds of a time to live; less than one ends at once.
//! - It reads whole seconds of a fill interval, and divides by them. So a share is whole tokens each
//!   second. One of less than a token a second is one token in several whole seconds.
//! - Without tokens per fill a bucket never fills.
//! - It takes a token bucket for unchanged if only the seconds of its interval have changed. Then the
//!   size of the bucket changes as well.

use std::time::Duration;

use tollgate_core::units::{Capacity, Instant, MICRO, Tokens};
use tollgate_proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy as Kind};
use tollgate_proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};

/// The longest time that an assignment takes on its way to the proxy. The proxy counts an assignment
/// from when it arrives, so one ends this much before its lease; and a lowered share counts as in
/// use for this long after it was sent.
pub(super) const TRANSIT: Duration = Duration::from_secs(1);

/// The longest fill interval: a share of less than a request in an hour is none.
const INTERVAL_MAX_S: u64 = 3600;

/// Limit of one bucket in a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Every request passes.
    AllowAll,
    /// None passes.
    DenyAll,
    /// A request takes a token.
    Tokens {
        /// Size of the bucket, at least 1.
        max: u32,
        /// Tokens in each interval, at least 1.
        fill: u32,
        /// The interval, at least 1.
        interval_s: u32,
    },
}

/// Limit for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) strategy: Strategy,
    /// Whole seconds, at least one.
    pub(super) time_to_live: Duration,
}

/// Assignment that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentAssignment {
    pub(super) strategy: Strategy,
    at: Instant,
    /// End of its time to live if it took no time on its way.
    pub(super) until: Instant,
}

// === impl Strategy ===

impl Strategy {
    /// Returns the strategy that lets no more than `share` pass, beyond `burst` tokens at once.
    pub(super) fn of(share: Capacity, burst: Tokens) -> Self {
        if share.is_unlimited() {
            return Self::AllowAll;
        }
        let micros = share.as_micros();
        let max = to_u32(burst.as_micros() / MICRO).max(1);
        if micros >= MICRO {
            return Self::Tokens {
                max,
                fill: to_u32(micros / MICRO),
                interval_s: 1,
            };
        }
        match MICRO.div_ceil(micros.max(1)) {
            interval if interval > INTERVAL_MAX_S => Self::DenyAll,
            interval => Self::Tokens {
                max,
                fill: 1,
                interval_s: to_u32(interval),
            },
        }
    }

    /// The most that it lets pass, in the long run.
    pub(super) fn rate(self) -> Capacity {
        match self {
            Self::AllowAll => Capacity::UNLIMITED,
            Self::DenyAll => Capacity::ZERO,
            Self::Tokens {
                fill, interval_s, ..
            } => Capacity::from_whole(fill.into()).divided_by(interval_s.into()),
        }
    }

    /// Returns the same strategy in a form that a proxy with the strategy `before` sees as changed.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (
                Self::Tokens {
                    max,
                    fill,
                    interval_s,
                },
                Some(Self::Tokens {
                    max: max_before,
                    fill: fill_before,
                    interval_s: before,
                }),
            ) if (max, fill) == (max_before, fill_before) && interval_s != before => Self::Tokens {
                max: max.saturating_add(1),
                fill,
                interval_s,
            },
            _ => self,
        }
    }

    /// Whether it says the same as `other`, whatever has been done to be seen as changed.
    pub(super) fn is_same_rate(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Tokens {
                    max,
                    fill,
                    interval_s,
                },
                Self::Tokens {
                    max: other_max,
                    fill: other_fill,
                    interval_s: other_interval,
                },
            ) => {
                let near = other_max == max || other_max == max.saturating_add(1);
                near && (fill, interval_s) == (other_fill, other_interval)
            }
            _ => self == other,
        }
    }
}

impl From<Strategy> for RateLimitStrategy {
    fn from(strategy: Strategy) -> Self {
        let kind = match strategy {
            Strategy::AllowAll => Kind::BlanketRule(BlanketRule::AllowAll.into()),
            Strategy::DenyAll => Kind::BlanketRule(BlanketRule::DenyAll.into()),
            Strategy::Tokens {
                max,
                fill,
                interval_s,
            } => Kind::TokenBucket(TokenBucket {
                max_tokens: max,
                tokens_per_fill: Some(fill),
                fill_interval: Duration::from_secs(interval_s.into()).try_into().ok(),
            }),
        };
        Self {
            strategy: Some(kind),
        }
    }
}

// === impl SentAssignment ===

impl SentAssignment {
    /// `assignment`, sent at `now`.
    pub(super) fn new(assignment: Assignment, now: Instant) -> Self {
        Self {
            strategy: assignment.strategy,
            at: now,
            until: now.saturating_add(assignment.time_to_live),
        }
    }

    /// When it is to be sent again if the proxy does not report before.
    ///
    /// Not long before its end: some clients forget their counts with each assignment.
    pub(super) fn renew_at(self) -> Instant {
        let quarter = self.until.saturating_since(self.at) / 4;
        self.until.saturating_sub(quarter)
    }

    /// When it was sent.
    pub(super) fn at(self) -> Instant {
        self.at
    }
}

// === free functions ===

/// Returns the time for which a lease that ends at `expiry` can be assigned at `now`: whole seconds,
/// which may be none.
pub(super) fn time_to_live(expiry: Instant, now: Instant) -> Duration {
    let left = expiry.saturating_since(now).saturating_sub(TRANSIT);
    Duration::from_secs(left.as_secs())
}

/// Whether no lease of this length can be assigned.
pub(super) fn is_too_short(length: Duration) -> bool {
    length.saturating_sub(TRANSIT).as_secs() == 0
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy(micros: u64, burst_micros: u64) -> Strategy {
        Strategy::of(
            Capacity::from_micros(micros),
            Tokens::from_micros(burst_micros),
        )
    }

    fn tokens(max: u32, fill: u32, interval_s: u32) -> Strategy {
        Strategy::Tokens {
            max,
            fill,
            interval_s,
        }
    }

    #[test]
    fn shares_are_whole_tokens_each_second_or_one_in_whole_seconds() {
        let rows = [
            (0, 5 * MICRO, Strategy::DenyAll),
            (1, 5 * MICRO, Strategy::DenyAll),
            (100 * MICRO, 20 * MICRO, tokens(20, 100, 1)),
            (33_333_333, 6_666_666, tokens(6, 33, 1)),
            (MICRO, 0, tokens(1, 1, 1)),
            (MICRO - 1, MICRO, tokens(1, 1, 2)),
            (500_000, MICRO, tokens(1, 1, 2)),
            (300_000, MICRO, tokens(1, 1, 4)),
            (278, MICRO, tokens(1, 1, 3598)),
            (277, MICRO, Strategy::DenyAll),
            (u64::MAX - 1, u64::MAX, tokens(u32::MAX, u32::MAX, 1)),
        ];
        for (micros, burst, want) in rows {
            assert_eq!(strategy(micros, burst), want, "{micros}");
        }
        let all = Strategy::of(Capacity::UNLIMITED, Tokens::ONE);
        assert_eq!(all, Strategy::AllowAll);
    }

    #[test]
    fn no_share_is_rounded_up() {
        for micros in (1..5000).map(|i| i * 997) {
            if let Strategy::Tokens {
                fill, interval_s, ..
            } = strategy(micros, MICRO)
            {
                let assigned = u64::from(fill) * MICRO;
                assert!(assigned <= micros * u64::from(interval_s), "{micros}");
            }
        }
    }

    #[test]
    fn a_change_of_only_the_interval_changes_the_size_too() {
        let rows = [
            (tokens(1, 1, 2), Some(tokens(1, 1, 4)), tokens(2, 1, 2)),
            (tokens(1, 1, 2), Some(tokens(2, 1, 4)), tokens(1, 1, 2)),
            (tokens(1, 1, 1), Some(tokens(1, 1, 2)), tokens(2, 1, 1)),
            (tokens(1, 1, 2), Some(tokens(1, 1, 2)), tokens(1, 1, 2)),
            (tokens(1, 1, 2), Some(Strategy::DenyAll), tokens(1, 1, 2)),
            (tokens(1, 1, 2), None, tokens(1, 1, 2)),
        ];
        for (strategy, before, want) in rows {
            assert_eq!(
                strategy.after(before),
                want,
                "{strategy:?} after {before:?}"
            );
            assert!(strategy.is_same_rate(want));
        }
        assert!(!tokens(1, 1, 2).is_same_rate(tokens(1, 1, 3)));
        assert!(!tokens(1, 1, 2).is_same_rate(tokens(3, 1, 2)));
    }

    #[test]
    fn an_assignment_ends_before_its_lease_even_if_it_was_long_on_its_way() {
        let now = Instant::from_nanos(5_000_000_000);
        for (millis, want) in [
            (0, 0),
            (1999, 0),
            (2000, 1),
            (2999, 1),
            (10_000, 9),
            (9_990, 8),
        ] {
            let lease = Duration::from_millis(millis);
            let expiry = now.saturating_add(lease);
            let assigned = time_to_live(expiry, now);
            assert_eq!(assigned.as_secs(), want, "{millis} ms");
            assert_eq!(assigned.subsec_nanos(), 0);
            assert!(assigned.is_zero() || assigned + TRANSIT <= lease);
        }
    }

    #[test]
    fn zero_seconds_and_missing_tokens_are_never_sent() {
        for micros in [0, 1, 999_999, MICRO, 77_777_777] {
            let message = RateLimitStrategy::from(strategy(micros, 0));
            if let Some(Kind::TokenBucket(bucket)) = message.strategy {
                assert!(bucket.max_tokens >= 1 && bucket.tokens_per_fill >= Some(1));
                let interval = bucket.fill_interval.unwrap();
                assert!(interval.seconds >= 1 && interval.nanos == 0);
            }
        }
    }
}
