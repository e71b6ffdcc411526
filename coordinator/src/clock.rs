//! The coordinator's clocks: a monotonic one, and the wall's.
//!
//! The monotonic one is built on tokio's, so that tests can pause it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::lease::Epoch;
use tollgate_core::units::Instant;

/// Monotonic time since the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: tokio::time::Instant,
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

    /// Waits until `deadline`; for ever if there is none.
    pub async fn sleep_until(self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        let after = Duration::from_nanos(deadline.as_nanos());
        match self.start.checked_add(after) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

// === free functions ===

/// The epoch of a coordinator without an election: milliseconds since 1970, so that it grows with
/// each start.
pub fn epoch_of_this_start() -> Epoch {
    let millis = unix_time().as_millis();
    Epoch(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// What the wall clock says, since 1970. Only for what others measure by a calendar: certificates,
/// the leases of Doorman's clients, and epochs, which a restart must not reset.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub fn unix_time() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or(Duration::ZERO)
}
