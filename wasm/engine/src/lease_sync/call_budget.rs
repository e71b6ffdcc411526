//! Scopes that may still be asked for before answers have come.
//!
//! Each cluster of coordinators has a budget of its own: one that does not answer, as that of a shard
//! whose master hangs, keeps no other from being asked.

use super::calls::SCOPES_PER_CALL;
use super::upstreams::Upstream;

/// Scopes that may still be asked for, by upstream.
#[derive(Debug)]
pub(super) struct CallBudget {
    left: Vec<usize>,
}

// === impl CallBudget ===

impl CallBudget {
    /// Returns the budget of so many `calls` to each upstream.
    pub(super) fn new(calls: impl Iterator<Item = usize>) -> Self {
        let scopes = |calls: usize| calls.saturating_mul(SCOPES_PER_CALL);
        Self {
            left: calls.map(scopes).collect(),
        }
    }

    /// Returns whether no upstream may be asked any more.
    pub(super) fn is_spent(&self) -> bool {
        self.left.iter().all(|left| *left == 0)
    }

    /// Returns for how many scopes an upstream may be asked.
    pub(super) fn left(&self, to: Upstream) -> usize {
        self.left.get(to.index()).copied().unwrap_or_default()
    }

    /// Returns whether an upstream may be asked for one more scope.
    pub(super) fn has(&self, to: Upstream) -> bool {
        self.left(to) > 0
    }

    /// Counts a scope that an upstream is asked for.
    pub(super) fn take(&mut self, to: Upstream) {
        if let Some(left) = self.left.get_mut(to.index()) {
            *left = left.saturating_sub(1);
        }
    }
}
