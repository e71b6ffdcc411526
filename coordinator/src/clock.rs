//! The coordinator's one clock.
//!
//! Built on tokio's, so that tests can pause it.

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
#[expect(
    clippy::disallowed_methods,
    reason = "the only clock that a restart does not reset; read once, at the start"
)]
pub fn epoch_of_this_start() -> Epoch {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since_1970.map_or(0, |time| time.as_millis());
    Epoch(u64::try_from(millis).unwrap_or(u64::MAX))
}
