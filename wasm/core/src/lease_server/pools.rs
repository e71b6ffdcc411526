//! The pools of a lease server.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use super::Terms;
use crate::deadlines::Deadlines;
use crate::fleet::StoredLimit;
use crate::lease::ResourceId;
use crate::pool::Pool;
use crate::units::{Instant, WallClock};

/// Pools that have members, or whose buckets are not full yet, by id.
#[derive(Debug, Default)]
pub(super) struct Pools {
    by_id: BTreeMap<ResourceId, Pool>,
    /// Pools without members, with the times at which their buckets are full.
    empty: Deadlines<ResourceId>,
}

// === impl Pools ===

impl Pools {
    pub(super) fn get(&self, id: &ResourceId) -> Option<&Pool> {
        self.by_id.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ResourceId) -> Option<&mut Pool> {
        self.by_id.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceId, &Pool)> {
        self.by_id.iter()
    }

    /// The pools whose ids come after `id`.
    pub(super) fn ids_after(&self, id: &ResourceId) -> impl Iterator<Item = &ResourceId> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        self.by_id.range(after).map(|(id, _)| id)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&ResourceId, &mut Pool)> {
        self.by_id.iter_mut()
    }

    /// Keeps `pool`.
    pub(super) fn insert(&mut self, id: &ResourceId, pool: Pool) {
        self.by_id.insert(id.clone(), pool);
    }

    /// Begins the pool that `terms` name, with the bucket that a store has of it, or gives it today's limit.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        clock: WallClock,
        terms: &Terms<'_>,
        stored: impl FnOnce(&ResourceId) -> Option<StoredLimit>,
    ) {
        let Some(named) = terms.bounding_pool() else {
            return;
        };
        if let Some(pool) = self.by_id.get_mut(named.pool) {
            pool.set_limit(now, named.limit);
            pool.advance_quotas(now, clock);
            return;
        }
        let mut pool = Pool::new(named.pool, named.limit);
        if let Some(stored) = stored(named.pool) {
            pool.fleet.restore_stored(now, named.limit.burst, &stored);
        }
        pool.advance_quotas(now, clock);
        self.insert(named.pool, pool);
    }

    /// Forgets the pool called `id`, if it has no members and clients have drawn nothing of it; or has it looked at, for
    /// there is no time here to fill its bucket by. Returns it, if it is forgotten.
    pub(super) fn forget_if_empty(&mut self, id: &ResourceId) -> Option<Pool> {
        self.forget_or_watch(id, |_| Instant::ZERO)
    }

    /// Has all pools without members looked at when their buckets are full.
    pub(super) fn watch_empty(&mut self) {
        let ids: Vec<_> = self.by_id.keys().cloned().collect();
        for id in ids {
            self.forget_or_watch(&id, |full_at| full_at);
        }
    }

    fn forget_or_watch(
        &mut self,
        id: &ResourceId,
        look_at: impl FnOnce(Instant) -> Instant,
    ) -> Option<Pool> {
        let pool = self.by_id.get_mut(id);
        let pool = pool.filter(|pool| pool.member_count() == 0)?;
        match pool.full_at() {
            None => self.by_id.remove(id),
            Some(full_at) => {
                let at = Some(look_at(full_at));
                self.empty.set(&mut pool.empty_until, at, id.clone());
                None
            }
        }
    }

    /// Forgets the pools without members whose buckets are full, and returns these.
    pub(super) fn forget_full(
        &mut self,
        now: Instant,
        clock: WallClock,
    ) -> Vec<(ResourceId, Pool)> {
        let mut forgotten = Vec::new();
        while let Some(id) = self.empty.pop_due(now) {
            if let Some(pool) = self.by_id.get_mut(&id) {
                pool.empty_until = None;
                pool.advance_quotas(now, clock);
                pool.forget_if_full(now);
            }
            let pool = self.forget_or_watch(&id, |full_at| full_at);
            forgotten.extend(pool.map(|pool| (id, pool)));
        }
        forgotten
    }

    /// Time at which a pool is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.empty.earliest()
    }
}
