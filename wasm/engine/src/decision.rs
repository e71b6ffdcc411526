//! Decisions on requests.

use crate::admission::Target;
use crate::refusal::{Denial, Refusal};
use crate::rules::RuleId;

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request goes on.
    Admit,
    /// The request waits for the first lease of a scope; an [`Effect`](crate::Effect) ends the wait.
    Hold,
    /// The request waits for its turn; an [`Effect`](crate::Effect) ends the wait.
    Queue(Shortfall),
    /// The request is refused.
    Deny(Refusal),
}

/// Bucket that has too little for a request, which may wait there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub(crate) target: Target,
    pub(crate) denial: Denial,
}

// === impl Shortfall ===

impl Shortfall {
    /// Returns the refusal of a request that does not wait.
    pub fn refusal(self) -> Refusal {
        Refusal::Denied {
            rule: RuleId(self.target.table),
            by: RuleId(self.target.rule),
            denial: self.denial,
        }
    }
}
