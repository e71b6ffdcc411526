//! Waiting for a condition, with a limit and an error that names the condition.

use std::time::Duration;

use anyhow::{Error, Result};
use tokio::time::{Instant, sleep};

use crate::conditions::{self, INCONCLUSIVE};

/// Part of a wait that stalls may take; a wait that lost more and failed is inconclusive.
const LOST_PART_MAX: f64 = 0.1;
/// Interval between two checks.
const POLL: Duration = Duration::from_millis(10);

/// Calls `check` until it returns a value.
///
/// # Errors
/// After `limit`, with `condition` and the last error of `check`; inconclusive if the machine was too
/// busy.
pub async fn until<T>(
    condition: &str,
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
            let failure = failure.context(format!("waited {limit:?} for {condition}"));
            let lost = conditions::lost_in(started..now);
            return Err(if lost.is_at_most(LOST_PART_MAX) {
                failure
            } else {
                failure.context(format!("{INCONCLUSIVE} {lost}"))
            });
        }
        sleep(POLL).await;
    }
}
