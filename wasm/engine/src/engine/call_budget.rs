//! How much more may be asked before answers have come.
//!
//! Each cluster of coordinators has room of its own: one that does not answer, as that of a shard whose
//! master hangs, keeps nobody else from being asked.

use super::calls::SCOPES_PER_CALL;
use crate::upstreams::Upstream;

/// The scopes that may still be asked for, of each upstream.
#[derive(Debug)]
pub(super) struct CallBudget {
    left: Vec<usize>,
}

// === impl CallBudget ===

impl CallBudget {
    /// CallBudget for so many `calls` to each upstream.
    pub(super) fn new(calls: impl Iterator<Item = usize>) -> Self {
        let scopes = |calls: usize| calls.saturating_mul(SCOPES_PER_CALL);
        Self {
            left: calls.map(scopes).collect(),
        }
    }

    /// Whether nobody may be asked any more.
    pub(super) fn is_none(&self) -> bool {
        self.left.iter().all(|left| *left == 0)
    }

    /// Whether `to` may be asked for one more scope.
    pub(super) fn has(&self, to: Upstream) -> bool {
        self.left.get(to.index()).is_some_and(|left| *left > 0)
    }

    /// Counts a scope that `to` is asked for.
    pub(super) fn take(&mut self, to: Upstream) {
        if let Some(left) = self.left.get_mut(to.index()) {
            *left = left.saturating_sub(1);
        }
    }
}
