//! Buckets of the whole fleet that a store keeps, so that a crash does not fill them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::LeaseServer;
use super::pools::Pools;
use super::slot::ResourceSlot;
use crate::fleet::{BucketChange, FleetLimit, StoredBucket};
use crate::lease::{LeaseRequest, ResourceId};
use crate::units::Instant;

/// Buckets in a store, as a lease server knows of them.
#[derive(Debug, Default)]
pub(super) struct StoredBuckets {
    /// Whether there is a store.
    is_kept: bool,
    /// Buckets of resources that nobody has asked for since the start, and the time that they were read.
    restored: BTreeMap<ResourceId, StoredBucket>,
    restored_at: Instant,
    /// Changes that are to be stored; those of one call at most, if they are taken after each.
    changes: Vec<BucketChange>,
    /// Whether the last answers tell of a bucket that is stored.
    is_told: bool,
}

// === impl StoredBuckets ===

impl StoredBuckets {
    /// Takes out what the store has of a resource that is new here.
    pub(super) fn restore(&mut self, now: Instant, id: &ResourceId) -> Option<StoredBucket> {
        let stored = self.restored.remove(id)?;
        let age = now.saturating_since(self.restored_at);
        Some(StoredBucket {
            age: stored.age.saturating_add(age),
            ..stored
        })
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
        if !self.is_kept {
            return;
        }
        let draws = request.draw.is_some();
        let pool = slot.pool.as_ref().map(|(pool, _)| pool);
        let allocation = &mut slot.resource.allocation;
        // A group that is asked for itself is a member of its own pool, which has less.
        if pool != Some(id) {
            self.change(id, allocation.bucket_to_store(now));
            self.is_told |= draws && allocation.fleet.is_stored;
        }
        if let Some((id, pool)) = pool.and_then(|id| Some((id, pools.get_mut(id)?))) {
            self.change(id, pool.bucket_to_store(now));
            self.is_told |= draws && pool.fleet.is_stored;
        }
    }

    fn change(&mut self, id: &ResourceId, change: Option<(StoredBucket, bool)>) {
        if let Some((bucket, is_urgent)) = change {
            self.changes.push(BucketChange {
                resource: id.clone(),
                bucket: Some(bucket),
                is_urgent,
            });
        }
    }

    /// Notes that the limit called `id` is forgotten.
    pub(super) fn forget(&mut self, id: &ResourceId, limit: &FleetLimit) {
        if limit.is_stored {
            self.changes.push(BucketChange {
                resource: id.clone(),
                bucket: None,
                is_urgent: false,
            });
        }
    }
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Has the changes of slow buckets taken from [`LeaseServer::take_bucket_changes`] after each call, to be
    /// stored, and begins with the buckets that are stored already.
    pub fn keep_buckets(&mut self, now: Instant, mut stored: BTreeMap<ResourceId, StoredBucket>) {
        // Those of the lease table that it has taken over are newer.
        for (id, pool) in self.pools.iter_mut() {
            pool.fleet.is_stored |= stored.remove(id).is_some();
        }
        for (id, slot) in &mut self.resources {
            slot.resource.allocation.fleet.is_stored |= stored.remove(id).is_some();
        }
        self.buckets.is_kept = true;
        self.buckets.restored = stored;
        self.buckets.restored_at = now;
    }

    /// Takes the changes that are to be stored, and whether the last answers wait for that, or for what is
    /// being stored already: they tell of such a bucket.
    pub fn take_bucket_changes(&mut self) -> (Vec<BucketChange>, bool) {
        let is_told = core::mem::take(&mut self.buckets.is_told);
        (core::mem::take(&mut self.buckets.changes), is_told)
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
