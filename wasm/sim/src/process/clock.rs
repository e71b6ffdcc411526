//! Clock of one process: an epoch of its own, and a little too fast or too slow.

use std::time::Duration;

use tollgate_core::units::Instant;

use crate::random::Random;

const MILLION: u128 = 1_000_000;
/// Largest distance between two clocks' epochs: about two years.
const EPOCHS: u64 = 1 << 56;

/// Clock of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Time that it shows then.
    shows: Instant,
    /// Millionths of a second that it advances in a microsecond of the world.
    pace: u128,
}

// === impl Clock ===

impl Clock {
    /// Returns a clock that is wrong by at most `drift_ppm` millionths of the time since `now`.
    pub(crate) fn new(now: Instant, drift_ppm: u32, random: &mut Random) -> Self {
        let drift = u64::from(drift_ppm);
        let pace = random.between(0, 2 * drift);
        Self {
            started: now,
            shows: now.saturating_add(Duration::from_nanos(random.between(0, EPOCHS))),
            pace: MILLION + u128::from(pace) - u128::from(drift),
        }
    }

    /// Returns what it shows at the world's `now`.
    pub(crate) fn at(&self, now: Instant) -> Instant {
        let passed = now.saturating_since(self.started).as_nanos() * self.pace / MILLION;
        self.shows.saturating_add(duration(passed))
    }

    /// Returns the first time of the world at which it shows `local`.
    pub(crate) fn world(&self, local: Instant) -> Instant {
        let passed = local.saturating_since(self.shows).as_nanos() * MILLION;
        self.started
            .saturating_add(duration(passed.div_ceil(self.pace)))
    }
}

// === free functions ===

fn duration(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_drifts_both_ways_and_back() {
        let start = Instant::from_nanos(5_000_000_000);
        let mut random = Random::new(3);
        let mut wrong = Vec::new();
        for _ in 0..100 {
            let clock = Clock::new(start, 1000, &mut random);
            let hour = Duration::from_secs(3600);
            let local = clock.at(start.saturating_add(hour));
            let passed = local.saturating_since(clock.at(start)).as_secs_f64();
            wrong.push(passed - 3600.0);
            let back = clock.world(local);
            assert!(clock.at(back) >= local);
            assert!(back <= start.saturating_add(hour));
        }
        assert!(wrong.iter().all(|wrong| wrong.abs() <= 3.6));
        assert!(wrong.iter().any(|wrong| *wrong > 1.0));
        assert!(wrong.iter().any(|wrong| *wrong < -1.0));
    }
}
