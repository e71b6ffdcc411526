//! Scopes and cost that a request is charged for.

use std::time::Duration;

/// Scopes and cost of a request.
///
/// ```
/// use std::time::Duration;
/// use tollgate_client::Charge;
///
/// let charge = Charge::of("tenant/acme")
///     .and("user/4711")
///     .cost(5)
///     .max_wait(Duration::from_millis(200));
/// # let _ = charge;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub(crate) scopes: Vec<String>,
    pub(crate) cost: u64,
    pub(crate) max_wait: Option<Duration>,
}

// === impl Charge ===

impl Charge {
    /// Returns the charge of one token at `scope`: the name of a rule, a slash, and a key of 1 to 200
    /// bytes without control characters.
    pub fn of(scope: impl Into<String>) -> Self {
        Self {
            scopes: vec![scope.into()],
            cost: 1,
            max_wait: None,
        }
    }

    /// Adds a scope. A request is charged at all of its scopes or at none. At most 16 scopes.
    #[must_use]
    pub fn and(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Sets the tokens that the request costs at each scope; 0 passes everywhere.
    #[must_use]
    pub fn cost(mut self, tokens: u64) -> Self {
        self.cost = tokens;
        self
    }

    /// Sets the longest time that the request waits for its turn, where a rule lets requests wait
    /// ([`Rule::max_wait`](crate::Rule::max_wait)). Without it the rule's own time counts.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = Some(time);
        self
    }
}

impl<S: Into<String>> From<S> for Charge {
    fn from(scope: S) -> Self {
        Self::of(scope)
    }
}
