//! Places of resources in an order, and the first of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_core::lease::ResourceId;

/// Place of a resource in an order; the first has the smallest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(super) figures: [u128; 2],
    /// Makes the order total.
    pub(super) id: RankedId,
}

/// Id in one of two directions; all of an order have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankedId {
    Ascending(ResourceId),
    Descending(Reverse<ResourceId>),
}

/// The first resources in an order, at most so many.
#[derive(Debug)]
pub(crate) struct FirstResources {
    ranks: BinaryHeap<Rank>,
    max: usize,
}

// === impl Rank ===

impl Rank {
    fn into_id(self) -> ResourceId {
        match self.id {
            RankedId::Ascending(id) | RankedId::Descending(Reverse(id)) => id,
        }
    }
}

// === impl FirstResources ===

impl FirstResources {
    /// None so far, and never more than `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            ranks: BinaryHeap::new(),
            max,
        }
    }

    /// Adds `rank`; drops and returns the last of them where there are too many, which may be the
    /// same.
    pub(crate) fn push(&mut self, rank: Rank) -> Option<ResourceId> {
        self.ranks.push(rank);
        if self.ranks.len() > self.max {
            return self.ranks.pop().map(Rank::into_id);
        }
        None
    }

    /// The resources, the first first.
    pub(crate) fn into_ids(self) -> Vec<ResourceId> {
        let ranks = self.ranks.into_sorted_vec().into_iter();
        ranks.map(Rank::into_id).collect()
    }
}
