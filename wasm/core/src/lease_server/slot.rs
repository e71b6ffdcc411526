//! A resource in the lease server, with its place in a pool.

use super::Terms;
use super::pools::Pools;
use crate::lease::{Demand, ResourceId};
use crate::limit::Limit;
use crate::pool::{Pool, PoolLink, PoolMembership, ResourceTotals};
use crate::resource::Resource;
use crate::tree::ParentLeases;
use crate::units::{Capacity, Instant};

/// Resource that has clients.
#[derive(Debug)]
pub(super) struct ResourceSlot {
    pub(super) resource: Resource,
    /// The pool that it is a member of.
    pub(super) pool: Option<(ResourceId, PoolMembership)>,
    /// Its instant in the queue of expiries.
    pub(super) queued_at: Instant,
}

// === impl ResourceSlot ===

impl ResourceSlot {
    /// A resource in no pool.
    pub(super) fn new(resource: Resource, queued_at: Instant) -> Self {
        Self {
            resource,
            pool: None,
            queued_at,
        }
    }

    /// The pool that the resource is a member of.
    pub(super) fn pool(&self) -> Option<&ResourceId> {
        self.pool.as_ref().map(|(id, _)| id)
    }

    /// Whether clients of the resource, or of others in its pool, are to be looked at.
    pub(super) fn is_stirred(&self, pools: &Pools) -> bool {
        let pool = self.pool().and_then(|id| pools.get(id));
        self.resource.is_stirred() || pool.is_some_and(Pool::is_stirred)
    }

    /// Returns the sums that a parent is told.
    pub(super) fn totals(&self, pools: &Pools) -> ResourceTotals {
        self.resource.allocation.totals(self.pool_capacity(pools))
    }

    /// Returns the wants that a parent is told, by priority.
    pub(super) fn demand(&self, pools: &Pools) -> Demand {
        self.resource.allocation.demand(self.pool_capacity(pools))
    }

    /// Capacity of the resource's pool; unlimited if it is in none.
    fn pool_capacity(&self, pools: &Pools) -> Capacity {
        let pool = self.pool().and_then(|id| pools.get(id));
        pool.map_or(Capacity::UNLIMITED, |pool| pool.limit().capacity)
    }

    /// The resource, with the link to its pool.
    pub(super) fn linked<'a>(
        &'a mut self,
        pools: &'a mut Pools,
    ) -> (&'a mut Resource, PoolLink<'a>) {
        let pool = self.pool.as_mut();
        let link = pool.and_then(|(id, membership)| Some((pools.get_mut(id)?, membership)));
        (&mut self.resource, PoolLink(link))
    }

    /// Tells the pool the resource's totals.
    pub(super) fn report(&mut self, now: Instant, pools: &mut Pools) {
        let (resource, mut link) = self.linked(pools);
        resource.allocation.report(now, &mut link);
    }

    /// The same where the time is not known: the pool's bucket is filled by these from the next time on.
    pub(super) fn count(&mut self, pools: &mut Pools) {
        let (resource, mut link) = self.linked(pools);
        link.count(|| resource.allocation.pool_totals());
    }

    /// Lets what is borrowed, if anything is, bound the resource called `id`, whose own limit is
    /// `limit`.
    pub(super) fn set_lendable(
        &mut self,
        now: Instant,
        id: &ResourceId,
        limit: &Limit,
        parent_leases: Option<&ParentLeases>,
    ) {
        let lendable = parent_leases.map(|leases| leases.lendable(now, id, limit));
        self.resource.allocation.set_lendable(now, lendable);
    }

    /// Takes the tokens that came with the parent's lease of the resource `id`.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        id: &ResourceId,
        parent_leases: Option<&mut ParentLeases>,
    ) {
        if let Some(parent_leases) = parent_leases {
            let tokens = parent_leases.take_tokens(id);
            self.resource.allocation.receive(now, tokens);
        }
    }

    /// Makes the resource, called `id`, a member of the pool that `terms` name, and of no other. In
    /// a new pool it learns until `learning_until` at least. Returns the pool that it has left, if that is forgotten.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        pools: &mut Pools,
        id: &ResourceId,
        terms: &Terms<'_>,
        learning_until: Instant,
    ) -> Option<(ResourceId, Pool)> {
        let named = terms.bounding_pool();
        let mut left = None;
        if self.pool() != named.map(|pool| pool.pool) {
            left = self.leave(pools);
            let allocation = &mut self.resource.allocation;
            allocation.learning_until = allocation.learning_until.max(learning_until);
        }
        let Some(named) = named else { return left };
        let unearned = self.resource.allocation.unearned;
        match &mut self.pool {
            Some((_, membership)) => membership.weight = named.weight,
            None => {
                if let Some(pool) = pools.get_mut(named.pool) {
                    let mut membership = pool.join(id, named.weight, unearned);
                    if self.resource.client_count() > 0 {
                        membership.joined_at = now;
                    }
                    self.pool = Some((named.pool.clone(), membership));
                    self.report(now, pools);
                    self.resource.watch_all();
                }
            }
        }
        left
    }

    /// Takes the resource out of its pool, which is forgotten if it is not needed any more. Returns it then.
    pub(super) fn leave(&mut self, pools: &mut Pools) -> Option<(ResourceId, Pool)> {
        let (id, membership) = self.pool.take()?;
        pools.get_mut(&id)?.leave(membership);
        let pool = pools.forget_if_empty(&id)?;
        Some((id, pool))
    }
}
