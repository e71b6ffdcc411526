//! A node that lends what it borrows of a parent.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Node, Slot};
use crate::client::Todo;
use crate::lease::{Answer, Ask, Demand, EpochError, Origin, ResourceId};
use crate::limit::Limit;
use crate::tree::{Asked, Tree};
use crate::units::{Capacity, Instant};

// === impl Node ===

impl Node {
    /// Lends nothing any more but what it borrows of a parent, as whose client it counts its
    /// requests from `sequence` on. To the parent its run is its [term](crate::lease::Run::Term). A
    /// request without an answer after `call_timeout` counts as lost.
    pub fn borrow_from_parent(&mut self, now: Instant, sequence: u64, call_timeout: Duration) {
        let mut tree = Tree::new(sequence, call_timeout, self.bounds.max_resources);
        for (id, slot) in &self.resources {
            let pool = slot.pool.as_ref().and_then(|pool| self.pools.get(pool));
            let needs = slot.resource.needs(pool);
            let expiries = slot.resource.clients().map(|client| client.expiry);
            tree.note(now, id, expiries.max().unwrap_or(now), &needs);
        }
        self.tree = Some(tree);
    }

    /// What it borrows, if it has a parent.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// What clients want of the resource `id`, by priority, as a parent is told; none if it has no
    /// clients.
    pub fn demand(&self, id: &ResourceId) -> Option<Demand> {
        let Slot { resource, pool, .. } = self.resources.get(id)?;
        let pool = pool.as_ref().and_then(|pool| self.pools.get(pool));
        Some(resource.demand(pool))
    }

    /// When [`Node::ask_parent`] next has something to say.
    pub fn poll_parent(&self) -> Option<Instant> {
        self.tree.as_ref()?.poll_due()
    }

    /// What there is to say to the parent now, of at most `max` resources.
    pub fn ask_parent(&mut self, now: Instant, max: usize) -> Vec<(ResourceId, Todo)> {
        let (resources, pools) = (&self.resources, &self.pools);
        let taken_over_at = self.taken_over_at;
        let Some(tree) = &mut self.tree else {
            return Vec::new();
        };
        tree.ask(now, max, |id| {
            let Slot { resource, pool, .. } = resources.get(id)?;
            let pool = pool.as_ref().and_then(|pool| pools.get(pool));
            let has = u64::try_from(resource.sum_has()).unwrap_or(u64::MAX);
            Some(Asked {
                demand: resource.demand(pool),
                has: Capacity::from_micros(has),
                hearsay: now < resource.learning_until()
                    || taken_over_at.is_some_and(|at| resource.is_from_before(at)),
            })
        })
    }

    /// Checks whether an answer of the parent from `origin` for the resource `id` may be applied;
    /// [`Node::handle_parent_answer`] takes one that may not for a failure.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_parent_origin(&self, id: &ResourceId, origin: Origin) -> Result<(), EpochError> {
        let tree = self.tree.as_ref();
        tree.map_or(Ok(()), |tree| tree.check_origin(id, origin))
    }

    /// Takes the parent's answer to the request of `sequence` for the resource `id`; `level` says
    /// how many coordinators are above. True if it counts: it was the latest request, and no later
    /// master has answered.
    pub fn handle_parent_answer(
        &mut self,
        now: Instant,
        id: &ResourceId,
        (sequence, origin, level): (u64, Origin, u32),
        answer: &Answer,
    ) -> bool {
        self.tree.as_mut().is_some_and(|tree| {
            tree.set_level(level);
            tree.handle_answer(now, id, sequence, origin, answer)
        })
    }

    /// Notes that the request of `sequence` for the resource `id` failed.
    pub fn handle_parent_failure(&mut self, now: Instant, id: &ResourceId, sequence: u64) {
        if let Some(tree) = &mut self.tree {
            tree.handle_failure(now, id, sequence);
        }
    }

    /// Tells the tree what has become of the resource `id` with `ask`.
    pub(super) fn note(&mut self, now: Instant, id: &ResourceId, ask: &Ask) {
        if let Some(tree) = &mut self.tree
            && let Some(slot) = self.resources.get(id)
        {
            let pool = slot.pool.as_ref().and_then(|pool| self.pools.get(pool));
            let needs = slot.resource.needs(pool);
            // While learning, what clients claim was lent by an earlier run.
            let lent_until = if now < slot.resource.learning_until() && ask.has > Capacity::ZERO {
                let longest = slot.resource.limit().learning;
                now.saturating_add(ask.remaining.map_or(longest, |left| left.min(longest)))
            } else {
                Instant::ZERO
            };
            tree.note(now, id, lent_until, &needs);
        }
    }
}

// === impl Slot ===

impl Slot {
    /// Lets what is borrowed, if anything is, bound the resource called `id`, whose own limit is
    /// `limit`.
    pub(super) fn bind(
        &mut self,
        now: Instant,
        id: &ResourceId,
        limit: &Limit,
        tree: Option<&Tree>,
    ) {
        let bound = tree.map(|tree| tree.bound(now, id, limit));
        self.resource.bind(bound);
    }
}
