//! Configuration of a resource, as callers pass it.

use core::num::NonZeroU32;

use crate::lease::ResourceId;
use crate::limit::Limit;

/// Configuration of a resource at the time of a refresh.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Its own limit; of [`Capacity::UNLIMITED`](crate::units::Capacity::UNLIMITED) if only its pool's counts.
    ///
    /// In a pool the shorter of both limits' lease, refresh and minimum intervals count.
    pub limit: &'a Limit,
    /// The pool that it is a member of. One without a limit is as none.
    pub pool: Option<PoolTerms<'a>>,
}

/// Pool of a resource: a capacity that several resources share, each by its weight.
#[derive(Clone, Copy, Debug)]
pub struct PoolTerms<'a> {
    /// The pool, such as `group/gold` and the unit of its members. Pools have names of their own: the
    /// same id may also be a resource.
    pub pool: &'a ResourceId,
    /// Limit of the pool.
    pub limit: &'a Limit,
    /// Weight of this member beside the others.
    pub weight: NonZeroU32,
}

// === impl Terms ===

impl<'a> Terms<'a> {
    /// The terms of a resource that is in no pool.
    pub const fn of(limit: &'a Limit) -> Self {
        Self { limit, pool: None }
    }

    /// The pool, if it bounds anything.
    pub(super) fn bounding_pool(&self) -> Option<PoolTerms<'a>> {
        self.pool.filter(|pool| !pool.limit.capacity.is_unlimited())
    }
}
