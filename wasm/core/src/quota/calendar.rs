//! Windows of quotas by the calendar of a time zone, with its leap days and clock changes.

use core::fmt;
use core::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::QuotaWindow;
use crate::units::WallTime;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Windows that follow each other by the calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// Length of a window.
    pub unit: CalendarUnit,
    /// Where the clock and the calendar are read.
    pub zone: TimeZone,
    /// Day on which a month begins, 1 to 31; in a shorter month its last day.
    pub anchor: u8,
}

/// Length of a window by the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From :00 to :60.
    Minute,
    /// From 0 minutes on.
    Hour,
    /// From midnight on.
    Day,
    /// From Monday on.
    Week,
    /// From the first day on, or another one.
    Month,
    /// From January 1 on.
    Year,
}

// === impl Calendar ===

impl Calendar {
    /// Windows of `unit` in UTC.
    pub const fn utc(unit: CalendarUnit) -> Self {
        Self {
            unit,
            zone: TimeZone::UTC,
            anchor: 1,
        }
    }

    /// The window of `now`. One that the calendar cannot tell, as in the year 10 000, does not end.
    pub fn window(&self, now: WallTime) -> QuotaWindow {
        let window = self.try_window(now);
        window.unwrap_or(QuotaWindow {
            start: WallTime::from_millis(0),
            end: WallTime::from_millis(u64::MAX),
        })
    }

    fn try_window(&self, now: WallTime) -> Option<QuotaWindow> {
        let ms = i64::try_from(now.as_millis()).ok()?;
        let timestamp = Timestamp::from_millisecond(ms).ok()?;
        match self.unit {
            CalendarUnit::Minute => Some(self.of_clock(timestamp, MINUTE)),
            CalendarUnit::Hour => Some(self.of_clock(timestamp, HOUR)),
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month | CalendarUnit::Year => {
                let today = self.zone.to_datetime(timestamp).date();
                let first = self.first_day(today)?;
                Some(QuotaWindow {
                    start: self.midnight(first)?,
                    end: self.midnight(self.next(first)?)?,
                })
            }
        }
    }

    /// The minute or hour of an instant, by the clock of the zone.
    fn of_clock(&self, timestamp: Timestamp, length: Duration) -> QuotaWindow {
        let offset = i64::from(self.zone.to_offset(timestamp).seconds()).saturating_mul(1000);
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        let ms = timestamp.as_millisecond();
        let passed = ms.saturating_add(offset).checked_rem_euclid(length_ms);
        let start = ms.saturating_sub(passed.unwrap_or(0));
        let start = WallTime::from_millis(u64::try_from(start).unwrap_or(0));
        QuotaWindow {
            start,
            end: start.saturating_add(length),
        }
    }

    /// The first day of the window that has `day` in it.
    fn first_day(&self, day: Date) -> Option<Date> {
        match self.unit {
            CalendarUnit::Week => {
                let days = day.weekday().to_monday_zero_offset();
                day.checked_sub(Span::new().try_days(days).ok()?).ok()
            }
            CalendarUnit::Month => {
                let first = self.anchored(day);
                if first <= day {
                    return Some(first);
                }
                let before = day.first_of_month().yesterday().ok()?;
                Some(self.anchored(before))
            }
            CalendarUnit::Year => Some(day.first_of_year()),
            CalendarUnit::Minute | CalendarUnit::Hour | CalendarUnit::Day => Some(day),
        }
    }

    /// The first day of the window after the one that begins with `first`.
    fn next(&self, first: Date) -> Option<Date> {
        match self.unit {
            CalendarUnit::Week => first.checked_add(Span::new().try_weeks(1).ok()?).ok(),
            CalendarUnit::Month => {
                let after = first.last_of_month().tomorrow().ok()?;
                Some(self.anchored(after))
            }
            CalendarUnit::Year => first.last_of_year().tomorrow().ok(),
            CalendarUnit::Minute | CalendarUnit::Hour | CalendarUnit::Day => first.tomorrow().ok(),
        }
    }

    /// The day of the month of `day` on which a window begins.
    fn anchored(&self, day: Date) -> Date {
        let anchor = i8::try_from(self.anchor).unwrap_or(i8::MAX);
        let anchor = anchor.clamp(1, day.days_in_month());
        Date::new(day.year(), day.month(), anchor).unwrap_or(day)
    }

    /// The instant at which `day` begins; where a clock change leaves midnight out, the first one after it.
    fn midnight(&self, day: Date) -> Option<WallTime> {
        let begin = self.zone.to_timestamp(DateTime::from(day)).ok()?;
        let ms = u64::try_from(begin.as_millisecond()).ok()?;
        Some(WallTime::from_millis(ms))
    }

    /// Usual length of a window.
    pub(super) fn length(&self) -> Duration {
        match self.unit {
            CalendarUnit::Minute => MINUTE,
            CalendarUnit::Hour => HOUR,
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => DAY.saturating_mul(7),
            CalendarUnit::Month => DAY.saturating_mul(30),
            CalendarUnit::Year => DAY.saturating_mul(365),
        }
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit.name())?;
        if self.anchor > 1 {
            write!(f, " from {}", self.anchor)?;
        }
        match self.zone.iana_name() {
            Some(name) if name != "UTC" => write!(f, " {name}"),
            _ => Ok(()),
        }
    }
}

// === impl CalendarUnit ===

impl CalendarUnit {
    /// All of them, the shortest first.
    pub const ALL: [Self; 6] = [
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// Its name in configurations and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}
