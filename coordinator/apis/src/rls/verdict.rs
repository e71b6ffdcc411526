//! Decisions on descriptors, and their effects on requests.

use std::time::Duration;

use super::ask::DescriptorAsk;
use super::current_limit::CurrentLimit;

/// Decision on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether its scope has too little.
    pub(super) is_over: bool,
    /// The strictest limit that holds for it; `None` if none does.
    pub(super) limit: Option<CurrentLimit>,
    /// Hits that would pass at once.
    pub(super) remaining: u64,
    /// Time until its hits would pass if it is over, otherwise until all hits are there again; `None`
    /// if that is not known.
    pub(super) reset: Option<Duration>,
}

/// Effect of a descriptor on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It has none, because no rule holds for the descriptor.
    Unmatched,
    /// It lets the request pass.
    Passes,
    /// It would refuse, if its rule did not only count.
    Shadowed,
    /// It refuses.
    Over,
}

// === impl Verdict ===

impl Verdict {
    /// Returns the stricter of two decisions on one descriptor.
    pub(super) fn stricter(self, other: Self) -> Self {
        let (mut stricter, laxer) = match (self.is_over, other.is_over) {
            (true, false) => (self, other),
            (false, true) => (other, self),
            (true, true) if self.ends_before(other) => (other, self),
            (true, true) => (self, other),
            _ if other.limit.is_some() && other.remaining < self.remaining => (other, self),
            _ => (self, other),
        };
        stricter.limit = stricter.limit.or(laxer.limit);
        stricter
    }

    /// Returns whether it resets before another one; one without a time never does.
    fn ends_before(self, other: Self) -> bool {
        match (self.reset, other.reset) {
            (Some(reset), Some(later)) => reset < later,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

// === impl Effect ===

impl Effect {
    /// Returns the effect of the decision on a descriptor.
    pub(super) fn new(ask: Option<&DescriptorAsk<'_>>, verdict: Option<Verdict>) -> Self {
        match (ask, verdict) {
            (Some(ask), Some(verdict)) if verdict.is_over => {
                if ask.rule.shadow {
                    Self::Shadowed
                } else {
                    Self::Over
                }
            }
            (Some(_), Some(_)) => Self::Passes,
            _ => Self::Unmatched,
        }
    }
}
