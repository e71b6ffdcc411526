use std::string::ToString as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::*;
use CalendarUnit::{Day, Hour, Minute, Month, Week, Year};

fn at(text: &str) -> WallTime {
    let timestamp: Timestamp = text.parse().unwrap();
    WallTime::from_millis(u64::try_from(timestamp.as_millisecond()).unwrap())
}

/// Berlin's zone, by its rule: its clocks change in March and October.
fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

/// Unit, anchor and zone of a calendar; an instant, and the window that has it.
type Row = (CalendarUnit, u8, fn() -> TimeZone, [&'static str; 3]);

#[rustfmt::skip]
const WINDOWS: [Row; 12] = [
    // A month with a leap day.
    (Month, 1, utc, ["2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"]),
    (Year, 1, utc, ["2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"]),
    // Weeks begin on Monday, also across a year's end.
    (Week, 1, utc, ["2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"]),
    // A billing day, before and after it, and one that February does not have.
    (Month, 15, utc, ["2026-11-14T23:59:59Z", "2026-10-15T00:00:00Z", "2026-11-15T00:00:00Z"]),
    (Month, 15, utc, ["2026-11-15T00:00:00Z", "2026-11-15T00:00:00Z", "2026-12-15T00:00:00Z"]),
    (Month, 31, utc, ["2027-02-28T08:00:00Z", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"]),
    // A day of 23 hours, and one of 25.
    (Day, 1, berlin, ["2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]),
    (Day, 1, berlin, ["2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]),
    // The hour that comes twice has two windows.
    (Hour, 1, berlin, ["2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"]),
    (Hour, 1, berlin, ["2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]),
    (Minute, 1, utc, ["2026-11-29T01:02:59.999Z", "2026-11-29T01:02:00Z", "2026-11-29T01:03:00Z"]),
    // A zone with half an hour.
    (Hour, 1, india, ["2026-11-29T01:29:00Z", "2026-11-29T00:30:00Z", "2026-11-29T01:30:00Z"]),
];

fn utc() -> TimeZone {
    TimeZone::UTC
}

fn india() -> TimeZone {
    TimeZone::posix("<+0530>-5:30").unwrap()
}

#[test]
fn windows_go_by_the_calendar_of_their_zone() {
    for (unit, anchor, zone, [now, start, end]) in WINDOWS {
        let zone = zone();
        let calendar = Calendar { unit, zone, anchor };
        let window = calendar.window(at(now));
        let expected = QuotaWindow {
            start: at(start),
            end: at(end),
        };
        assert_eq!(window, expected, "{unit:?} at {now}");
    }
}

#[test]
fn windows_follow_each_other_without_gap() {
    for unit in CalendarUnit::ALL {
        for anchor in [1, 15, 31] {
            let calendar = Calendar {
                unit,
                zone: berlin(),
                anchor,
            };
            let mut window = calendar.window(at("2026-01-01T00:00:00Z"));
            for _ in 0..100 {
                let next = calendar.window(window.end);
                assert_eq!(next.start, window.end, "{unit:?} from {anchor}");
                let last = WallTime::from_millis(next.end.as_millis() - 1);
                assert_eq!(calendar.window(last), next);
                window = next;
            }
        }
    }
}

#[test]
fn a_time_that_no_calendar_has_ends_never() {
    let calendar = Calendar::utc(Month);
    let window = calendar.window(WallTime::from_millis(u64::MAX));
    assert_eq!(window.end, WallTime::from_millis(u64::MAX));
}

#[test]
fn periods_have_names() {
    let named = |unit, anchor| {
        let zone = TimeZone::UTC;
        QuotaPeriod::Calendar(Calendar { unit, zone, anchor }).to_string()
    };
    assert_eq!(named(Month, 1), "month");
    assert_eq!(named(Month, 15), "month from 15");
    for (ms, name) in [
        (86_400_000, "24h"),
        (90_000_000, "25h"),
        (5_400_000, "90m"),
        (90_000, "90s"),
        (60_001, "60001ms"),
    ] {
        let period = QuotaPeriod::Rolling(Duration::from_millis(ms));
        assert_eq!(period.to_string(), name);
    }
}

#[test]
fn a_rolling_window_counts_at_least_its_length_and_a_part() {
    let length = Duration::from_secs(24 * 60 * 60);
    let period = QuotaPeriod::Rolling(length);
    for ms in (0..100_000_000).step_by(1_234_567) {
        let now = WallTime::from_millis(ms);
        let counts_for = period.counts_until(now).saturating_since(now);
        assert!(counts_for >= length);
        assert!(counts_for <= length + length / 32);
    }
}
