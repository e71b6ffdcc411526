//! The coordinator's clocks: a monotonic one, the machine's since its boot, and the wall's.
//!
//! The monotonic one is built on tokio's, so that tests can pause it.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Sleep;
use tollgate_core::lease::Epoch;
use tollgate_core::units::Instant;

/// Start of the year 10 000, in seconds since 1970.
const YEAR_10_000: u64 = 253_402_300_800;

/// Monotonic time since the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: tokio::time::Instant,
}

/// Waits for deadlines of a [`Clock`], one at a time.
#[derive(Debug)]
pub struct Timer {
    clock: Clock,
    /// The deadline of `sleep`.
    deadline: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

// === impl Clock ===

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }

    /// The time now.
    pub fn now(self) -> Instant {
        Instant::ZERO.saturating_add(self.start.elapsed())
    }

    /// A way to wait for this clock.
    pub fn timer(self) -> Timer {
        Timer {
            clock: self,
            deadline: None,
            sleep: Box::pin(tokio::time::sleep_until(self.start)),
        }
    }
}

// === impl Timer ===

impl Timer {
    /// Waits until `deadline`; for ever if there is none.
    ///
    /// Waiting on for the same deadline is nearly free, however often: the runtime keeps its place
    /// in the queue of timers.
    pub async fn until(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        if self.deadline != Some(deadline) {
            let after = Duration::from_nanos(deadline.as_nanos());
            let Some(at) = self.clock.start.checked_add(after) else {
                return std::future::pending().await;
            };
            self.sleep.as_mut().reset(at);
            self.deadline = Some(deadline);
        }
        self.sleep.as_mut().await;
    }
}

// === free functions ===

/// The epoch of a coordinator without an election: milliseconds since 1970, so that it grows with
/// each start.
pub fn epoch_of_this_start() -> Epoch {
    let millis = unix_time().as_millis();
    Epoch(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// The time since the machine's boot. It goes on while the machine sleeps, and cannot be set: only for
/// the start in the metrics, and the end of a master's term, which others measure while this machine may
/// be asleep.
pub fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or(Duration::MAX)
}

/// The wall clock, since 1970. Only for times that others measure by a calendar: certificates,
/// the leases of Doorman's clients, the start in the metrics, and epochs, which a restart must not reset.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub fn unix_time() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or(Duration::ZERO)
}

/// A time in seconds since 1970, as a date that programs read as well (RFC 3339); the number from the year 10 000 on,
/// which dates do not have.
pub fn date_text(since_1970: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(since_1970));
    let time = time.filter(|_| since_1970 < YEAR_10_000);
    let text = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    text.unwrap_or_else(|| since_1970.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_text() {
        assert_eq!(date_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(date_text(YEAR_10_000 - 1), "9999-12-31T23:59:59Z");
        assert_eq!(date_text(YEAR_10_000), "253402300800");
        assert_eq!(date_text(u64::MAX), "18446744073709551615");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_ends_at_the_deadline_that_it_was_told_last() {
        let clock = Clock::start();
        let mut timer = clock.timer();
        let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
        for (told, until) in [(5, 5), (5, 5), (9, 9), (7, 9), (12, 12)] {
            timer.until(Some(at(told))).await;
            // Tokio's timers end in the millisecond after their deadline.
            let late = clock.now().saturating_since(at(until));
            assert!(
                late <= Duration::from_millis(1),
                "{told}: {:?}",
                clock.now()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_wait_goes_on() {
        let clock = Clock::start();
        let mut timer = clock.timer();
        let deadline = Instant::ZERO.saturating_add(Duration::from_secs(10));
        for _ in 0..3 {
            let wait = timer.until(Some(deadline));
            assert!(
                tokio::time::timeout(Duration::from_secs(3), wait)
                    .await
                    .is_err()
            );
        }
        timer.until(Some(deadline)).await;
        assert!(clock.now() >= deadline);
        let forever = tokio::time::timeout(Duration::from_secs(3600), timer.until(None));
        assert!(forever.await.is_err());
    }
}
