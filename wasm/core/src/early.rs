//! Allowance of what may come before its time.

use core::time::Duration;

use crate::units::Instant;

/// Allowance of events that may come before their time: some in a row, then one in each interval.
///
/// A virtual schedule (GCRA) instead of a bucket: one instant is all its state, and the first one
/// may be at any time.
///
/// ```
/// use core::time::Duration;
/// use tollgate_core::early::{EarlyAllowance, EarlyRate};
/// use tollgate_core::units::Instant;
/// let rate = EarlyRate { max: 2, interval: Duration::from_secs(1) };
/// let now = Instant::from_nanos(5);
/// let mut allowance = EarlyAllowance::default();
/// allowance.take(now, rate, 1);
/// assert_eq!(allowance.next_at(now, rate), now);
/// allowance.take(now, rate, 1);
/// assert_eq!(allowance.next_at(now, rate), now.saturating_add(rate.interval));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyAllowance {
    /// Time from which as many may follow each other as ever.
    all_from: Instant,
}

/// Rate of an [`EarlyAllowance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyRate {
    /// The most in a row.
    pub max: u32,
    /// Interval in which one more may come.
    pub interval: Duration,
}

// === impl EarlyAllowance ===

impl EarlyAllowance {
    /// Returns the time of the next one: `now`, if one may come.
    pub fn next_at(&self, now: Instant, rate: EarlyRate) -> Instant {
        let row = rate.interval.saturating_mul(rate.max.saturating_sub(1));
        self.all_from.saturating_sub(row).max(now)
    }

    /// Notes that `count` came at `now`.
    pub fn take(&mut self, now: Instant, rate: EarlyRate, count: u32) {
        let taken = rate.interval.saturating_mul(count);
        self.all_from = self.all_from.max(now).saturating_add(taken);
    }

    /// Whether as many may follow each other as ever, so that there is nothing to remember.
    pub fn is_whole(&self, now: Instant) -> bool {
        self.all_from <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_any_time_no_more_come_than_a_row_and_one_in_each_interval() {
        let rate = EarlyRate {
            max: 4,
            interval: Duration::from_millis(100),
        };
        let at = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
        let mut allowance = EarlyAllowance::default();
        let mut passed = 0;
        for ms in 0..1000 {
            if allowance.next_at(at(ms), rate) == at(ms) {
                allowance.take(at(ms), rate, 1);
                passed += 1;
            }
        }
        assert_eq!(passed, 4 + 9);
        assert!(!allowance.is_whole(at(1000)));
        assert!(allowance.is_whole(at(1400)));
        assert_eq!(
            allowance.next_at(at(u64::MAX / 2_000_000), rate),
            at(u64::MAX / 2_000_000)
        );
    }
}
