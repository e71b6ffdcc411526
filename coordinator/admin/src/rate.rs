//! Refreshed scopes per second, the mean of the last ten seconds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::units::Instant;
use tollgate_leases::metrics::LeaseMetrics;
use tollgate_net::clock::Clock;

/// How often the counter is read.
const EVERY: Duration = Duration::from_secs(1);

/// Readings that are kept.
const READINGS: usize = 10;

/// The shortest time that a rate is taken over.
const SPAN_MIN: Duration = Duration::from_millis(100);

/// The last readings of the counter, the oldest first; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RefreshRate(Arc<Mutex<VecDeque<(Instant, u64)>>>);

// === impl RefreshRate ===

impl RefreshRate {
    /// The rate of what `metrics` count; it is read as long as anybody can look.
    pub(super) fn of(metrics: &LeaseMetrics, clock: Clock) -> Self {
        let rate = Self::default();
        let (metrics, readings) = (metrics.clone(), Arc::downgrade(&rate.0));
        tokio::spawn(async move {
            let mut timer = clock.timer();
            let mut next = clock.now();
            while let Some(readings) = readings.upgrade() {
                Self(readings).read(clock.now(), metrics.refreshes());
                next = next.saturating_add(EVERY).max(clock.now());
                timer.until(Some(next)).await;
            }
        });
        rate
    }

    /// The rate, if the counter says `count` now; 0 in the first moment.
    pub(super) fn look(&self, now: Instant, count: u64) -> f64 {
        let readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, before) = readings.front().copied().unwrap_or((now, count));
        let span = now.saturating_since(at);
        if span < SPAN_MIN {
            return 0.0;
        }
        count.saturating_sub(before) as f64 / span.as_secs_f64()
    }

    fn read(&self, now: Instant, count: u64) {
        let mut readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readings.len() >= READINGS {
            readings.pop_front();
        }
        readings.push_back((now, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds_however_often_somebody_looks() {
        let rate = RefreshRate::default();
        let at = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
        assert_eq!(rate.look(at(0), 5), 0.0, "nothing was read yet");
        rate.read(at(0), 0);
        let rows = [
            (50, 10, 0.0),
            (500, 10, 20.0),
            (500, 10, 20.0),
            (900, 36, 40.0),
        ];
        for (ms, count, want) in rows {
            assert_eq!(rate.look(at(ms), count), want, "{ms} ms");
        }
        // Ten a second for a minute, and then nothing.
        for second in 1..=60 {
            rate.read(at(second * 1000), second * 10);
        }
        assert_eq!(rate.look(at(61_000), 610), 10.0);
        for second in 61..=65 {
            rate.read(at(second * 1000), 600);
        }
        assert_eq!(rate.look(at(66_000), 600), 4.0);
        for second in 66..=70 {
            rate.read(at(second * 1000), 600);
        }
        assert_eq!(rate.look(at(71_000), 600), 0.0);
        assert_eq!(rate.0.lock().unwrap().len(), READINGS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_counter_is_read_as_long_as_anybody_can_look() {
        let (metrics, clock) = (LeaseMetrics::default(), Clock::start());
        let rate = RefreshRate::of(&metrics, clock);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let readings = Arc::downgrade(&rate.0);
        assert_eq!(rate.0.lock().unwrap().len(), READINGS);
        drop(rate);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(readings.strong_count(), 0);
    }
}
