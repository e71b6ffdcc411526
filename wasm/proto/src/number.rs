//! Numbers on the wire: doubles and milliseconds.
//!
//! Core counts in integers, the wire carries doubles so that any client can read them. What is
//! sent is never more than what is meant: above 2^51 millionths (2.25e9 requests per second) a
//! double cannot hold every integer, and a lease that grew on the wire would break the sum.

use core::num::NonZeroU32;
use core::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Unit;
use tollgate_core::limit::LEASE_MAX;
use tollgate_core::units::{Capacity, CapacityError, Tokens};

use crate::field::Rule;
use crate::v1;

/// A double near `capacity` that decodes to at most `capacity`; 1e12 if it is unlimited.
pub fn from_capacity(capacity: Capacity) -> f64 {
    let capacity = capacity.min(Capacity::MAX);
    let mut value = capacity.as_f64();
    // A step or two: both the division and the multiplication of the way back round.
    while to_capacity(value).is_ok_and(|decoded| decoded > capacity) {
        value = value.next_down();
    }
    value
}

/// The capacity that `value` says.
///
/// # Errors
/// If `value` is not finite, negative or more than 1e12.
pub fn to_capacity(value: f64) -> Result<Capacity, CapacityError> {
    Capacity::try_from_f64(value)
}

/// Like [`from_capacity`], for tokens: at most 1e12.
pub fn from_tokens(tokens: Tokens) -> f64 {
    from_capacity(Capacity::from_micros(tokens.as_micros()))
}

/// Like [`to_capacity`], for tokens.
///
/// # Errors
/// If `value` is not finite, negative or more than 1e12.
pub fn to_tokens(value: f64) -> Result<Tokens, CapacityError> {
    Ok(Tokens::from_micros(to_capacity(value)?.as_micros()))
}

/// A shard, counted from 1; 0 is none.
pub fn from_shard(shard: Option<ShardId>) -> u32 {
    shard.map_or(0, |shard| u32::from(shard.0).saturating_add(1))
}

/// The shard that `value` says.
///
/// # Errors
/// If it is more than 65536.
pub fn to_shard(value: u32) -> Result<Option<ShardId>, Rule> {
    let Some(shard) = value.checked_sub(1) else {
        return Ok(None);
    };
    let shard = u16::try_from(shard).map_err(|_| Rule::Shard(value))?;
    Ok(Some(ShardId(shard)))
}

/// The number of clients for which one client asks; 0 if it asks for itself alone.
pub(crate) fn from_subclients(subclients: NonZeroU32) -> u32 {
    match subclients.get() {
        1 => 0,
        several => several,
    }
}

/// Whole milliseconds, rounded down, at most a day.
pub fn from_duration(duration: Duration) -> u64 {
    u64::try_from(duration.min(LEASE_MAX).as_millis()).unwrap_or(u64::MAX)
}

/// The duration of `ms` milliseconds.
///
/// # Errors
/// If it is zero, which would make a client ask without pause, or more than a day.
pub fn to_duration(ms: u64) -> Result<Duration, Rule> {
    let duration = Duration::from_millis(ms);
    if duration.is_zero() || duration > LEASE_MAX {
        return Err(Rule::Duration(ms));
    }
    Ok(duration)
}

/// The duration of `ms` milliseconds, which may be none.
///
/// # Errors
/// If it is more than a day.
pub fn to_remaining(ms: u64) -> Result<Duration, Rule> {
    let duration = Duration::from_millis(ms);
    if duration > LEASE_MAX {
        return Err(Rule::Remaining(ms));
    }
    Ok(duration)
}

/// The number of `unit`.
pub fn from_unit(unit: Unit) -> i32 {
    match unit {
        Unit::Requests => v1::Unit::Requests,
        Unit::RequestBytes => v1::Unit::RequestBytes,
        Unit::ResponseBytes => v1::Unit::ResponseBytes,
        Unit::Concurrency => v1::Unit::Concurrency,
    }
    .into()
}

/// The unit that `number` means.
///
/// # Errors
/// If it is unspecified or unknown.
pub fn to_unit(number: i32) -> Result<Unit, Rule> {
    match v1::Unit::try_from(number) {
        Ok(v1::Unit::Requests) => Ok(Unit::Requests),
        Ok(v1::Unit::RequestBytes) => Ok(Unit::RequestBytes),
        Ok(v1::Unit::ResponseBytes) => Ok(Unit::ResponseBytes),
        Ok(v1::Unit::Concurrency) => Ok(Unit::Concurrency),
        Ok(v1::Unit::Unspecified) | Err(_) => Err(Rule::UnknownUnit(number)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unlimited_is_sent_as_the_largest_number() {
        assert_eq!(from_capacity(Capacity::UNLIMITED), 1e12);
        assert_eq!(from_tokens(Tokens::from_micros(u64::MAX)), 1e12);
    }

    #[test]
    fn durations_are_between_a_millisecond_and_a_day() {
        let day = 24 * 60 * 60 * 1000;
        let rows = [(0, false), (1, true), (day, true), (day + 1, false)];
        for (ms, good) in rows {
            assert_eq!(to_duration(ms).is_ok(), good, "{ms}");
        }
        assert!(to_duration(u64::MAX).is_err());
        assert!(to_remaining(0).is_ok() && to_remaining(day).is_ok());
        assert_eq!(to_remaining(day + 1), Err(Rule::Remaining(day + 1)));
        assert_eq!(from_duration(Duration::MAX), day);
        assert_eq!(from_duration(Duration::from_micros(1999)), 1);
    }

    #[test]
    fn units_without_a_name_are_refused() {
        for number in [0, -1, 5, i32::MAX] {
            assert_eq!(to_unit(number), Err(Rule::UnknownUnit(number)));
        }
        for unit in Unit::ALL {
            assert_eq!(to_unit(from_unit(unit)), Ok(unit));
        }
    }

    proptest! {
        #[test]
        fn a_capacity_never_grows_on_the_wire(micros in 0..=Capacity::MAX.as_micros()) {
            let capacity = Capacity::from_micros(micros);
            let decoded = to_capacity(from_capacity(capacity)).unwrap();
            prop_assert!(decoded <= capacity);
            // At most the spacing of doubles at 1e18 is lost, and a few times their rounding.
            prop_assert!(micros - decoded.as_micros() <= 512);
        }

        #[test]
        fn a_capacity_below_two_thousand_million_survives_the_wire(micros in 0..1_u64 << 51) {
            let capacity = Capacity::from_micros(micros);
            prop_assert_eq!(to_capacity(from_capacity(capacity)), Ok(capacity));
        }
    }
}
