//! Waiting for a condition, with a deadline that says what was waited for.

use std::time::Duration;

use anyhow::{Error, Result};
use tokio::time::{Instant, sleep};

use crate::conditions::{self, INCONCLUSIVE};

/// The part of a wait that the machine may take away without being the reason that it was in vain.
const LOST_PART_MAX: f64 = 0.1;
/// How often a condition is tried again.
const POLL: Duration = Duration::from_millis(10);

/// Tries `check` until it gives a value.
///
/// # Errors
/// After `limit`, with `what` was waited for and the last error `check` gave; inconclusive if the
/// machine had no time for it.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    let deadline = started + limit;
    loop {
        let failure: Error = match check().await {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let now = Instant::now();
        if now >= deadline {
            let failure = failure.context(format!("waited {limit:?} for {what}"));
            let lost = conditions::lost_in(started..now);
            return Err(match lost.is_at_most(LOST_PART_MAX) {
                true => failure,
                false => failure.context(format!("{INCONCLUSIVE} {lost}")),
            });
        }
        sleep(POLL).await;
    }
}
