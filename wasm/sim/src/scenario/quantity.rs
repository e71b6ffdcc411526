//! Quantities as people write them.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use tollgate_core::quantity::{self, QuantityUnit};

/// Length of time up to [`Span::MAX`], written `80ms`, `10s`, `1m30s` or `2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Number from 0 to [`Amount::MAX`], also written `20k` or `1.5M`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct Amount(pub f64);

/// Part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct Share(pub f64);

/// Reason for which a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(String);

/// Value that is written as one word or number, or else as a mapping.
pub(super) trait Scalar: FromStr<Err = QuantityError> {
    /// Description of the values that may be written, for errors.
    const EXPECTED: &'static str;

    /// Reads it from a mapping.
    fn from_map<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }

    /// Reads it.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor(PhantomData))
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

// === impl Span ===

impl Span {
    /// The longest, a hundred years: sums of a few still fit virtual time.
    pub const MAX: Self = Self::from_secs(876_000 * 3600);

    /// Returns so many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Returns so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = |rule: String| QuantityError(format!("{text:?} is {rule}"));
        let example = "write it as `80ms`, `10s`, `1m30s` or `2h`";
        let span = humantime::parse_duration(text)
            .map_err(|cause| wrong(format!("no length of time; {example}: {cause}")))?;
        if span <= Self::MAX.0 {
            Ok(Self(span))
        } else {
            Err(wrong("longer than 876000h, a hundred years".to_owned()))
        }
    }
}

impl Scalar for Span {
    const EXPECTED: &'static str = "a length of time such as `10s`";
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(from)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let nanos = self.0.as_nanos();
        if nanos.is_multiple_of(1_000_000) {
            to.collect_str(&format_args!("{}ms", nanos / 1_000_000))
        } else {
            to.collect_str(&format_args!("{}us", nanos as f64 / 1e3))
        }
    }
}

// === impl Amount ===

impl Amount {
    /// The largest: a request in each nanosecond, the unit of virtual time.
    pub const MAX: Self = Self(1e9);
}

impl FromStr for Amount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = |rule: &str| QuantityError(format!("{text} is {rule}"));
        let number = quantity::number(text, QuantityUnit::Requests)
            .map_err(|error| QuantityError(error.to_string()))?;
        if number.is_nan() || number < 0.0 {
            return Err(wrong("no number from 0 on"));
        }
        let amount = Self(number);
        if amount <= Self::MAX {
            Ok(amount)
        } else {
            Err(wrong("more than 1000M, the largest number"))
        }
    }
}

impl Scalar for Amount {
    const EXPECTED: &'static str = "a number";
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(from)
    }
}

// === impl Share ===

impl FromStr for Share {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let share = text.parse().ok();
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        let wrong = || QuantityError(format!("{text} is not between 0 and 1"));
        share.map(Self).ok_or_else(wrong)
    }
}

impl Scalar for Share {
    const EXPECTED: &'static str = "a number between 0 and 1";
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(from)
    }
}

// === impl ScalarVisitor ===

impl<'de, T: Scalar> Visitor<'de> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_units() {
        let rows = [
            ("0", Some(0)),
            ("80ms", Some(80)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("10", None),
            ("", None),
            ("-1s", None),
            ("ten", None),
            ("1d", Some(86_400_000)),
            ("876000h", Some(3_153_600_000_000)),
            ("876000h1s", None),
            ("18446744073s", None),
        ];
        for (text, want) in rows {
            let span = text.parse::<Span>();
            let millis = span.as_ref().ok().map(|span| span.0.as_millis());
            assert_eq!(millis, want, "{text}: {span:?}");
        }
    }

    #[test]
    fn amounts_are_from_0_to_the_largest() {
        let rows = [("7", Some(7.0)), ("1.5k", Some(1500.0)), ("2M", Some(2e6))];
        let rows = rows.into_iter().chain([("1G", Some(1e9))]);
        let wrong = [
            "-1", "NaN", "inf", "ten", "1MB", "2G", "1001M", "1e308M", "1e308",
        ];
        let wrong = wrong.map(|text| (text, None));
        for (text, want) in rows.into_iter().chain(wrong) {
            let amount = text.parse::<Amount>().ok();
            assert_eq!(amount.map(|amount| amount.0), want, "{text}");
        }
        assert!("1.01".parse::<Share>().is_err());
        assert_eq!("0.5".parse(), Ok(Share(0.5)));
    }
}
