//! Waiting for a condition, with a deadline that says what was waited for.

use std::time::Duration;

use anyhow::{Error, Result};
use tokio::time::{Instant, sleep};

/// How often a condition is tried again.
const POLL: Duration = Duration::from_millis(10);

/// Tries `check` until it gives a value.
///
/// # Errors
/// After `limit`, with `what` was waited for and the last error `check` gave.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let failure: Error = match check().await {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if Instant::now() >= deadline {
            return Err(failure.context(format!("waited {limit:?} for {what}")));
        }
        sleep(POLL).await;
    }
}
