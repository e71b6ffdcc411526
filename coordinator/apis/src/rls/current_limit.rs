//! Limits as answers tell them: whole requests per unit of time.

use std::time::Duration;

use tollgate_core::units::{RatePeriod, WindowedRate};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// Units of time with their seconds, the shortest first.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3600),
    (Unit::Day, 24 * 3600),
    (Unit::Week, 7 * 24 * 3600),
    (Unit::Month, 30 * 24 * 3600),
    (Unit::Year, 365 * 24 * 3600),
];

/// Limit of whole requests per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentLimit {
    requests: u32,
    unit: Unit,
    seconds: u64,
}

// === impl CurrentLimit ===

impl CurrentLimit {
    /// Returns the limit of `micros` micro-requests per second, which was `written` for that period, stated as
    /// [`WindowedRate`] does.
    pub(super) fn per_second(micros: u64, written: Option<RatePeriod>) -> Self {
        let stated = WindowedRate::of(micros, written);
        let (requests, seconds) = stated.map_or((0, 1), |rate| (rate.tokens, rate.window_s));
        Self::per_window(
            u32::try_from(requests).unwrap_or(u32::MAX),
            Duration::from_secs(seconds),
        )
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
    fn a_rate_is_told_in_the_unit_in_which_it_was_meant() {
        let rows = [
            (0, 0, Unit::Second),
            (1_000_000, 1, Unit::Second),
            (250_000_000, 250, Unit::Second),
            (1_500_000, 90, Unit::Minute),
            // 100, 59 and 20 a minute.
            (1_666_667, 100, Unit::Minute),
            (983_333, 59, Unit::Minute),
            (333_333, 20, Unit::Minute),
            (2_500, 9, Unit::Hour),
            (12, 1, Unit::Day),
            // One in eleven and a half days.
            (1, 1, Unit::Unknown),
            (5_000_000_000_000_000, u32::MAX, Unit::Second),
        ];
        for (micros, requests, unit) in rows {
            let limit = CurrentLimit::per_second(micros, None);
            assert_eq!((limit.requests, limit.unit), (requests, unit), "{micros}");
        }
        let day = CurrentLimit::per_second(11_574_074, Some(RatePeriod::Day));
        assert_eq!((day.requests, day.unit), (1_000_000, Unit::Day));
    }

    #[test]
    fn a_window_has_the_unit_of_its_length() {
        let day = CurrentLimit::per_window(7, Duration::from_secs(86_400)).message(Some("x"));
        assert_eq!((day.requests_per_unit, day.unit()), (7, Unit::Day));
        assert_eq!(day.name, "x");
    }
}
