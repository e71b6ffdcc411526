//! Limits as answers tell them: whole requests per unit of time.

use std::time::Duration;

use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// A day with its seconds.
const DAY: (Unit, u64) = (Unit::Day, 24 * 3600);
/// Units of time with their seconds, the shortest first.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3600),
    DAY,
    (Unit::Week, 7 * 24 * 3600),
    (Unit::Month, 30 * 24 * 3600),
    (Unit::Year, 365 * 24 * 3600),
];
/// Parts of a request that rates count in.
const MICROS: u128 = 1_000_000;

/// Limit of whole requests per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentLimit {
    requests: u32,
    unit: Unit,
    seconds: u64,
}

// === impl CurrentLimit ===

impl CurrentLimit {
    /// Returns the limit of `micros` micro-requests per second, in the shortest unit up to a day in
    /// which it is a whole number; in days, rounded, if it is in none.
    pub(super) fn per_second(micros: u64) -> Self {
        let per_unit = |seconds: u64| u128::from(micros) * u128::from(seconds);
        let is_whole = |seconds: u64| per_unit(seconds) % MICROS == 0;
        let mut shorter = UNITS.iter().take_while(|(_, seconds)| *seconds < DAY.1);
        let whole = shorter.find(|(_, seconds)| is_whole(*seconds));
        let (unit, seconds) = *whole.unwrap_or(&DAY);
        let requests = (per_unit(seconds) + MICROS / 2) / MICROS;
        Self {
            requests: u32::try_from(requests).unwrap_or(u32::MAX),
            unit,
            seconds,
        }
    }

    /// Returns the limit of so many requests in each `window`.
    pub(super) fn per_window(requests: u32, window: Duration) -> Self {
        let seconds = window.as_secs();
        let unit = UNITS.iter().find(|(_, length)| *length == seconds);
        Self {
            requests,
            unit: unit.map_or(Unit::Unknown, |(unit, _)| *unit),
            seconds,
        }
    }

    /// Returns the requests in each window.
    pub(super) fn requests(self) -> u32 {
        self.requests
    }

    /// Returns the length of a window in seconds.
    pub(super) fn seconds(self) -> u64 {
        self.seconds
    }

    /// Returns the message, with the name of the limit.
    pub(super) fn message(self, name: Option<&str>) -> RateLimit {
        RateLimit {
            requests_per_unit: self.requests,
            unit: self.unit.into(),
            name: name.unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_in_the_shortest_unit_in_which_it_is_whole() {
        let rows = [
            (0, 0, Unit::Second),
            (1_000_000, 1, Unit::Second),
            (250_000_000, 250, Unit::Second),
            (1_500_000, 90, Unit::Minute),
            (500_000, 30, Unit::Minute),
            (2_500, 9, Unit::Hour),
            // A third of a request per second.
            (333_333, 28_800, Unit::Day),
            (1, 0, Unit::Day),
            (u64::MAX, u32::MAX, Unit::Day),
            (5_000_000_000_000_000, u32::MAX, Unit::Second),
        ];
        for (micros, requests, unit) in rows {
            let limit = CurrentLimit::per_second(micros);
            assert_eq!((limit.requests, limit.unit), (requests, unit), "{micros}");
        }
    }

    #[test]
    fn a_window_has_the_unit_of_its_length() {
        let day = CurrentLimit::per_window(7, Duration::from_secs(86_400)).message(Some("x"));
        assert_eq!((day.requests_per_unit, day.unit()), (7, Unit::Day));
        assert_eq!(day.name, "x");
    }
}
