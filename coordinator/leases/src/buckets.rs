//! Store of the fleet's slow buckets, so that a crash of the coordinator does not fill them.
//!
//! On one machine it is a redb file beside the store of the catalog, in a cluster etcd. A record is
//! JSON, with the wall clock's time at which it was true.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::fleet::{BucketChange, StoredBucket, StoredLimit};
use tollgate_core::lease::{Origin, ResourceId, Unit};
use tollgate_core::units::{Rate, Tokens};

#[cfg(feature = "etcd")]
mod etcd;
mod quota;
mod redb;

#[cfg(feature = "etcd")]
pub use self::etcd::EtcdBuckets;
use self::quota::StoredQuota;
pub use self::redb::RedbBuckets;

/// Storage of the buckets of all shards.
#[tonic::async_trait]
pub trait BucketStore: Send + Sync + fmt::Debug {
    /// Reads the buckets of the shard of `origin`, as of `now`, time since 1970; those that are full by
    /// then are dropped.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn load(&self, origin: Origin, now: Duration) -> Result<LoadedBuckets, BucketStoreError>;

    /// Makes `changes` durable, which were true at `now`, time since 1970.
    ///
    /// # Errors
    /// If they may not be durable, or the term of `origin` is over.
    async fn write(
        &self,
        origin: Origin,
        now: Duration,
        changes: Vec<BucketChange>,
    ) -> Result<(), BucketStoreError>;

    /// The longest time for which an answer waits for a write. After that it is told all the same; only a crash
    /// before the write ends brings back what it tells.
    fn max_wait(&self) -> Duration;

    /// The error of a write that has not ended in time.
    fn timed_out(&self) -> BucketStoreError;
}

/// Buckets by resource.
pub type StoredBuckets = BTreeMap<ResourceId, StoredLimit>;

/// Buckets that a master finds in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedBuckets {
    /// Those of its shard.
    pub own: StoredBuckets,
    /// Those of other numbers of shards, of which some may be of its shard now.
    pub others: StoredBuckets,
}

/// Reason for which buckets could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {cause}")]
pub struct BucketStoreError {
    store: String,
    cause: String,
    /// Whether another coordinator may be master by now, which does not know what was to be stored.
    pub is_master_unsure: bool,
}

/// A bucket as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct BucketRecord {
    /// Millionths of tokens of the limit's burst.
    burst: u64,
    /// Millionths of tokens that the limit earns in a second.
    rate: u64,
    /// Millionths of tokens that it lacks.
    missing: u64,
    /// The part of these that clients may have held.
    held: u64,
    /// Milliseconds for which they may.
    held_for_ms: u64,
    /// Milliseconds since 1970 at which this was true.
    at_ms: u64,
    /// Milliseconds since 1970 from which it is full, and nobody holds anything.
    until_ms: u64,
    /// Use of its quotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<StoredQuota>,
}

// === impl LoadedBuckets ===

impl LoadedBuckets {
    /// The buckets of its shard, with those of others that are now.
    pub(crate) fn at_home(self, mut is_home: impl FnMut(&ResourceId) -> bool) -> StoredBuckets {
        let mut buckets = self.own;
        for (id, stored) in self.others {
            if is_home(&id) {
                add(&mut buckets, id, stored);
            }
        }
        buckets
    }
}

// === impl BucketStoreError ===

impl BucketStoreError {
    pub(crate) fn new(store: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            store: store.to_string(),
            cause: cause.to_string(),
            is_master_unsure: false,
        }
    }
}

// === impl BucketRecord ===

impl BucketRecord {
    fn new(now: Duration, stored: &StoredLimit) -> Self {
        let StoredLimit { bucket, quotas } = stored;
        Self {
            burst: bucket.whole.as_micros(),
            rate: bucket.rate.as_micros(),
            missing: bucket.missing.as_micros(),
            held: bucket.held.as_micros(),
            held_for_ms: millis(bucket.held_for),
            at_ms: millis(now),
            until_ms: millis(now.saturating_add(bucket.lasts)),
            quotas: quotas.iter().map(Into::into).collect(),
        }
    }

    /// The bucket at `now`; none if it is full, or its time is not possible. One of the future is as of now.
    fn at(&self, now: Duration) -> Option<StoredLimit> {
        let lasts = self.until_ms.checked_sub(self.at_ms)?;
        let age = millis(now).saturating_sub(self.at_ms);
        let bucket = StoredBucket {
            whole: Tokens::from_micros(self.burst),
            rate: Rate::from_micros(self.rate),
            missing: Tokens::from_micros(self.missing),
            held: Tokens::from_micros(self.held),
            held_for: Duration::from_millis(self.held_for_ms),
            lasts: Duration::from_millis(lasts),
            age: Duration::from_millis(age),
        };
        let quotas = self.quotas.iter().map(Into::into).collect();
        (age < lasts).then_some(StoredLimit { bucket, quotas })
    }

    fn encode(&self) -> Vec<u8> {
        // Numbers alone cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

// === free functions ===

/// The key of a resource, which sorts by unit and scope.
fn key(resource: &ResourceId) -> String {
    format!("{}/{}", resource.unit.name(), resource.scope)
}

/// The buckets of records at `now`, and the keys of those that are full; of a record its key, its resource and its
/// bytes. One that cannot be read is skipped: a newer version may have written it.
fn read<'a, K>(
    now: Duration,
    records: impl IntoIterator<Item = (K, &'a str, &'a [u8])>,
) -> (StoredBuckets, Vec<K>) {
    let mut buckets = StoredBuckets::new();
    let mut over = Vec::new();
    for (key, resource, record) in records {
        let record: Option<BucketRecord> = serde_json::from_slice(record).ok();
        let Some((id, record)) = parse(resource).zip(record) else {
            tracing::warn!(resource, "buckets: skipped a record that cannot be read");
            continue;
        };
        let Some(stored) = record.at(now) else {
            over.push(key);
            continue;
        };
        add(&mut buckets, id, stored);
    }
    (buckets, over)
}

fn add(buckets: &mut StoredBuckets, id: ResourceId, stored: StoredLimit) {
    match buckets.entry(id) {
        Entry::Occupied(mut known) => known.get_mut().merge(stored),
        Entry::Vacant(place) => drop(place.insert(stored)),
    }
}

fn parse(key: &str) -> Option<ResourceId> {
    let (name, scope) = key.split_once('/')?;
    let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name)?;
    ResourceId::new(scope, unit).ok()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
