//! Buckets in etcd.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Error, GetOptions, KeyValue, ResponseHeader, Txn, TxnOp};
use tollgate_cluster::config::EtcdConfig;
use tollgate_cluster::etcd::{EtcdError, EtcdLink};
use tollgate_core::cluster::ShardId;
use tollgate_core::fleet::BucketChange;
use tollgate_core::lease::{Epoch, Origin, ResourceId};
use tonic::Code;

use super::{
    BucketRecord, BucketStore, BucketStoreError, LoadedBuckets, StoredBuckets, key, parse, read,
};

/// Longest wait for etcd to write. A client does not wait much longer for its answer.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Longest wait for the buckets of a shard.
const LOAD_LIMIT: Duration = Duration::from_secs(10);

/// Records in one answer, of which a client takes 4 MB: one with quotas that slide has 2 kB each.
const PAGE_LEN: i64 = 400;

/// Changes in one transaction: etcd takes 128 at most by default.
const CHANGES_MAX: usize = 100;

/// Keeps buckets in etcd, those of a shard together, below the number of shards that there were.
#[derive(Debug)]
pub struct EtcdBuckets {
    link: EtcdLink,
    prefix: String,
    shards: NonZeroU16,
    /// Revision of the last write of each shard; none after one that may still be made: it must not be made
    /// after the next one.
    written: Mutex<BTreeMap<ShardId, i64>>,
    /// Records of other numbers of shards whose limits have not been written since.
    moved: Mutex<MovedKeys>,
}

/// Keys of records by resource.
type MovedKeys = BTreeMap<ResourceId, Vec<String>>;

// === impl EtcdBuckets ===

impl EtcdBuckets {
    /// Keeps them in the etcd of `config`, of a cluster with so many shards.
    pub fn new(config: &EtcdConfig, shards: NonZeroU16) -> Self {
        Self {
            link: EtcdLink::new(config.clone()),
            prefix: config.prefix.clone(),
            shards,
            written: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// The folder of the buckets of all shards, whichever number there was.
    fn root(&self) -> String {
        format!("{}/buckets/", self.prefix)
    }

    /// That of as many shards as there are now.
    fn all_shards(&self) -> String {
        format!("{}{:05}/", self.root(), self.shards)
    }

    fn folder(&self, origin: Origin) -> String {
        let shard = origin.shard.unwrap_or_default();
        format!("{}{shard}/", self.all_shards())
    }

    /// The key that each write of a shard puts.
    fn last(&self, shard: ShardId) -> String {
        format!("{}/shards/{shard}/written", self.prefix)
    }

    /// Revision of the last write of a shard.
    async fn last_written(&self, shard: ShardId) -> Result<i64, EtcdError> {
        let known = self.written().remove(&shard);
        if let Some(known) = known {
            return Ok(known);
        }
        let last = self.link.call(WRITE_LIMIT, async |client| {
            client.kv_client().get(self.last(shard), None).await
        });
        Ok(last.await?.kvs().first().map_or(0, KeyValue::mod_revision))
    }

    fn moved(&self) -> MutexGuard<'_, MovedKeys> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buckets in ranges of keys, and the keys of each; drops those that are full.
    async fn read_ranges(
        &self,
        origin: Origin,
        now: Duration,
        ranges: &[(&str, &str)],
    ) -> Result<(StoredBuckets, MovedKeys), BucketStoreError> {
        let root = self.root();
        let mut records = Vec::new();
        for (first, end) in ranges {
            let found = self.records(first, end).await;
            records.extend(found.map_err(|error| self.failed(&error))?);
        }
        let records = records.iter().filter_map(|record| {
            let key = record.key_str().ok()?;
            let resource = key.strip_prefix(&root)?.splitn(3, '/').nth(2)?;
            Some((key, resource, record.value()))
        });
        let records: Vec<_> = records.collect();
        let (buckets, over) = read(now, records.iter().copied());
        let mut keys = MovedKeys::new();
        for (key, resource, _) in &records {
            if let Some(id) = parse(resource) {
                keys.entry(id).or_default().push((*key).to_owned());
            }
        }
        for over in over.chunks(CHANGES_MAX) {
            let changes = over.iter().map(|key| TxnOp::delete(*key, None)).collect();
            if let Err(error) = self.make(origin, changes).await {
                tracing::warn!(%error, "buckets: cannot drop those that are full");
                break;
            }
        }
        Ok((buckets, keys))
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<ShardId, i64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The condition that no other master has been elected since.
    fn is_master(&self, origin: Origin) -> Compare {
        let shard = origin.shard.unwrap_or_default();
        let term = format!("{}/shards/{shard}/term", self.prefix);
        let Epoch(epoch) = origin.epoch;
        Compare::value(term, CompareOp::Equal, epoch.to_string())
    }

    /// All records in the folders from `first` until before `end`, in pages.
    async fn records(&self, first: &str, end: &str) -> Result<Vec<KeyValue>, EtcdError> {
        let mut from = first.as_bytes().to_vec();
        let mut records = Vec::new();
        loop {
            let options = GetOptions::new().with_range(end);
            let options = options.with_limit(PAGE_LEN);
            let page = self.link.call(LOAD_LIMIT, async |client| {
                client.kv_client().get(from, Some(options)).await
            });
            let mut page = page.await?;
            let more = page.more();
            records.append(&mut page.take_kvs());
            let last = records.last().filter(|_| more);
            let Some(last) = last else {
                return Ok(records);
            };
            // The least key after it.
            from = [last.key(), &[0]].concat();
        }
    }

    async fn make(&self, origin: Origin, changes: Vec<TxnOp>) -> Result<(), BucketStoreError> {
        let shard = origin.shard.unwrap_or_default();
        let before = self.last_written(shard).await;
        let before = before.map_err(|error| self.failed(&error))?;
        let is_next = Compare::mod_revision(self.last(shard), CompareOp::Equal, before);
        let mut operations = changes;
        let Epoch(epoch) = origin.epoch;
        operations.push(TxnOp::put(self.last(shard), epoch.to_string(), None));
        let txn = Txn::new().when([self.is_master(origin), is_next]);
        let written = self.link.txn(WRITE_LIMIT, txn.and_then(operations)).await;
        let written = written.map_err(|error| self.failed(&error))?;
        if !written.succeeded() {
            return Err(BucketStoreError {
                is_master_unsure: true,
                ..self.error(&"another node, or an earlier write, was first")
            });
        }
        let at = written.header().map(ResponseHeader::revision);
        self.written().extend(at.map(|at| (shard, at)));
        Ok(())
    }

    fn failed(&self, error: &EtcdError) -> BucketStoreError {
        // As when it has no room left. Otherwise it is away, and perhaps for this node only.
        let is_refused = matches!(
            error,
            EtcdError::Call(Error::GRpcStatus(status)) if status.code() == Code::ResourceExhausted
        );
        BucketStoreError {
            is_master_unsure: !is_refused,
            ..self.error(error)
        }
    }

    fn error(&self, cause: &dyn Display) -> BucketStoreError {
        BucketStoreError::new(format_args!("etcd {}", self.prefix), cause)
    }
}

#[tonic::async_trait]
impl BucketStore for EtcdBuckets {
    async fn load(&self, origin: Origin, now: Duration) -> Result<LoadedBuckets, BucketStoreError> {
        let (root, all, own) = (self.root(), self.all_shards(), self.folder(origin));
        let own = [(&*own, &*end_of(&own))];
        let (own, _) = self.read_ranges(origin, now, &own).await?;
        let others = [(&*root, &*all), (&*end_of(&all), &*end_of(&root))];
        let (others, keys) = self.read_ranges(origin, now, &others).await?;
        self.moved().extend(keys);
        Ok(LoadedBuckets { own, others })
    }

    async fn write(
        &self,
        origin: Origin,
        now: Duration,
        changes: Vec<BucketChange>,
    ) -> Result<(), BucketStoreError> {
        let folder = self.folder(origin);
        let mut operations = Vec::new();
        for change in &changes {
            let key = format!("{folder}{}", key(&change.resource));
            operations.push(match &change.bucket {
                Some(bucket) => TxnOp::put(key, BucketRecord::new(now, bucket).encode(), None),
                None => TxnOp::delete(key, None),
            });
            // It counts from now on; what another number of shards said is over.
            let moved = self.moved().get(&change.resource).cloned();
            let moved = moved.into_iter().flatten();
            operations.extend(moved.map(|key| TxnOp::delete(key, None)));
        }
        for operations in operations.chunks(CHANGES_MAX) {
            self.make(origin, operations.to_vec()).await?;
        }
        let mut moved = self.moved();
        for change in &changes {
            moved.remove(&change.resource);
        }
        Ok(())
    }

    fn max_wait(&self) -> Duration {
        // Another node may be master by then.
        Duration::MAX
    }

    fn timed_out(&self) -> BucketStoreError {
        self.failed(&EtcdError::Timeout(WRITE_LIMIT))
    }
}

// === free functions ===

/// The key after all in `folder`: `0` comes after `/`.
fn end_of(folder: &str) -> String {
    format!("{}0", folder.trim_end_matches('/'))
}
