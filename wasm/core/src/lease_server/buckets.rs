//! Buckets of the whole fleet that a store keeps, so that a crash does not fill them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::LeaseServer;
use super::slot::ResourceSlot;
use crate::lease::{LeaseRequest, ResourceId};
use crate::resource::{BucketChange, StoredBucket};
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

    /// Notes that `request` for the resource `id` was answered.
    pub(super) fn note(
        &mut self,
        now: Instant,
        id: &ResourceId,
        request: &LeaseRequest,
        slot: &mut ResourceSlot,
    ) {
        if !self.is_kept {
            return;
        }
        let allocation = &mut slot.resource.allocation;
        if let Some((bucket, is_urgent)) = allocation.bucket_to_store(now) {
            self.changes.push(BucketChange {
                resource: id.clone(),
                bucket: Some(bucket),
                is_urgent,
            });
        }
        self.is_told |= request.draw.is_some() && allocation.is_stored;
    }

    /// Notes that the resource `id` is forgotten.
    pub(super) fn forget(&mut self, id: &ResourceId, slot: &ResourceSlot) {
        if slot.resource.allocation.is_stored {
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
        for (id, slot) in &mut self.resources {
            slot.resource.allocation.is_stored |= stored.remove(id).is_some();
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
        if let Some(slot) = self.resources.get_mut(resource) {
            slot.resource.allocation.bucket_not_stored();
        }
    }
}
