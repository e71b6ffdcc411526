//! What an operator configures for one resource.

use core::time::Duration;

use crate::units::{Capacity, MICRO, Tokens, mul_div};

/// The longest lease: a day. A lease is also how long an error lasts.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The capacity of a resource and how it is lent.
///
/// Build one from [`Limit::new`] and change fields, then [`Limit::validate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What the whole fleet may use; zero blocks, [`Capacity::UNLIMITED`] lets everything pass.
    pub capacity: Capacity,
    /// What the whole fleet may use at once after a pause.
    pub burst: Tokens,
    /// What each client falls back to without a lease; none leaves it to the client's setting.
    pub safe: Option<Capacity>,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How often a client asks again.
    pub refresh: Duration,
    /// The soonest a client may ask again; also how often it asks while shares are shifting.
    pub min_refresh: Duration,
    /// How long a coordinator that starts without books only confirms what clients hold.
    pub learning: Duration,
    /// The part of what nobody wants that is lent to active clients all the same.
    pub headroom: Headroom,
}

/// A part of a whole, in millionths: 0 to 1 000 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom(u32);

/// Which rule a limit breaks, with the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A burst that can never let one request pass.
    #[error("burst: {micros} millionths of a token is less than one token")]
    BurstBelowOne {
        /// The burst, in micro-tokens.
        micros: u64,
    },
    /// A safe capacity that is more than the capacity.
    #[error("safe: {safe} is more than the capacity, {capacity}")]
    SafeAboveCapacity {
        /// The safe capacity.
        safe: Capacity,
        /// The capacity.
        capacity: Capacity,
    },
    /// A duration of zero.
    #[error("{field}: must be longer than zero")]
    Zero {
        /// The field at fault.
        field: &'static str,
    },
    /// A lease longer than [`LEASE_MAX`].
    #[error("lease: {lease:?} is longer than a day")]
    LeaseTooLong {
        /// The lease.
        lease: Duration,
    },
    /// A lease that ends before its client asks again.
    #[error("refresh: {refresh:?} is not shorter than the lease, {lease:?}")]
    RefreshNotBelowLease {
        /// The refresh interval.
        refresh: Duration,
        /// The lease.
        lease: Duration,
    },
    /// Learning that ends while leases of an earlier run may be in use.
    #[error(
        "learning: {learning:?} is shorter than the lease, {lease:?}: leases of an earlier run \
         could still be in use"
    )]
    LearningBelowLease {
        /// The learning time.
        learning: Duration,
        /// The lease.
        lease: Duration,
    },
    /// A minimum above the regular interval.
    #[error("min_refresh: {min_refresh:?} is longer than refresh, {refresh:?}")]
    MinRefreshAboveRefresh {
        /// The minimum refresh interval.
        min_refresh: Duration,
        /// The refresh interval.
        refresh: Duration,
    },
}

// === impl Limit ===

impl Limit {
    /// A limit of `capacity` with the defaults: one second's worth of burst (at least one token),
    /// leases of 10 s refreshed every second, no safe capacity of its own.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            burst: Tokens::from_micros(capacity.as_micros().max(MICRO)),
            safe: None,
            lease: Duration::from_secs(10),
            refresh: Duration::from_secs(1),
            min_refresh: Duration::from_millis(100),
            learning: Duration::from_secs(10),
            headroom: Headroom::HALF,
        }
    }

    /// Checks what the fields must be to each other.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), LimitError> {
        if self.burst < Tokens::ONE {
            return Err(LimitError::BurstBelowOne {
                micros: self.burst.as_micros(),
            });
        }
        if let Some(safe) = self.safe.filter(|safe| *safe > self.capacity) {
            return Err(LimitError::SafeAboveCapacity {
                safe,
                capacity: self.capacity,
            });
        }
        self.validate_times()
    }

    fn validate_times(&self) -> Result<(), LimitError> {
        let Self {
            lease,
            refresh,
            min_refresh,
            ..
        } = *self;
        let times = [
            ("lease", lease),
            ("refresh", refresh),
            ("min_refresh", min_refresh),
        ];
        if let Some((field, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(LimitError::Zero { field });
        }
        if lease > LEASE_MAX {
            return Err(LimitError::LeaseTooLong { lease });
        }
        if refresh >= lease {
            return Err(LimitError::RefreshNotBelowLease { refresh, lease });
        }
        if min_refresh > refresh {
            return Err(LimitError::MinRefreshAboveRefresh {
                min_refresh,
                refresh,
            });
        }
        if self.learning < lease {
            let learning = self.learning;
            return Err(LimitError::LearningBelowLease { learning, lease });
        }
        Ok(())
    }

    /// The part of the burst that goes with `gets`: in proportion, but at least one token, because
    /// a bucket that cannot hold a token never lets a request pass. So the bursts of `n` clients
    /// sum to at most the limit's burst and `n` tokens.
    pub fn burst_for(&self, gets: Capacity) -> Tokens {
        if gets.is_unlimited() || gets >= self.capacity {
            return self.burst;
        }
        let divisor = u128::from(self.capacity.as_micros());
        let part = mul_div(self.burst.as_micros(), gets.as_micros(), divisor);
        Tokens::from_micros(part).max(Tokens::ONE)
    }
}

// === impl Headroom ===

impl Headroom {
    /// Nothing beyond what is wanted.
    pub const NONE: Self = Self(0);
    /// Half of what nobody wants; the other half stays free for newcomers.
    pub const HALF: Self = Self(500_000);
    /// Everything that nobody wants.
    pub const ALL: Self = Self(1_000_000);

    /// The part `value`; `None` unless it is between 0 and 1.
    pub fn try_from_f64(value: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&value)
            .then_some(Self((value * 1e6) as u32))
    }

    /// This part of `capacity`, rounded down.
    pub fn of(self, capacity: Capacity) -> Capacity {
        Capacity::from_micros(mul_div(capacity.as_micros(), self.0.into(), MICRO.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn validate_names_field_value_and_rule() {
        let secs = Duration::from_secs;
        type Change = fn(&mut Limit);
        let rows: [(Change, &str); 8] = [
            (
                |l| l.burst = Tokens::from_micros(5),
                "burst: 5 millionths of a token is less than one token",
            ),
            (
                |l| l.safe = Some(Capacity::from_whole(200)),
                "safe: 200 is more than the capacity, 100",
            ),
            (
                |l| l.min_refresh = Duration::ZERO,
                "min_refresh: must be longer than zero",
            ),
            (
                |l| l.lease = Duration::ZERO,
                "lease: must be longer than zero",
            ),
            (
                |l| l.lease = LEASE_MAX * 2,
                "lease: 172800s is longer than a day",
            ),
            (
                |l| l.lease = l.refresh,
                "refresh: 1s is not shorter than the lease, 1s",
            ),
            (
                |l| l.min_refresh = l.refresh * 2,
                "min_refresh: 2s is longer than refresh, 1s",
            ),
            (
                |l| l.learning = l.lease / 2,
                "learning: 5s is shorter than the lease, 10s: leases of an earlier run could still \
                 be in use",
            ),
        ];
        let good = Limit::new(Capacity::from_whole(100));
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(good.lease, secs(10));
        for (change, want) in rows {
            let mut limit = good.clone();
            change(&mut limit);
            assert_eq!(limit.validate().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn burst_goes_with_the_lease_but_holds_a_token() {
        let mut limit = Limit::new(Capacity::from_whole(1000));
        limit.burst = Tokens::from_whole(200);
        let rows = [(1000, 200), (500, 100), (5, 1), (1, 1), (0, 1), (2000, 200)];
        for (gets, want) in rows {
            let burst = limit.burst_for(Capacity::from_whole(gets));
            assert_eq!(burst, Tokens::from_whole(want), "{gets}");
        }
    }

    #[test]
    fn headroom_is_a_part() {
        assert_eq!(
            Headroom::try_from_f64(0.25).map(|h| h.of(Capacity::from_whole(8))),
            Some(Capacity::from_whole(2))
        );
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Headroom::try_from_f64(bad), None);
        }
    }
}
