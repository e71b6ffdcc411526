//! Quotas: amounts that the whole fleet may use within a window of time, such as a month.
//!
//! A quota stands beside a rate, and several may hold for one unit. Its windows go by the wall clock, of which the
//! caller tells the time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

mod calendar;

pub use self::calendar::{Calendar, CalendarUnit};
use crate::units::{Capacity, Tokens, WallTime, mul_div};

/// The most quotas of one limit.
pub const QUOTAS_MAX: usize = 4;

/// Parts into which a rolling window is divided: what was used counts for one to two of them longer.
const ROLLING_PARTS: u64 = 64;

/// Units in which the length of a rolling window is named, in milliseconds: the first in which it is whole, and so many
/// at least.
const ROLLING_UNITS_MS: [(u128, u128, &str); 4] = [
    (86_400_000, 2, "d"),
    (3_600_000, 1, "h"),
    (60_000, 1, "m"),
    (1000, 1, "s"),
];

/// Amount that may be used within each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Tokens of one window.
    pub amount: Tokens,
    /// Its windows.
    pub period: QuotaPeriod,
}

/// Windows of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaPeriod {
    /// One after the other, by the calendar.
    Calendar(Calendar),
    /// At each instant the time before it, of this length: a minute at least.
    Rolling(Duration),
}

/// Time in which a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaWindow {
    /// Its first instant.
    pub start: WallTime,
    /// The instant after it.
    pub end: WallTime,
}

/// Quotas of a limit, [`QUOTAS_MAX`] at most; none by default. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas(Option<Arc<[Quota]>>);

// === impl Quotas ===

impl Quotas {
    /// No quota.
    pub const NONE: Self = Self(None);

    /// The first [`QUOTAS_MAX`] of `quotas`.
    pub fn new(mut quotas: Vec<Quota>) -> Self {
        quotas.truncate(QUOTAS_MAX);
        Self((!quotas.is_empty()).then(|| quotas.into()))
    }

    /// The quotas, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().flat_map(|quotas| quotas.iter())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The lowest of the rates that would use each up in the length of a window; none without a quota.
    pub fn pace(&self) -> Option<Capacity> {
        let pace = |quota: &Quota| {
            let ms = quota.period.length().as_millis().max(1);
            let micros = mul_div(quota.amount.as_micros(), 1000, ms);
            Capacity::from_micros(micros)
        };
        self.iter().map(pace).min()
    }

    /// The least amount; none without a quota.
    pub fn least(&self) -> Option<Tokens> {
        self.iter().map(|quota| quota.amount).min()
    }
}

// === impl QuotaPeriod ===

impl QuotaPeriod {
    /// The window of `now`.
    pub fn window(&self, now: WallTime) -> QuotaWindow {
        match self {
            Self::Calendar(calendar) => calendar.window(now),
            Self::Rolling(length) => QuotaWindow {
                start: now.saturating_sub(*length),
                end: now,
            },
        }
    }

    /// Time until which tokens count that are used at `now`: later ones count as long at least.
    pub(crate) fn counts_until(&self, now: WallTime) -> WallTime {
        match self {
            Self::Calendar(calendar) => calendar.window(now).end,
            Self::Rolling(length) => {
                let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
                let part = length_ms.div_ceil(ROLLING_PARTS).max(1);
                let part_end = now.as_millis().div_ceil(part).saturating_mul(part);
                // It may be spent a little later than it was granted.
                let slack = length_ms.saturating_add(part);
                WallTime::from_millis(part_end.saturating_add(slack))
            }
        }
    }

    /// Usual length of a window, which a client is told.
    pub fn length(&self) -> Duration {
        match self {
            Self::Calendar(calendar) => calendar.length(),
            Self::Rolling(length) => *length,
        }
    }
}

/// The name of the period: it tells the quotas of a limit apart, also in a store.
impl fmt::Display for QuotaPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calendar(calendar) => calendar.fmt(f),
            Self::Rolling(length) => {
                let ms = length.as_millis();
                let of_unit = |(unit_ms, least, name)| {
                    let count = ms.checked_div(unit_ms).filter(|count| *count >= least)?;
                    (count.checked_mul(unit_ms)? == ms).then_some((count, name))
                };
                let whole = ROLLING_UNITS_MS.into_iter().find_map(of_unit);
                let (count, name) = whole.unwrap_or((ms, "ms"));
                write!(f, "{count}{name}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
