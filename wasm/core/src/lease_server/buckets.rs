//! Buckets of the whole fleet that a store keeps, so that a crash does not fill them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use super::LeaseServer;
use super::pools::Pools;
use super::slot::ResourceSlot;
use crate::fleet::{BucketChange, FleetLimit, StoredLimit};
use crate::lease::{LeaseRequest, ResourceId};
use crate::pool::Pool;
use crate::resource::Allocation;
use crate::units::Instant;

/// The most restored buckets that are dropped with one refresh.
const DROPPED_MAX: usize = 16;

/// Buckets in a store, as a lease server knows of them.
#[derive(Debug, Default)]
pub(super) struct StoredBuckets {
    /// The most that are stored; none without a store.
    max: usize,
    /// Buckets that are stored.
    count: usize,
    /// Buckets of resources that nobody has asked for since the start, and the time that they were read.
    restored: BTreeMap<ResourceId, StoredLimit>,
    restored_at: Instant,
    /// The same resources, each with the time at which its bucket is full; the earliest last.
    full_at: Vec<(Instant, ResourceId)>,
    /// Changes that are to be stored; those of one call at most, if they are taken after each.
    changes: Vec<BucketChange>,
    /// Whether the last answers tell of a bucket that is stored.
    is_told: bool,
    /// Whether the last answers tell of a quota, which no answer may tell before it is stored.
    is_strict: bool,
    /// Whether the last answers tell of a quota for which the store has no room.
    is_unstored: bool,
    /// Whether the last answers tell of a bucket for which the store has no room.
    is_full: bool,
}

/// Changes of buckets that a call has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketChanges {
    /// Changes that are to be stored.
    pub changes: Vec<BucketChange>,
    /// Whether the answers wait until these are stored, and what is being stored already: they tell of such buckets.
    pub is_told: bool,
    /// Whether they wait as long as that takes: they tell of a quota.
    pub is_strict: bool,
    /// Whether they may not tell: of a quota that is not stored, because there is no room.
    pub is_unstored: bool,
    /// Whether one of them tells of a bucket that is not stored, since [`Bounds::max_durable`] are already.
    ///
    /// [`Bounds::max_durable`]: super::Bounds::max_durable
    pub is_full: bool,
}

// === impl StoredBuckets ===

impl StoredBuckets {
    fn new(max: usize, now: Instant, restored: BTreeMap<ResourceId, StoredLimit>) -> Self {
        let full_at = restored.iter().map(|(id, stored)| {
            let left = stored.bucket.lasts.saturating_sub(stored.bucket.age);
            (now.saturating_add(left), id.clone())
        });
        let mut full_at: Vec<_> = full_at.collect();
        full_at.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            max,
            count: restored.len(),
            restored,
            restored_at: now,
            full_at,
            ..Self::default()
        }
    }

    /// Takes out what the store has of a resource that is new here.
    pub(super) fn restore(&mut self, now: Instant, id: &ResourceId) -> Option<StoredLimit> {
        let stored = self.restored.remove(id)?;
        let age = now.saturating_since(self.restored_at);
        Some(stored.after(age))
    }

    /// Record of a resource in the store, if it is not known here.
    pub(super) fn restored(&self, id: &ResourceId) -> Option<&StoredLimit> {
        self.restored.get(id)
    }

    /// The resources after `id` that are known in the store alone.
    pub(super) fn ids_after(&self, id: &ResourceId) -> impl Iterator<Item = &ResourceId> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        self.restored.range(after).map(|(id, _)| id)
    }

    /// Notes that a person has changed the resource `id`.
    pub(super) fn note_resource(&mut self, now: Instant, id: &ResourceId, slot: &mut ResourceSlot) {
        if self.max > 0 {
            self.note_allocation(now, id, true, &mut slot.resource.allocation);
        }
    }

    /// Notes that a person has changed the pool `id`.
    pub(super) fn note_pool(&mut self, now: Instant, id: &ResourceId, pool: &mut Pool) {
        if self.max > 0 {
            self.note_members(now, id, true, pool);
        }
    }

    /// Notes that `request` for the resource `id` was answered: of its bucket, and its pool's.
    pub(super) fn note(
        &mut self,
        now: Instant,
        id: &ResourceId,
        request: &LeaseRequest,
        slot: &mut ResourceSlot,
        pools: &mut Pools,
    ) {
        if self.max == 0 {
            return;
        }
        self.drop_full(now);
        let draws = request.draw.is_some();
        let pool = slot.pool.as_ref().map(|(pool, _)| pool);
        // A group that is asked for itself is a member of its own pool, which has less.
        if pool != Some(id) {
            self.note_allocation(now, id, draws, &mut slot.resource.allocation);
        }
        if let Some((id, pool)) = pool.and_then(|id| Some((id, pools.get_mut(id)?))) {
            self.note_members(now, id, draws, pool);
        }
    }

    fn note_allocation(
        &mut self,
        now: Instant,
        id: &ResourceId,
        draws: bool,
        allocation: &mut Allocation,
    ) {
        let was_stored = allocation.fleet.is_stored;
        let change = allocation.bucket_to_store(now);
        self.note_change(id, draws, change, was_stored, &mut allocation.fleet);
    }

    fn note_members(&mut self, now: Instant, id: &ResourceId, draws: bool, pool: &mut Pool) {
        let was_stored = pool.fleet.is_stored;
        let change = pool.bucket_to_store(now);
        self.note_change(id, draws, change, was_stored, &mut pool.fleet);
    }

    fn note_change(
        &mut self,
        id: &ResourceId,
        draws: bool,
        change: Option<(StoredLimit, bool)>,
        was_stored: bool,
        limit: &mut FleetLimit,
    ) {
        if change.is_some() && !was_stored {
            if self.count >= self.max {
                limit.is_stored = false;
                limit.not_stored();
                self.is_full |= draws;
                self.is_unstored |= draws && limit.quotas.has_any();
                return;
            }
            self.count = self.count.saturating_add(1);
        }
        if let Some((bucket, is_urgent)) = change {
            self.changes.push(BucketChange {
                resource: id.clone(),
                bucket: Some(bucket),
                is_urgent,
            });
        }
        self.is_told |= draws && limit.is_stored;
        self.is_strict |= draws && limit.is_stored && limit.quotas.has_any();
    }

    /// Drops restored buckets that are full by now, a few at a time.
    fn drop_full(&mut self, now: Instant) {
        for _ in 0..DROPPED_MAX {
            let Some((_, id)) = self.full_at.pop_if(|(full_at, _)| *full_at <= now) else {
                return;
            };
            if self.restored.remove(&id).is_some() {
                self.discard(id);
            }
        }
    }

    fn discard(&mut self, id: ResourceId) {
        self.count = self.count.saturating_sub(1);
        self.changes.push(BucketChange {
            resource: id,
            bucket: None,
            is_urgent: false,
        });
    }

    /// Notes that the limit called `id` is forgotten, and with it its bucket, unless it `stays`.
    pub(super) fn forget(&mut self, id: &ResourceId, limit: &FleetLimit, stays: bool) {
        if !limit.is_stored {
            return;
        }
        if stays {
            self.count = self.count.saturating_sub(1);
        } else {
            self.discard(id.clone());
        }
    }
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Has the changes of slow buckets taken from [`LeaseServer::take_bucket_changes`] after each call, to be
    /// stored, and begins with the buckets that are stored already.
    pub fn keep_buckets(&mut self, now: Instant, mut stored: BTreeMap<ResourceId, StoredLimit>) {
        let count = stored.len();
        // Those of the lease table that it has taken over are newer.
        for (id, pool) in self.pools.iter_mut() {
            pool.fleet.note_stored(stored.remove(id));
        }
        for (id, slot) in &mut self.resources {
            let allocation = &mut slot.resource.allocation;
            allocation.fleet.note_stored(stored.remove(id));
        }
        self.buckets = StoredBuckets::new(self.bounds.max_durable, now, stored);
        self.buckets.count = count;
    }

    /// Takes the changes of buckets that the last calls have made.
    pub fn take_bucket_changes(&mut self) -> BucketChanges {
        BucketChanges {
            changes: core::mem::take(&mut self.buckets.changes),
            is_told: core::mem::take(&mut self.buckets.is_told),
            is_strict: core::mem::take(&mut self.buckets.is_strict),
            is_unstored: core::mem::take(&mut self.buckets.is_unstored),
            is_full: core::mem::take(&mut self.buckets.is_full),
        }
    }

    /// Number of buckets that are stored.
    pub fn durable_count(&self) -> usize {
        self.buckets.count
    }

    /// Notes that a change could not be stored.
    pub fn bucket_not_stored(&mut self, resource: &ResourceId) {
        if let Some(pool) = self.pools.get_mut(resource) {
            pool.fleet.not_stored();
        }
        if let Some(slot) = self.resources.get_mut(resource) {
            slot.resource.allocation.fleet.not_stored();
        }
    }
}
