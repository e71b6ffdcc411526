//! Quantities as people write them: `250`, `1.5k`, `20M`, `50MiB`.
//!
//! A number, and after it a decimal suffix (`k`, `M`, `G`, `T`) or a binary one (`Ki`, `Mi`, `Gi`,
//! `Ti`). A `B` after that means bytes, and is accepted only where bytes are counted: `50MiB` as a
//! number of requests is a mistake that should not pass for 52 million. A rate may name its period, `10/min`.
//! Amounts and durations are shown in the same notation, in a few digits.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;

use crate::lease::Unit;
use crate::units::{Capacity, CapacityError, MICRO, RatePeriod};

/// Suffixes and their factors. There is no `m`: it could mean a million or a thousandth.
const SUFFIXES: [(&str, f64); 9] = [
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
];

/// Unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityUnit {
    /// Requests, or tokens of them.
    Requests,
    /// Requests in flight, of which there are no parts.
    InFlight,
    /// Bytes.
    Bytes,
}

// === impl QuantityUnit ===

impl QuantityUnit {
    /// The unit of the amounts of a limit of `unit`.
    pub fn of(unit: Unit) -> Self {
        match unit {
            Unit::Requests => Self::Requests,
            Unit::RequestBytes | Unit::ResponseBytes => Self::Bytes,
            Unit::Concurrency => Self::InFlight,
        }
    }
}

/// Reason for which a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not begin with a number.
    #[error("{0:?} is not a number")]
    NotANumber(String),
    /// An unknown suffix.
    #[error("{text:?} ends in {suffix:?}, which is none of k, M, G, T, Ki, Mi, Gi, Ti{bytes}")]
    Suffix {
        /// The whole text.
        text: String,
        /// The suffix.
        suffix: String,
        /// Hint that `B` may follow, where it may.
        bytes: &'static str,
    },
    /// An unknown period.
    #[error(
        "{text:?} ends in /{period}, which is none of /s, /min, /h, /d, /sec, /second, /minute, /hour and /day"
    )]
    Period {
        /// The whole text.
        text: String,
        /// The period.
        period: String,
    },
    /// Bytes where requests are counted.
    #[error("{0:?} is a number of bytes, but requests are counted here")]
    BytesHere(String),
    /// A part of a request in flight.
    #[error("{0} is not a whole number, and requests in flight are counted here")]
    NotWhole(String),
    /// NaN or an infinity.
    #[error("{0} is not a finite number")]
    NotFinite(String),
    /// Below zero.
    #[error("{0} is negative")]
    Negative(String),
    /// Above [`Capacity::MAX`].
    #[error("{0} is more than the largest capacity, 1e12")]
    TooLarge(String),
    /// Above zero, which blocks, but nearer to it than to the smallest capacity.
    #[error("{0} is less than the smallest capacity, 0.000001; 0 blocks")]
    TooSmall(String),
}

/// The quantity that `text` says.
///
/// ```
/// use tollgate_core::quantity::{QuantityUnit, parse};
/// use tollgate_core::units::Capacity;
/// assert_eq!(parse("1.5k", QuantityUnit::Requests), Ok(Capacity::from_whole(1500)));
/// assert_eq!(parse("50MiB", QuantityUnit::Bytes), Ok(Capacity::from_whole(50 << 20)));
/// assert!(parse("50MiB", QuantityUnit::Requests).is_err());
/// ```
///
/// # Errors
/// Which rule `text` breaks.
pub fn parse(text: &str, counted: QuantityUnit) -> Result<Capacity, QuantityError> {
    let capacity = capacity(number(text, counted)?, text)?;
    let is_whole = capacity.as_micros().is_multiple_of(MICRO);
    if counted == QuantityUnit::InFlight && !is_whole {
        Err(QuantityError::NotWhole(text.to_owned()))
    } else {
        Ok(capacity)
    }
}

/// The rate that `text` says, a quantity for each second unless it names another period.
///
/// ```
/// use tollgate_core::quantity::{QuantityUnit, parse_rate};
/// use tollgate_core::units::Capacity;
/// assert_eq!(parse_rate("90/min", QuantityUnit::Requests), Ok(Capacity::from_micros(1_500_000)));
/// assert_eq!(parse_rate("2k/s", QuantityUnit::Requests), Ok(Capacity::from_whole(2000)));
/// ```
///
/// # Errors
/// Which rule `text` breaks.
pub fn parse_rate(text: &str, counted: QuantityUnit) -> Result<Capacity, QuantityError> {
    let with_period = text.rsplit_once('/');
    let Some((amount, period)) = with_period.filter(|_| counted != QuantityUnit::InFlight) else {
        return parse(text, counted);
    };
    let known = RatePeriod::from_name(period.trim());
    let known = known.ok_or_else(|| QuantityError::Period {
        text: text.to_owned(),
        period: period.to_owned(),
    })?;
    let amount = parse(amount.trim_end(), counted)?.as_micros();
    let seconds = u64::from(known.seconds());
    // To the nearest millionth.
    let rounded = amount.saturating_add(seconds / 2).checked_div(seconds);
    let micros = rounded.unwrap_or(amount);
    if micros == 0 && amount > 0 {
        Err(QuantityError::TooSmall(text.to_owned()))
    } else {
        Ok(Capacity::from_micros(micros))
    }
}

/// The period that the rate `text` names, if it names one, and the amount of that period: what such a limit admits at
/// once, unless it says otherwise.
pub fn of_period(text: &str, counted: QuantityUnit) -> Option<(RatePeriod, Capacity)> {
    let (amount, _) = text.rsplit_once('/')?;
    Some((named_period(text)?, parse(amount.trim_end(), counted).ok()?))
}

/// The period that the rate `text` names, if it names one.
pub fn named_period(text: &str) -> Option<RatePeriod> {
    let (_, period) = text.rsplit_once('/')?;
    RatePeriod::from_name(period.trim())
}

/// The number that `text` says, without any bounds: it may be negative or infinite.
///
/// # Errors
/// If it is no number with a suffix for `counted`.
pub fn number(text: &str, counted: QuantityUnit) -> Result<f64, QuantityError> {
    // Also `nan` and `inf`: they are numbers to Rust.
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let not_a_number = || QuantityError::NotANumber(text.to_owned());
    let number = text.trim_end_matches(|c: char| c.is_alphabetic());
    let suffix = text.get(number.len()..).unwrap_or_default();
    let number = number.strip_suffix(' ').unwrap_or(number);
    let number: f64 = number.parse().map_err(|_| not_a_number())?;
    Ok(number * factor(text, suffix, counted)?)
}

/// Returns an amount of the unit of that name in at most five digits before a suffix.
///
/// ```
/// use tollgate_core::quantity::amount_text;
/// assert_eq!(amount_text("requests", 99_999.0), "99999");
/// assert_eq!(amount_text("requests", 1_234_567.0), "1.23M");
/// assert_eq!(amount_text("request_bytes", 52_428_800.0), "50MiB");
/// ```
pub fn amount_text(unit: &str, amount: f64) -> String {
    const BYTES: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];
    const OTHERS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (step, suffixes, from) = if unit.ends_with("_bytes") {
        (1024.0, BYTES, 1024.0)
    } else {
        (1000.0, OTHERS, 100_000.0)
    };
    let mut left = amount;
    let mut suffixes = suffixes.into_iter().peekable();
    let mut suffix = suffixes.next().unwrap_or_default();
    while amount >= from
        && left >= step
        && let Some(next) = suffixes.next()
    {
        left /= step;
        suffix = next;
    }
    let digits = if left < 10.0 { 2 } else { 1 };
    format!("{}{suffix}", without_zeros(&format!("{left:.digits$}")))
}

/// Returns a rate of the unit of that name for `period`; without one its number for a second.
///
/// ```
/// use tollgate_core::quantity::rate_text;
/// use tollgate_core::units::RatePeriod;
/// assert_eq!(rate_text("requests", 11.574074, Some(RatePeriod::Day)), "1M/d");
/// assert_eq!(rate_text("requests", 1.666667, Some(RatePeriod::Minute)), "100/min");
/// assert_eq!(rate_text("requests", 1.666667, None), "1.67");
/// ```
pub fn rate_text(unit: &str, per_second: f64, period: Option<RatePeriod>) -> String {
    match period {
        None => amount_text(unit, per_second),
        Some(period) => {
            let amount = amount_text(unit, period.amount(per_second));
            format!("{amount}/{}", period.name())
        }
    }
}

/// Returns a number of milliseconds in its two largest units.
///
/// ```
/// use tollgate_core::quantity::duration_text;
/// assert_eq!(duration_text(9_940), "9.9s");
/// assert_eq!(duration_text(150_000), "2m30s");
/// ```
pub fn duration_text(ms: u64) -> String {
    let seconds = ms / 1000;
    let (large, small, ratio) = match seconds {
        0..10 => {
            let tenths = format!("{seconds}.{}", ms % 1000 / 100);
            return format!("{}s", without_zeros(&tenths));
        }
        10..120 => return format!("{seconds}s"),
        120..7200 => (seconds / 60, seconds % 60, "ms"),
        7200..172_800 => (seconds / 3600, seconds / 60 % 60, "hm"),
        _ => (seconds / 86_400, seconds / 3600 % 24, "dh"),
    };
    let (first, second) = ratio.split_at(1);
    match small {
        0 => format!("{large}{first}"),
        small => format!("{large}{first}{small}{second}"),
    }
}

// === free functions ===

/// A number without the zeros that end its decimals.
fn without_zeros(number: &str) -> &str {
    number.trim_end_matches('0').trim_end_matches('.')
}

/// The capacity nearest to `number`, which is written as `text`.
fn capacity(number: f64, text: &str) -> Result<Capacity, QuantityError> {
    let written = text.to_owned();
    match Capacity::try_from_f64(number) {
        Ok(Capacity::ZERO) if number > 0.0 => Err(QuantityError::TooSmall(written)),
        Ok(capacity) => Ok(capacity),
        Err(CapacityError::NotFinite(_)) => Err(QuantityError::NotFinite(written)),
        Err(CapacityError::Negative(_)) => Err(QuantityError::Negative(written)),
        Err(CapacityError::TooLarge(_)) => Err(QuantityError::TooLarge(written)),
    }
}

/// The factor of `suffix`, which ends `text`.
fn factor(text: &str, suffix: &str, counted: QuantityUnit) -> Result<f64, QuantityError> {
    let prefix = suffix.strip_suffix('B');
    let known = |name: &str| {
        let known = SUFFIXES.iter().find(|(suffix, _)| *suffix == name);
        known.map(|(_, factor)| *factor)
    };
    let factor = match prefix {
        Some("") => Some(1.0),
        Some(prefix) => known(prefix),
        None => known(suffix),
    };
    match factor {
        Some(_) if prefix.is_some() && counted != QuantityUnit::Bytes => {
            Err(QuantityError::BytesHere(text.to_owned()))
        }
        Some(factor) => Ok(factor),
        None => Err(QuantityError::Suffix {
            text: text.to_owned(),
            suffix: suffix.to_owned(),
            bytes: match counted {
                QuantityUnit::Requests | QuantityUnit::InFlight => "",
                QuantityUnit::Bytes => ", each with B after it if you like",
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    const UNKNOWN: &str = "which is none of k, M, G, T, Ki, Mi, Gi, Ti";

    #[test]
    fn a_rate_may_name_its_period() {
        let rows = [
            ("10/min", Ok(166_667)),
            ("10 / min", Ok(166_667)),
            ("100/h", Ok(27_778)),
            ("1M/d", Ok(11_574_074)),
            ("2k/s", Ok(2_000_000_000)),
            ("0/h", Ok(0)),
            ("7", Ok(7_000_000)),
            (
                "10/m",
                Err(
                    "ends in /m, which is none of /s, /min, /h, /d, /sec, /second, /minute, /hour and /day",
                ),
            ),
            ("1M/day", Ok(11_574_074)),
            ("5/hour", Ok(1_389)),
            ("90 / minute", Ok(1_500_000)),
            ("20/second", Ok(20_000_000)),
            ("20/sec", Ok(20_000_000)),
            ("1/week", Err("ends in /week, which is none of")),
            ("1/", Err("ends in /, which is none of")),
            ("x/min", Err("is not a number")),
            ("0.01/d", Err("less than the smallest capacity")),
            ("-1/s", Err("negative")),
        ];
        for (text, want) in rows {
            let rate = parse_rate(text, QuantityUnit::Requests);
            match (rate, want) {
                (Ok(rate), Ok(want)) => assert_eq!(rate.as_micros(), want, "{text}"),
                (Err(error), Err(want)) => {
                    assert!(error.to_string().contains(want), "{text}: {error}");
                }
                (rate, _) => panic!("{text}: {rate:?}"),
            }
        }
        let amount = |text| of_period(text, QuantityUnit::Requests);
        let of = |period, amount| Some((period, Capacity::from_whole(amount)));
        assert_eq!(amount("10/min"), of(RatePeriod::Minute, 10));
        assert_eq!(amount("1M / d"), of(RatePeriod::Day, 1_000_000));
        assert_eq!(amount("5/hour"), of(RatePeriod::Hour, 5));
        assert_eq!(amount("20/sec"), of(RatePeriod::Second, 20));
        assert_eq!(amount("10"), None);
        assert!(parse_rate("5/s", QuantityUnit::InFlight).is_err());
        let bytes = parse_rate("60MiB/min", QuantityUnit::Bytes);
        assert_eq!(bytes, Ok(Capacity::from_whole(1 << 20)));
    }

    #[test]
    fn a_rate_is_shown_as_it_was_written() {
        let written = [
            "1M/d", "100/min", "5/h", "20/s", "20", "1.5/min", "1/d", "0.7/h",
        ];
        for text in written {
            let rate = parse_rate(text, QuantityUnit::Requests).unwrap();
            let period = of_period(text, QuantityUnit::Requests).map(|(period, _)| period);
            assert_eq!(rate_text("requests", rate.as_f64(), period), text);
        }
        let mib = Some(RatePeriod::Minute);
        assert_eq!(rate_text("request_bytes", 1_048_576.0, mib), "60MiB/min");
    }

    #[test]
    fn what_people_write_is_understood() {
        let rows = [
            ("0", 0.0),
            ("-0", 0.0),
            ("0.000001", 1e-6),
            ("0.25", 0.25),
            ("1e3", 1e3),
            ("1.5k", 1500.0),
            ("1.5K", 1500.0),
            ("1.1k", 1100.0),
            ("20k", 20e3),
            ("3M", 3e6),
            ("0.5G", 5e8),
            ("1T", 1e12),
            ("2Ki", 2048.0),
            ("2 Mi", 2.0 * 1024.0 * 1024.0),
        ];
        for (text, want) in rows {
            let want = Capacity::try_from_f64(want).unwrap();
            assert_eq!(parse(text, QuantityUnit::Requests), Ok(want), "{text}");
            assert_eq!(parse(text, QuantityUnit::Bytes), Ok(want), "{text}");
        }
        let rows = [
            ("512B", 512),
            ("50MiB", 50 << 20),
            ("50 MiB", 50 << 20),
            ("50MB", 50_000_000),
            ("1.5kB", 1500),
            ("0.5GiB", 1 << 29),
        ];
        for (text, want) in rows {
            let want = Capacity::from_whole(want);
            assert_eq!(parse(text, QuantityUnit::Bytes), Ok(want), "{text}");
            let refused = QuantityError::BytesHere(text.to_owned());
            assert_eq!(parse(text, QuantityUnit::Requests), Err(refused), "{text}");
        }
    }

    #[test]
    fn amounts_are_short_and_durations_have_two_units() {
        let rows = [
            ("requests", 0.0, "0"),
            ("requests", 12.345, "12.3"),
            ("requests", 1.234, "1.23"),
            ("requests", 100.0, "100"),
            ("", 99_999.0, "99999"),
            ("requests", 100_000.0, "100k"),
            ("requests", 2_500_000.0, "2.5M"),
            ("request_bytes", 1023.0, "1023"),
            ("response_bytes", 52_428_800.0, "50MiB"),
            ("request_bytes", 1e18, "909494.7TiB"),
        ];
        for (unit, amount, want) in rows {
            assert_eq!(amount_text(unit, amount), want);
        }
        let rows = [
            (0, "0s"),
            (1_000, "1s"),
            (9_990, "9.9s"),
            (10_000, "10s"),
            (61_000, "61s"),
            (120_000, "2m"),
            (150_000, "2m30s"),
            (7_260_000, "2h1m"),
            (180_000_000, "2d2h"),
        ];
        for (ms, want) in rows {
            assert_eq!(duration_text(ms), want);
        }
    }

    #[test]
    fn there_are_no_parts_of_requests_in_flight() {
        let parse = |text| parse(text, QuantityUnit::InFlight);
        assert_eq!(parse("0.5k"), Ok(Capacity::from_whole(500)));
        let refused = parse("2.5").unwrap_err().to_string();
        let want = "2.5 is not a whole number, and requests in flight are counted here";
        assert_eq!(refused, want);
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        let rows = [
            ("", "\"\" is not a number".to_owned()),
            ("k", "\"k\" is not a number".to_owned()),
            ("MiB", "\"MiB\" is not a number".to_owned()),
            ("1,5k", "\"1,5k\" is not a number".to_owned()),
            ("0x10", "\"0x10\" is not a number".to_owned()),
            ("1  k", "\"1  k\" is not a number".to_owned()),
            ("1k ", "\"1k \" is not a number".to_owned()),
            ("5m", format!("\"5m\" ends in \"m\", {UNKNOWN}")),
            ("5ki", format!("\"5ki\" ends in \"ki\", {UNKNOWN}")),
            ("5KIB", format!("\"5KIB\" ends in \"KIB\", {UNKNOWN}")),
            ("5µ", format!("\"5µ\" ends in \"µ\", {UNKNOWN}")),
            ("nan", "nan is not a finite number".to_owned()),
            ("1e400", "1e400 is not a finite number".to_owned()),
            ("-inf", "-inf is not a finite number".to_owned()),
            ("-5k", "-5k is negative".to_owned()),
            (
                "2 Ti",
                "2 Ti is more than the largest capacity, 1e12".to_owned(),
            ),
            (
                "1e-10k",
                "1e-10k is less than the smallest capacity, 0.000001; 0 blocks".to_owned(),
            ),
            (
                "0.0000004",
                "0.0000004 is less than the smallest capacity, 0.000001; 0 blocks".to_owned(),
            ),
            (
                "2T",
                "2T is more than the largest capacity, 1e12".to_owned(),
            ),
        ];
        for (text, want) in rows {
            let error = parse(text, QuantityUnit::Requests).unwrap_err();
            assert_eq!(error.to_string(), want, "{text}");
        }
        let error = parse("5x", QuantityUnit::Bytes).unwrap_err().to_string();
        assert!(error.ends_with("Ti, each with B after it if you like"));
    }
}
