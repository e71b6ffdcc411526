//! Decisions on requests.

use crate::config::RuleId;
use crate::refusal::{Denial, Refusal};

/// Bucket of a scope, as an entry of a table.
pub(crate) type BucketId = (u16, u32);

/// One of the buckets that a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) table: u16,
    /// The rule that leads there: that of the table, but for canonical scopes.
    pub(crate) rule: u16,
    pub(crate) index: u32,
}

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

// === impl Target ===

impl Target {
    #[inline]
    pub(crate) const fn of(table: u16, index: u32) -> Self {
        Self {
            table,
            rule: table,
            index,
        }
    }

    pub(crate) fn bucket(self) -> BucketId {
        (self.table, self.index)
    }

    /// Returns whether the scope is the rule's own, and not one whose capacity that uses as well.
    pub(crate) fn is_own(self) -> bool {
        self.table == self.rule
    }

    /// Returns the bucket as a number, for the core.
    pub(crate) fn member(self) -> u64 {
        (u64::from(self.table) << 32) | u64::from(self.index)
    }
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
