//! Reads the keys of one cluster: all of them at one revision, and each later change.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{EventType, GetOptions, KeyValue, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::watch;
use tollgate_cluster::etcd::{EtcdError, EtcdLink};

use super::layout::{EtcdKey, Guard, Layout};
use crate::catalog::metrics::CatalogMetrics;
use crate::catalog::store::{LogPosition, RecordKey, StoreContent, StoreUpdate, WriteBatch};

/// Keys per read: some ten megabytes of the largest records.
const PAGE_LEN: i64 = 500;

/// Largest answer, in bytes. etcd puts up to a thousand revisions into one when a watch has fallen
/// behind.
const ANSWER_LEN_MAX: usize = 256 << 20;

/// Time limit of one call, which takes a few milliseconds when all is well.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(2);

/// Waits after a failure: the first, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Reads the keys of one cluster.
#[derive(Clone)]
pub(super) struct Reader {
    layout: Layout,
    link: Arc<EtcdLink>,
    metrics: CatalogMetrics,
}

/// An update, and the guard after it.
#[derive(Debug)]
pub(super) struct EtcdUpdate {
    pub(super) update: StoreUpdate,
    /// `None` if it did not change.
    pub(super) guard: Option<GuardVersion>,
}

/// The guard and its last change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GuardVersion {
    /// etcd's revision of its last change; 0 if there is none.
    pub(super) changed: i64,
    pub(super) guard: Guard,
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(layout: Layout, link: Arc<EtcdLink>, metrics: CatalogMetrics) -> Self {
        Self {
            layout,
            link,
            metrics,
        }
    }

    /// Changes when another of etcd's endpoints is used.
    pub(super) fn turns(&self) -> watch::Receiver<usize> {
        self.link.turns()
    }

    /// Loads again and again until it succeeds or `limit` has passed; then the last error.
    pub(super) async fn load_within(
        &self,
        limit: Duration,
    ) -> Result<(StoreContent, GuardVersion), String> {
        let mut cause = "it does not answer".to_owned();
        let loaded = tokio::time::timeout(limit, async {
            for wait in waits() {
                match self.load().await {
                    Ok(loaded) => return Some(loaded),
                    Err(error) => cause = error.to_string(),
                }
                tracing::warn!(cause, "store: cannot read the configuration in etcd yet");
                tokio::time::sleep(wait).await;
            }
            None
        });
        let loaded = loaded.await.ok().flatten();
        loaded.ok_or(cause)
    }

    /// Reads everything at one revision.
    pub(super) async fn load(&self) -> Result<(StoreContent, GuardVersion), EtcdError> {
        let end = after_prefix(self.layout.prefix());
        let mut from = self.layout.prefix().as_bytes().to_vec();
        let (mut stored, mut guard) = (StoreContent::default(), GuardVersion::default());
        let mut at = 0;
        loop {
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(PAGE_LEN)
                .with_revision(at);
            let page = self.link.call(CALL_LIMIT, async |client| {
                let kv = client.kv_client();
                let mut kv = kv.max_decoding_message_size(ANSWER_LEN_MAX);
                kv.get(from, Some(options)).await
            });
            let mut page = page.await?;
            if at == 0 {
                at = page.header().map_or(0, |header| header.revision());
            }
            for pair in page.kvs() {
                match self.layout.name(pair.key()) {
                    EtcdKey::Guard => guard = self.seen(pair),
                    EtcdKey::Shared => stored.shared = Some(pair.value().to_vec()),
                    EtcdKey::Record(key) => stored.records.push((key, pair.value().to_vec())),
                    EtcdKey::Unknown(name) => self.skip(&name),
                }
            }
            let last = page.take_kvs().pop().filter(|_| page.more());
            let Some(last) = last else { break };
            // The least key after it.
            from = [last.key(), &[0]].concat();
        }
        stored.revision = guard.guard.revision;
        stored.position = position(at);
        Ok((stored, guard))
    }

    /// Watches every change after `at`.
    pub(super) async fn watch(&self, at: LogPosition) -> Result<WatchStream, EtcdError> {
        let from = i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(1);
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let prefix = self.layout.prefix();
        let watched = self.link.call(CALL_LIMIT, async |client| {
            let watch = client.watch_client();
            let mut watch = watch.max_decoding_message_size(ANSWER_LEN_MAX);
            watch.watch(prefix, Some(options)).await
        });
        watched.await
    }

    /// The updates in an answer to a watch. A change of the shared configuration begins an update
    /// of its own, so that every node applies it on top of the same records.
    pub(super) fn updates(&self, answer: &WatchResponse) -> Vec<EtcdUpdate> {
        let mut all = Vec::new();
        let mut batch = WriteBatch::default();
        let (mut guard, mut last) = (None, None);
        for event in answer.events() {
            let Some(pair) = event.kv() else { continue };
            last = Some(pair.mod_revision());
            let deleted = event.event_type() == EventType::Delete;
            match self.layout.name(pair.key()) {
                EtcdKey::Guard if deleted => guard = Some(GuardVersion::default()),
                EtcdKey::Guard => guard = Some(self.seen(pair)),
                EtcdKey::Shared => {
                    // The rest of its own transaction follows it.
                    let before = position(pair.mod_revision().saturating_sub(1));
                    let earlier = std::mem::take(&mut batch);
                    all.push(EtcdUpdate::changes(earlier, guard.take(), before));
                    batch.shared = Some(pair.value().to_vec());
                }
                EtcdKey::Record(key) => batch.changes.push(change(key, pair, deleted)),
                EtcdKey::Unknown(_) if deleted => {}
                EtcdKey::Unknown(name) => self.skip(&name),
            }
        }
        all.extend(last.map(|last| EtcdUpdate::changes(batch, guard, position(last))));
        all
    }

    /// Reads the guard. An invalid one counts as new: the next write replaces it.
    fn seen(&self, pair: &KeyValue) -> GuardVersion {
        let guard = Guard::parse(pair.value());
        if guard.is_none() {
            self.skip("revision");
        }
        GuardVersion {
            changed: pair.mod_revision(),
            guard: guard.unwrap_or_default(),
        }
    }

    fn skip(&self, name: &str) {
        let prefix = self.layout.prefix();
        tracing::error!(
            prefix,
            name,
            "store: skipped a key in etcd that is not ours"
        );
        self.metrics.count_bad_record();
    }
}

// === impl EtcdUpdate ===

impl EtcdUpdate {
    fn changes(batch: WriteBatch, guard: Option<GuardVersion>, at: LogPosition) -> Self {
        let revision = guard.map_or(0, |seen: GuardVersion| seen.guard.revision);
        let batch = WriteBatch { revision, ..batch };
        Self {
            update: StoreUpdate::Changes(batch, at),
            guard,
        }
    }
}

// === free functions ===

fn change(key: RecordKey, pair: &KeyValue, deleted: bool) -> (RecordKey, Option<Vec<u8>>) {
    let record = (!deleted).then(|| pair.value().to_vec());
    (key, record)
}

pub(super) fn position(revision: i64) -> LogPosition {
    LogPosition(u64::try_from(revision).unwrap_or(0))
}

/// The least key after all that begin with `prefix`, which ends with a slash.
fn after_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// Waits before new attempts: they double up to the longest.
pub(super) fn waits() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(WAITS.0), |wait| Some((*wait * 2).min(WAITS.1)))
}
