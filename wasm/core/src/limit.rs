//! Limits: the operator's configuration of one resource.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::lease::Priority;
use crate::quota::Quotas;
use crate::share::Quantum;
use crate::units::{Capacity, MICRO, RatePeriod, Tokens, mul_div};

/// The longest lease: a day. A lease is also how long an error lasts.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Capacity of a resource, and the rules by which it is lent.
///
/// Build one from [`Limit::new`] and change fields, then [`Limit::validate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Capacity for the whole fleet; zero blocks, [`Capacity::UNLIMITED`] lets everything pass.
    pub capacity: Capacity,
    /// Period for which the capacity was written, if it named one: in it people are told of the limit.
    pub period: Option<RatePeriod>,
    /// Tokens that the whole fleet may use at once after a pause.
    pub burst: Tokens,
    /// Algorithm that divides the capacity between clients.
    pub algorithm: Algorithm,
    /// Capacity that each client falls back to without a lease.
    pub safe: SafeCapacity,
    /// Length of a lease.
    pub lease: Duration,
    /// Interval at which a client asks again.
    pub refresh: Duration,
    /// The soonest a client may ask again; also the interval at which it asks while shares are
    /// shifting.
    pub min_refresh: Duration,
    /// Time for which a coordinator that starts without a lease table only confirms the leases of
    /// clients.
    pub learning: Duration,
    /// Part of the unwanted capacity that is lent to active clients all the same.
    pub headroom: Part,
    /// Part of the capacity that is kept for clients that have nothing yet.
    pub reserve: Part,
    /// Capacity that each priority band gets before higher ones are filled, as far as it is wanted.
    pub guaranteed: Guarantees,
    /// Amounts that the whole fleet may use within windows of time, beside the capacity.
    pub quotas: Quotas,
}

/// Algorithm that divides a capacity between the clients that want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Each client gets what it wants: counted, not limited.
    None,
    /// The capacity is each client's own: it gets what it wants up to that, whatever others do.
    Static,
    /// Each client is sure of an equal part; the unwanted rest of these parts goes to the others in
    /// proportion to what they want beyond it. (Doorman's `PROPORTIONAL_SHARE`.)
    ProportionalShare,
    /// Weighted max-min: no client gets more except by taking from one that has less for its
    /// weight.
    #[default]
    FairShare,
    /// In proportion to what each client used. (Pulsar's PIP-82, within the capacity; see
    /// [`usage_share`](crate::share::usage_share).)
    UsageShare,
    /// By rounds that take from clients that are not busy and give to those that are. (Hermes'
    /// max-rate, within the capacity; see [`max_rate`](crate::share::max_rate).)
    MaxRate,
}

/// Capacity that a client falls back to without a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SafeCapacity {
    /// Its own setting.
    #[default]
    Client,
    /// This capacity each.
    Fixed(Capacity),
    /// The capacity divided by the clients that are known, subclients counted, as in Doorman.
    Dynamic,
}

/// A minimum for each priority band; none by default. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarantees(Option<Arc<[Capacity; Priority::COUNT]>>);

/// A part of a whole, in millionths: 0 to 1 000 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u32);

/// Rule that a limit breaks, with the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A burst that can never let one request pass.
    #[error("burst: {burst} is less than one token")]
    BurstBelowOne {
        /// The burst, in tokens.
        burst: Capacity,
    },
    /// A safe capacity that is more than the capacity.
    #[error("safe: {safe} is more than the capacity, {capacity}")]
    SafeAboveCapacity {
        /// The safe capacity.
        safe: Capacity,
        /// The capacity.
        capacity: Capacity,
    },
    /// Minimums that are more together than the capacity.
    #[error("guaranteed: the bands' sum of {sum} is more than the capacity, {capacity}")]
    GuaranteedAboveCapacity {
        /// Sum of the bands' minimums.
        sum: Capacity,
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
    /// leases of 10 s refreshed every second, no safe capacity of its own, divided by max-min.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            period: None,
            burst: Tokens::from_micros(capacity.as_micros().max(MICRO)),
            algorithm: Algorithm::FairShare,
            safe: SafeCapacity::Client,
            lease: Duration::from_secs(10),
            refresh: Duration::from_secs(1),
            min_refresh: Duration::from_millis(100),
            learning: Duration::from_secs(10),
            headroom: Part::HALF,
            reserve: Part::NONE,
            guaranteed: Guarantees::default(),
            quotas: Quotas::default(),
        }
    }

    /// Whether it has a capacity of its own: that of a limit with a quota alone is so much a second, which bounds
    /// nothing.
    pub fn has_capacity(&self) -> bool {
        let of_quota = self.quotas.least().map(Tokens::as_micros);
        let is_of_quota = of_quota == Some(self.capacity.as_micros()) && self.period.is_none();
        !self.capacity.is_unlimited() && !is_of_quota
    }

    /// Checks what the fields must be to each other.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), LimitError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All rules that are broken of what the fields must be to each other.
    pub fn faults(&self) -> Vec<LimitError> {
        let mut faults = Vec::new();
        if self.burst < Tokens::ONE {
            let burst = Capacity::from_micros(self.burst.as_micros());
            faults.push(LimitError::BurstBelowOne { burst });
        }
        let capacity = self.capacity;
        if let SafeCapacity::Fixed(safe) = self.safe
            && safe > capacity
        {
            faults.push(LimitError::SafeAboveCapacity { safe, capacity });
        }
        let sum = self.guaranteed.sum();
        if sum > capacity {
            faults.push(LimitError::GuaranteedAboveCapacity { sum, capacity });
        }
        self.time_faults(&mut faults);
        faults
    }

    fn time_faults(&self, faults: &mut Vec<LimitError>) {
        let Self {
            lease,
            refresh,
            min_refresh,
            learning,
            ..
        } = *self;
        let times = [
            ("lease", lease),
            ("refresh", refresh),
            ("min_refresh", min_refresh),
        ];
        let zero = times.into_iter().filter(|(_, time)| time.is_zero());
        faults.extend(zero.map(|(field, _)| LimitError::Zero { field }));
        if lease > LEASE_MAX {
            faults.push(LimitError::LeaseTooLong { lease });
        }
        // A zero is reported already.
        if refresh >= lease && !lease.is_zero() {
            faults.push(LimitError::RefreshNotBelowLease { refresh, lease });
        }
        if min_refresh > refresh && !refresh.is_zero() {
            faults.push(LimitError::MinRefreshAboveRefresh {
                min_refresh,
                refresh,
            });
        }
        if learning < lease {
            faults.push(LimitError::LearningBelowLease { learning, lease });
        }
    }

    /// Capacity that clients divide between them: without the reserve, in multiples of `quantum`;
    /// no bound if each client has its own.
    pub(crate) fn divided(&self, quantum: Quantum) -> Capacity {
        if self.capacity.is_unlimited() || !self.algorithm.shares() {
            return Capacity::UNLIMITED;
        }
        let reserve = quantum.floor(self.reserve.of(self.capacity));
        quantum.floor(self.capacity).saturating_sub(reserve)
    }

    /// The part of the burst that goes with `gets`: in proportion, but at least one token, because
    /// a bucket that cannot hold a token never lets a request pass. So the bursts of `n` clients
    /// sum to at most the limit's burst and `n` tokens.
    pub fn burst_for(&self, gets: Capacity) -> Tokens {
        burst_part(self.burst, self.capacity, gets)
    }
}

// === impl Algorithm ===

impl Algorithm {
    /// All algorithms by their names in configurations and answers.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("fair_share", Self::FairShare),
        ("proportional_share", Self::ProportionalShare),
        ("usage_share", Self::UsageShare),
        ("max_rate", Self::MaxRate),
        ("static", Self::Static),
        ("none", Self::None),
    ];

    /// Returns its name in configurations and answers.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, known)| *known == self);
        known.map_or("", |(name, _)| name)
    }

    /// Whether clients share one capacity, rather than have each its own.
    pub const fn shares(self) -> bool {
        match self {
            Self::FairShare | Self::ProportionalShare | Self::UsageShare | Self::MaxRate => true,
            Self::None | Self::Static => false,
        }
    }

    /// Whether shares depend on what clients use, rather than on what they want. Priority bands
    /// and what they are guaranteed mean nothing then.
    pub const fn goes_by_usage(self) -> bool {
        matches!(self, Self::UsageShare | Self::MaxRate)
    }
}

// === impl Guarantees ===

impl Guarantees {
    /// At least `capacity` for the band `priority`, as far as it wants it.
    #[must_use]
    pub fn with(self, priority: Priority, capacity: Capacity) -> Self {
        let mut bands = self.0.map_or([Capacity::ZERO; _], |bands| *bands);
        if let Some(band) = bands.get_mut(usize::from(priority.level())) {
            *band = capacity;
        }
        let some = bands.iter().any(|band| *band > Capacity::ZERO);
        Self(some.then(|| Arc::new(bands)))
    }

    /// Minimum of the band `priority`.
    pub fn of(&self, priority: Priority) -> Capacity {
        let bands = self.0.as_ref();
        let band = bands.and_then(|bands| bands.get(usize::from(priority.level())));
        band.copied().unwrap_or_default()
    }

    /// Sum of the minimums of all bands.
    pub fn sum(&self) -> Capacity {
        let bands = self.0.iter().flat_map(|bands| bands.iter());
        bands.fold(Capacity::ZERO, |sum, band| sum.saturating_add(*band))
    }

    /// Whether no band has a minimum.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

// === impl Part ===

impl Part {
    /// Nothing beyond what is wanted.
    pub const NONE: Self = Self(0);
    /// Half of the unwanted capacity; the other half stays free for newcomers.
    pub const HALF: Self = Self(500_000);
    /// All of the unwanted capacity.
    pub const ALL: Self = Self(1_000_000);

    /// The part `value`; `None` unless it is between 0 and 1.
    pub fn try_from_f64(value: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&value)
            .then_some(Self((value * 1e6) as u32))
    }

    /// The part of `micros` millionths; `None` if that is more than the whole.
    pub const fn try_from_micros(micros: u32) -> Option<Self> {
        if micros <= Self::ALL.0 {
            Some(Self(micros))
        } else {
            None
        }
    }

    /// Millionths of the whole.
    pub const fn as_micros(self) -> u32 {
        self.0
    }

    /// This part of `capacity`, rounded down.
    pub fn of(self, capacity: Capacity) -> Capacity {
        Capacity::from_micros(mul_div(capacity.as_micros(), self.0.into(), MICRO.into()))
    }
}

// === free functions ===

/// Returns the part of `burst` that goes with `gets` of `capacity`, see [`Limit::burst_for`].
pub(crate) fn burst_part(burst: Tokens, capacity: Capacity, gets: Capacity) -> Tokens {
    if gets.is_unlimited() || gets >= capacity {
        return burst;
    }
    let divisor = u128::from(capacity.as_micros());
    let part = mul_div(burst.as_micros(), gets.as_micros(), divisor);
    Tokens::from_micros(part).max(Tokens::ONE)
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn validate_names_field_value_and_rule() {
        let secs = Duration::from_secs;
        type Change = fn(&mut Limit);
        let rows: [(Change, &str); 9] = [
            (
                |l| l.burst = Tokens::from_micros(5),
                "burst: 0.000005 is less than one token",
            ),
            (
                |l| l.safe = SafeCapacity::Fixed(Capacity::from_whole(200)),
                "safe: 200 is more than the capacity, 100",
            ),
            (
                |l| {
                    let bands = Guarantees::default();
                    let bands = bands.with(Priority::HIGHEST, Capacity::from_whole(60));
                    l.guaranteed = bands.with(Priority::LOWEST, Capacity::from_whole(41));
                },
                "guaranteed: the bands' sum of 101 is more than the capacity, 100",
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
        let mut longest = good.clone();
        (longest.lease, longest.learning) = (LEASE_MAX, LEASE_MAX);
        longest.min_refresh = longest.refresh;
        assert_eq!(longest.validate(), Ok(()));
        assert_eq!(good.lease, secs(10));
        for (change, want) in rows {
            let mut limit = good.clone();
            change(&mut limit);
            assert_eq!(limit.validate().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn all_rules_that_are_broken_are_said() {
        let mut limit = Limit::new(Capacity::from_whole(100));
        limit.burst = Tokens::ZERO;
        limit.safe = SafeCapacity::Fixed(Capacity::from_whole(200));
        limit.refresh = limit.lease;
        limit.min_refresh = Duration::ZERO;
        limit.learning = Duration::ZERO;
        let faults = limit.faults().into_iter().map(|fault| fault.to_string());
        let fields = faults.map(|text| text.split(':').next().unwrap_or_default().to_string());
        let fields: Vec<_> = fields.collect();
        assert_eq!(
            fields,
            ["burst", "safe", "min_refresh", "refresh", "learning"]
        );
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
    fn a_part_is_between_nothing_and_all() {
        assert_eq!(
            Part::try_from_f64(0.25).map(|part| part.of(Capacity::from_whole(8))),
            Some(Capacity::from_whole(2))
        );
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Part::try_from_f64(bad), None);
        }
        assert_eq!(Part::try_from_micros(1_000_000), Some(Part::ALL));
        assert_eq!(Part::try_from_micros(1_000_001), None);
    }
}
