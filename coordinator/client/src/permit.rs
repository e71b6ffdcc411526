//! Admitted requests.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::units::Tokens;
use tollgate_engine::LimitStatus;

use crate::worker::{Admitted, Shared};

/// Admitted request. It is over when the permit is dropped: limits of requests in flight count it
/// until then.
///
/// ```
/// use tollgate_client::{AcquireError, Client};
///
/// async fn work(limits: &Client) -> Result<(), AcquireError> {
///     // Not `let _ =`, which would end it at once.
///     let _permit = limits.acquire("tenant/acme", 1).await?;
///     // ... counts as in flight until the end of this function ...
///     Ok(())
/// }
/// # let _ = work;
/// ```
#[derive(Debug)]
#[must_use = "a limit of requests in flight counts the request only as long as the permit lives"]
pub struct Permit {
    admitted: Admitted,
    /// The worker that counts the request until it is over, if any limit does.
    counted_by: Option<Arc<Shared>>,
}

// === impl Permit ===

impl Permit {
    pub(crate) fn new(shared: &Arc<Shared>, admitted: Admitted) -> Self {
        let counted_by = admitted.is_counted.then(|| Arc::clone(shared));
        Self {
            admitted,
            counted_by,
        }
    }

    /// Returns the time for which the request waited, for a first lease or for its turn.
    pub fn waited(&self) -> Duration {
        self.admitted.waited
    }

    /// Returns how the request's limits stand, with the names of their rules, if the settings ask for
    /// it ([`Settings::report_limits`](crate::Settings::report_limits)).
    pub fn limits(&self) -> &[(String, LimitStatus)] {
        &self.admitted.limits
    }

    /// Ends the request, which has cost `tokens` in all, at the rules whose cost is known only at the
    /// end ([`Rule::final_cost`](crate::Rule::final_cost)). What is more than was paid becomes a debt,
    /// which later requests wait for.
    ///
    /// ```
    /// use tollgate_client::{Client, Rule, Settings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // No coordinator is there, so the safe capacity holds: a hundred tokens per second.
    /// let tokens = Rule::new("tokens").safe_capacity(100.0).final_cost();
    /// let limits = Client::start(&Settings::new("http://127.0.0.1:1").rule(tokens))?;
    ///
    /// let permit = limits.acquire("tokens/acme", 1).await?;
    /// // The answer of the model turns out to have 800 tokens.
    /// permit.settle(800);
    /// assert!(limits.acquire("tokens/acme", 1).await.is_err(), "the debt is paid first");
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(mut self, tokens: u64) {
        self.end(Some(Tokens::from_whole(tokens)));
    }

    fn end(&mut self, cost: Option<Tokens>) {
        if let Some(shared) = self.counted_by.take() {
            shared.lock().end(self.admitted.stream, cost);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None);
    }
}
