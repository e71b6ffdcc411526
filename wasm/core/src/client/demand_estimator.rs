//! Estimator of demand: the rate of attempts, admitted or not.
//!
//! Measured: admitted, waiting and refused attempts together, since a tenant that is refused wants
//! what it was refused. A plain average over a second would tell the coordinator of a jump a second
//! late; the rate of a tenth of a second alone would take the noise of arrivals for a change of
//! demand, and max-min fairness hands noise on to all other clients. So there are two time scales.
//! Windows of a tenth of a second feed a smooth average. A window that is further above it than
//! chance explains replaces it at once; windows below it must agree for half a second.
//!
//! Mechanics: a window with `n` attempts where `e` were expected counts as a jump when it is a tenth of
//! `e` and three standard deviations, √e of a Poisson process, away.

use core::time::Duration;

use crate::units::{Capacity, Instant, MICRO, NANOS_PER_SEC, mul_div, nanos};

/// The shortest window that is judged.
const WINDOW: Duration = Duration::from_millis(100);
/// Attempts that make a window's rate good to a fifth. One with fewer stays open, up to
/// [`LONG_WINDOW`]: a few attempts a second would make the average of short windows sway.
const ENOUGH: u64 = 20;
const LONG_WINDOW: Duration = Duration::from_secs(1);
/// Time for which windows must have been low before the average follows them at once.
const LOW_FOR: Duration = Duration::from_millis(500);
/// Time constant of the average.
const SMOOTHING_NANOS: u64 = 700_000_000;
/// An average below one attempt in 1000 s is no demand.
const LEAST_MICROS: u64 = 1000;

/// Demand for one resource, as one process sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemandEstimator {
    /// Attempts since the window opened.
    pub(super) attempts: u64,
    /// Time at which the window opened.
    pub(super) opened_at: Instant,
    /// The smooth rate, in micro-attempts per second.
    pub(super) average: u64,
    /// Start of the low windows, if the last one was low.
    pub(super) low_since: Option<Instant>,
    /// The highest rate of those windows but the first.
    pub(super) low_max: u64,
    /// Whether a window was ever closed; before that the average means nothing.
    pub(super) measured: bool,
}

impl DemandEstimator {
    /// No demand so far.
    pub fn new(now: Instant) -> Self {
        Self {
            opened_at: now,
            ..Self::default()
        }
    }

    /// Counts `attempts` made until `now`.
    ///
    /// Attempts that come at the same time for the same reason, such as the bytes of one body, come
    /// `grain` at a time; at least one.
    pub fn count(&mut self, now: Instant, attempts: u64, grain: u64) {
        self.attempts = self.attempts.saturating_add(attempts);
        let elapsed = now.saturating_since(self.opened_at);
        if elapsed >= WINDOW {
            self.judge(now, elapsed, grain);
        }
    }

    /// Attempts per second.
    pub fn wants(&self) -> Capacity {
        if self.measured {
            return Capacity::from_micros(self.average);
        }
        // The first attempts ever: as many per window, until a window is over.
        Capacity::from_micros(per_second(self.attempts, WINDOW))
    }

    /// Judges a window that is long enough, and opens the next one unless this one says too little.
    fn judge(&mut self, now: Instant, elapsed: Duration, grain: u64) {
        let sample = per_second(self.attempts, elapsed);
        let expected = mul_div(self.average, nanos(elapsed), NANOS_PER_SEC);
        let noise = noise(expected, grain);
        let counted = self.attempts.saturating_mul(MICRO);
        // Any attempt at all in lumps is news where nothing was wanted.
        let begins = self.average == 0 && self.attempts > 0 && grain > 1;
        if !self.measured || begins || counted > expected.saturating_add(noise) {
            self.jump(sample);
        } else if counted < expected.saturating_sub(noise) {
            self.lower(now, sample);
        } else if self.attempts >= ENOUGH.saturating_mul(grain) || elapsed >= LONG_WINDOW {
            self.low_since = None;
            self.smooth(sample, elapsed);
        } else {
            return;
        }
        if self.average < LEAST_MICROS {
            self.average = 0;
        }
        self.measured = true;
        self.attempts = 0;
        self.opened_at = now;
    }

    fn jump(&mut self, sample: u64) {
        self.average = sample;
        self.low_since = None;
    }

    fn lower(&mut self, now: Instant, sample: u64) {
        let since = *self.low_since.get_or_insert(self.opened_at);
        let first = since == self.opened_at;
        let is_long = now.saturating_since(since) >= LOW_FOR;
        self.low_max = if !first {
            self.low_max.max(sample)
        } else if is_long {
            sample
        } else {
            // Demand falls within a window: the first one has attempts of before.
            0
        };
        if is_long {
            self.jump(self.low_max);
        }
    }

    fn smooth(&mut self, sample: u64, elapsed: Duration) {
        let elapsed = nanos(elapsed);
        let whole = u128::from(elapsed.saturating_add(SMOOTHING_NANOS));
        let part = |value: u64, weight: u64| mul_div(value, weight, whole);
        self.average = part(sample, elapsed).saturating_add(part(self.average, SMOOTHING_NANOS));
    }
}

// === free functions ===

/// Distance from `expected` micro-attempts up to which a window means no change.
fn noise(expected: u64, grain: u64) -> u64 {
    let least = MICRO.saturating_mul(grain);
    deviation(expected, grain)
        .saturating_mul(3)
        .max(expected / 10)
        .max(least)
}

/// The standard deviation of a Poisson process that is expected to bring `expected` micro-attempts,
/// `grain` attempts at a time.
pub(super) fn deviation(expected: u64, grain: u64) -> u64 {
    let one = u128::from(MICRO).saturating_mul(grain.max(1).into());
    let square = u128::from(expected).saturating_mul(one);
    u64::try_from(square.isqrt()).unwrap_or(u64::MAX)
}

fn per_second(attempts: u64, elapsed: Duration) -> u64 {
    let nanos = u128::from(nanos(elapsed));
    let micros = u128::from(attempts)
        .saturating_mul(MICRO.into())
        .saturating_mul(NANOS_PER_SEC);
    u64::try_from(micros.checked_div(nanos).unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts `per_window[i]` lumps of `grain` attempts in the i-th tenth of a second and returns what
    /// is wanted at the end of each, in whole lumps per second.
    fn wants(per_window: &[u64], grain: u64) -> std::vec::Vec<u64> {
        let mut now = Instant::ZERO;
        let mut demand = DemandEstimator::new(now);
        let window = |lumps: &u64| {
            now = now.saturating_add(WINDOW);
            demand.count(now, *lumps * grain, grain);
            demand.wants().as_micros() / MICRO / grain
        };
        per_window.iter().map(window).collect()
    }

    #[test]
    fn rows() {
        let rows: [(&str, &[u64], &[u64]); 7] = [
            ("steady", &[50, 50, 50], &[500, 500, 500]),
            ("up at once", &[10, 100, 100], &[100, 1000, 1000]),
            (
                "down after half a second",
                &[100, 20, 30, 25, 20, 20],
                &[1000, 1000, 1000, 1000, 1000, 300],
            ),
            (
                "a pause is not an end",
                &[100, 0, 0, 0, 100],
                &[1000, 1000, 1000, 1000, 1000],
            ),
            (
                "noise is smoothed",
                &[100, 110, 90, 100],
                &[1000, 1012, 998, 998],
            ),
            (
                "to zero",
                &[30, 0, 0, 0, 0, 0],
                &[300, 300, 300, 300, 300, 0],
            ),
            (
                "slow and steady",
                &[1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
                &[10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 7],
            ),
        ];
        for (name, attempts, want) in rows {
            for grain in [1, 4096] {
                assert_eq!(wants(attempts, grain), want, "{name}, {grain} at a time");
            }
        }
    }

    #[test]
    fn the_first_attempts_count_before_a_window_is_over() {
        let mut demand = DemandEstimator::new(Instant::ZERO);
        demand.count(Instant::ZERO, 3, 1);
        assert_eq!(demand.wants(), Capacity::from_whole(30));
    }

    #[test]
    fn one_look_after_a_long_silence_sees_the_end() {
        let mut demand = DemandEstimator::new(Instant::ZERO);
        demand.count(Instant::from_nanos(100_000_000), 100, 1);
        demand.count(Instant::from_nanos(2_000_000_000), 0, 1);
        assert_eq!(demand.wants(), Capacity::ZERO);
    }

    #[test]
    fn any_numbers_do_no_harm() {
        let mut demand = DemandEstimator::new(Instant::from_nanos(u64::MAX));
        demand.count(Instant::ZERO, u64::MAX, 1);
        demand.count(Instant::from_nanos(u64::MAX), u64::MAX, u64::MAX);
        assert!(!demand.wants().is_unlimited());
    }
}
