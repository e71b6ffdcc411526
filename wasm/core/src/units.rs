//! Instants, tokens, rates and capacities: checked fixed-point integers.
//!
//! Floats are not associative, so sums of leases kept in floats drift; the laws of this project
//! are about exact sums. Everything here is therefore an integer in millionths ("micro"), and all
//! arithmetic saturates: neither a clock that stands still nor a hostile number can overflow.
//! Floats exist at the edges only, through [`Capacity::try_from_f64`] and
//! [`Capacity::as_f64`].

use core::fmt;
use core::time::Duration;

mod rate_period;
mod wall_time;
mod windowed_rate;

pub use self::rate_period::RatePeriod;
pub use self::wall_time::{WallClock, WallTime};
pub use self::windowed_rate::WindowedRate;

/// Millionths in one token, and in one unit of capacity.
pub const MICRO: u64 = 1_000_000;

pub(crate) const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A point in time: nanoseconds since an epoch that only its source knows.
///
/// Comparable only with instants from the same monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// An amount of tokens, in micro-tokens. Range: 0 to `u64::MAX` micro-tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(u64);

/// Tokens per second, in micro-tokens per second; [`Rate::UNLIMITED`] is a value of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// Capacity of a resource, or what a client wants, has or gets of it, in millionths.
///
/// For the unit `requests` one is one request per second; for `concurrency` it is one in flight.
/// Range: 0 to [`Capacity::MAX`], or [`Capacity::UNLIMITED`]. Zero blocks; it does not mean
/// "no limit".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(u64);

/// Error in a number that is to be a capacity.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CapacityError {
    /// NaN or an infinity.
    #[error("{0} is not a finite number")]
    NotFinite(f64),
    /// Below zero.
    #[error("{0} is negative")]
    Negative(f64),
    /// Above [`Capacity::MAX`].
    #[error("{0} is more than the largest capacity, 1e12")]
    TooLarge(f64),
}

// === impl Instant ===

impl Instant {
    /// The epoch of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `duration` later, or the last one that can be represented.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The instant `duration` earlier, or the epoch.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// The time since `earlier`; zero if `earlier` is later, as after a clock that went backwards.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

// === impl Tokens ===

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);
    /// One whole token.
    pub const ONE: Self = Self(MICRO);
    /// As many as can be.
    pub const MAX: Self = Self(u64::MAX);

    /// `micros` millionths of a token.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `tokens` whole tokens, or the most that can be represented.
    pub const fn from_whole(tokens: u64) -> Self {
        Self(tokens.saturating_mul(MICRO))
    }

    /// Millionths of a token.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole tokens, rounded down.
    pub const fn whole(self) -> u64 {
        self.0 / MICRO
    }

    /// The sum, or the most that can be represented.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

// === impl Rate ===

impl Rate {
    /// Nothing passes.
    pub const ZERO: Self = Self(0);
    /// Everything passes.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// `micros` micro-tokens per second.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `tokens` tokens per second.
    pub const fn from_whole(tokens: u64) -> Self {
        Self(tokens.saturating_mul(MICRO))
    }

    /// Micro-tokens per second.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whether everything passes.
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// The tokens that `duration` earns at this rate, rounded down.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tollgate_core::units::{Rate, Tokens};
    /// let earned = Rate::from_whole(1000).tokens_in(Duration::from_millis(5));
    /// assert_eq!(earned, Tokens::from_whole(5));
    /// ```
    pub fn tokens_in(self, duration: Duration) -> Tokens {
        Tokens(mul_div(self.0, nanos(duration), NANOS_PER_SEC))
    }

    /// The time in which this rate earns `tokens`, rounded up; `None` if it never does.
    pub fn time_for(self, tokens: Tokens) -> Option<Duration> {
        if tokens.0 == 0 || self.is_unlimited() {
            return Some(Duration::ZERO);
        }
        let nanos = u128::from(tokens.0).checked_mul(NANOS_PER_SEC)?;
        let nanos = nanos.checked_add(u128::from(self.0).saturating_sub(1))?;
        let nanos = nanos.checked_div(u128::from(self.0))?;
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

// === impl Capacity ===

impl Capacity {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest capacity that is a number: 10^12 units.
    pub const MAX: Self = Self(1_000_000_000_000 * MICRO);
    /// No limit at all.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// `micros` millionths, at most [`Capacity::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// A sum of millionths, at most [`Capacity::MAX`].
    pub fn from_sum(micros: u128) -> Self {
        Self::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// `units` whole units, at most [`Capacity::MAX`].
    pub const fn from_whole(units: u64) -> Self {
        Self::from_micros(units.saturating_mul(MICRO))
    }

    /// The capacity nearest to `value` units.
    ///
    /// # Errors
    /// If `value` is not finite, negative, or more than [`Capacity::MAX`].
    pub fn try_from_f64(value: f64) -> Result<Self, CapacityError> {
        if !value.is_finite() {
            return Err(CapacityError::NotFinite(value));
        }
        if value < 0.0 {
            return Err(CapacityError::Negative(value));
        }
        // The bound keeps the product far below 2^64, so that the cast only rounds.
        if value > 1e12 {
            return Err(CapacityError::TooLarge(value));
        }
        Ok(Self::from_micros((value * 1e6 + 0.5) as u64))
    }

    /// Units as a float, infinity if unlimited; for reports only.
    pub fn as_f64(self) -> f64 {
        if self.is_unlimited() {
            f64::INFINITY
        } else {
            self.0 as f64 / 1e6
        }
    }

    /// Millionths.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whether there is no limit at all.
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// This capacity as tokens per second, for units that are rates.
    pub const fn as_rate(self) -> Rate {
        Rate(self.0)
    }

    /// The sum, at most [`Capacity::MAX`]; unlimited if either is.
    pub const fn saturating_add(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() {
            return Self::UNLIMITED;
        }
        Self::from_micros(self.0.saturating_add(other.0))
    }

    /// This capacity for each of `count`, at most [`Capacity::MAX`]; unlimited if it is.
    pub const fn saturating_mul(self, count: u64) -> Self {
        if self.is_unlimited() {
            return self;
        }
        Self::from_micros(self.0.saturating_mul(count))
    }

    /// An equal part for each of `count`, rounded down; all of it if `count` is zero or it is
    /// unlimited.
    pub fn divided_by(self, count: u64) -> Self {
        if self.is_unlimited() {
            return self;
        }
        Self(self.0.checked_div(count).unwrap_or(self.0))
    }

    /// Capacity that is left when `lent` millionths are lent; unlimited if this is.
    pub fn left_of(self, lent: u128) -> Self {
        if self.is_unlimited() {
            return self;
        }
        let lent = u64::try_from(lent).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(lent))
    }

    /// The difference, or zero; unlimited less anything finite is unlimited.
    pub const fn saturating_sub(self, other: Self) -> Self {
        if self.is_unlimited() && !other.is_unlimited() {
            return Self::UNLIMITED;
        }
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            f.write_str("unlimited")
        } else {
            self.as_f64().fmt(f)
        }
    }
}

// === free functions ===

/// `a * b / divisor` without overflow, rounded down, at most `u64::MAX`; zero if `divisor` is.
pub fn mul_div(a: u64, b: u64, divisor: u128) -> u64 {
    let product = u128::from(a).saturating_mul(u128::from(b));
    u64::try_from(product.checked_div(divisor).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// `duration` in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_from_f64_says_what_is_wrong() {
        let rows = [
            (f64::NAN, "NaN is not a finite number"),
            (f64::INFINITY, "inf is not a finite number"),
            (-1.0, "-1 is negative"),
            (
                1e13,
                "10000000000000 is more than the largest capacity, 1e12",
            ),
        ];
        for (value, want) in rows {
            let error = Capacity::try_from_f64(value).unwrap_err();
            assert_eq!(std::format!("{error}"), want);
        }
        assert_eq!(Capacity::try_from_f64(0.0), Ok(Capacity::ZERO));
        assert_eq!(Capacity::try_from_f64(-0.0), Ok(Capacity::ZERO));
        assert_eq!(
            Capacity::try_from_f64(0.25),
            Ok(Capacity::from_micros(250_000))
        );
        assert_eq!(Capacity::try_from_f64(1e12), Ok(Capacity::MAX));
    }

    #[test]
    fn unlimited_is_neither_a_number_nor_lost_in_arithmetic() {
        assert_eq!(
            Capacity::UNLIMITED.saturating_sub(Capacity::from_whole(1)),
            Capacity::UNLIMITED
        );
        assert_eq!(
            Capacity::UNLIMITED.saturating_add(Capacity::from_whole(1)),
            Capacity::UNLIMITED
        );
        assert!(!Capacity::MAX.saturating_add(Capacity::MAX).is_unlimited());
    }

    #[test]
    fn time_for_is_the_inverse_of_tokens_in_rounded_up() {
        let rows = [(1, 1), (3, 1), (7, 3), (1000, 17), (999_999, 1)];
        for (rate, tokens) in rows {
            let (rate, tokens) = (Rate::from_whole(rate), Tokens::from_whole(tokens));
            let time = rate.time_for(tokens).unwrap();
            assert!(rate.tokens_in(time) >= tokens, "{rate:?} {tokens:?}");
            let less = time.saturating_sub(Duration::from_nanos(1));
            assert!(rate.tokens_in(less) < tokens, "{rate:?} {tokens:?}");
        }
        assert_eq!(Rate::ZERO.time_for(Tokens::ONE), None);
        assert_eq!(Rate::UNLIMITED.time_for(Tokens::ONE), Some(Duration::ZERO));
    }

    #[test]
    fn instants_saturate() {
        let late = Instant::from_nanos(u64::MAX);
        assert_eq!(late.saturating_add(Duration::MAX), late);
        assert_eq!(Instant::ZERO.saturating_since(late), Duration::ZERO);
        assert_eq!(Instant::ZERO.saturating_sub(Duration::MAX), Instant::ZERO);
    }
}
