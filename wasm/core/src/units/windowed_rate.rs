//! Rates as people state them: whole tokens in a window.

use super::{MICRO, RatePeriod};

/// Whole tokens in a window of whole seconds, which state a rate: 100 in 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowedRate {
    /// Tokens in each window, at least one.
    pub tokens: u64,
    /// Length of the window in seconds, at least one.
    pub window_s: u64,
}

/// Part of a rate by which its statement may differ from it.
const TOLERANCE: u128 = 1000;

// === impl WindowedRate ===

impl WindowedRate {
    /// States a rate of `micros` micro-tokens a second: for the period for which it was `written`, or the
    /// shortest one, in which it is within a thousandth of whole tokens; else in a day, or as one token in
    /// the time that it takes. `None` for 0, which is no rate, and for `u64::MAX`, which is without a limit.
    pub fn of(micros: u64, written: Option<RatePeriod>) -> Option<Self> {
        if micros == 0 || micros == u64::MAX {
            return None;
        }
        let rounded = |period| Self::rounded(micros, period);
        let stated = RatePeriod::ALL.map(rounded);
        let written = written.map(rounded).into_iter();
        let mut near = written.chain(stated).filter(|one| one.is_near(micros));
        let [.., in_a_day] = stated;
        let stated = near.next().unwrap_or(in_a_day);
        Some(if stated.tokens > 0 {
            stated
        } else {
            Self {
                tokens: 1,
                window_s: MICRO.div_ceil(micros),
            }
        })
    }

    /// The whole tokens next to what `micros` a second are in a period.
    fn rounded(micros: u64, period: RatePeriod) -> Self {
        let window_s = u64::from(period.seconds());
        const TOKEN: u128 = MICRO as u128;
        let in_window = u128::from(micros).saturating_mul(window_s.into());
        let tokens = in_window.saturating_add(TOKEN / 2) / TOKEN;
        Self {
            tokens: u64::try_from(tokens).unwrap_or(u64::MAX),
            window_s,
        }
    }

    fn is_near(self, micros: u64) -> bool {
        let exact = u128::from(micros).saturating_mul(self.window_s.into());
        let stated = u128::from(self.tokens).saturating_mul(MICRO.into());
        stated.abs_diff(exact).saturating_mul(TOLERANCE) <= exact
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_is_stated_as_it_was_meant() {
        const MIN: u64 = 60;
        const H: u64 = 3600;
        const D: u64 = 86_400;
        // Tokens a window as they are written, and as they are stated.
        let rows = [
            ((1, 1), (1, 1)),
            ((20, 1), (20, 1)),
            ((1000, 1), (1000, 1)),
            ((100_000, 1), (100_000, 1)),
            ((90, MIN), (90, MIN)),
            ((100, MIN), (100, MIN)),
            ((59, MIN), (59, MIN)),
            ((10, MIN), (10, MIN)),
            ((60, MIN), (1, 1)),
            ((600, MIN), (10, 1)),
            ((100, H), (100, H)),
            ((10, H), (10, H)),
            ((5, H), (5, H)),
            ((1, H), (1, H)),
            ((3600, H), (1, 1)),
            ((50, D), (50, D)),
            ((3, D), (3, D)),
            ((1, D), (1, D)),
            ((1000, D), (1000, D)),
            ((86_400, D), (1, 1)),
            ((1_000_000, D), (694, MIN)),
            ((10_000, D), (417, H)),
            ((25, D), (25, D)),
        ];
        for ((tokens, window_s), want) in rows {
            let micros = (tokens * MICRO + window_s / 2) / window_s;
            let stated = WindowedRate::of(micros, None).unwrap();
            assert_eq!(
                (stated.tokens, stated.window_s),
                want,
                "{tokens} in {window_s}"
            );
            // Written with its period it is stated as it was written.
            let period = RatePeriod::from_seconds(window_s as u32);
            let written = WindowedRate::of(micros, period).unwrap();
            assert_eq!((written.tokens, written.window_s), (tokens, window_s));
        }
        // A rate that is not whole for its period is stated for another one: 1.5 a minute.
        let other = WindowedRate::of(25_000, Some(RatePeriod::Minute)).unwrap();
        assert_eq!((other.tokens, other.window_s), (90, H));
        // Less than one a day.
        let week = WindowedRate::of(2, None).unwrap();
        assert_eq!((week.tokens, week.window_s), (1, 500_000));
        assert_eq!(WindowedRate::of(0, None), None);
        assert_eq!(WindowedRate::of(u64::MAX, None), None);
    }

    proptest! {
        #[test]
        fn what_is_stated_is_the_rate(
            micros in prop_oneof![1..100 * MICRO, 1..u64::MAX],
            written in prop::option::of(prop::sample::select(&RatePeriod::ALL[..])),
        ) {
            let stated = WindowedRate::of(micros, written).unwrap();
            prop_assert!(stated.tokens >= 1 && stated.window_s >= 1);
            let rate = stated.tokens as f64 * MICRO as f64 / stated.window_s as f64;
            let off = (rate - micros as f64).abs() / micros as f64;
            // Half a token in a day, at most, of rates below five hundred a day.
            let bound = if micros > 5787 { 1.1e-3 } else { 0.5 / (micros as f64 * 0.0864) };
            prop_assert!(off <= bound.min(1.0), "{micros} is stated {off} off");
        }
    }
}
