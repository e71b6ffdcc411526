//! Changes of the fleet's buckets on their way into the store.
//!
//! An answer that tells of a slow bucket waits until what it tells is stored. One write is under way at a
//! time, and all changes meanwhile go into the next one. A store that fails keeps no answer, but where another
//! master may have been elected: then a crash may bring tokens back, which is logged and shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::fleet::{BucketChange, StoredLimit};
use tollgate_core::lease::{Origin, ResourceId};
use tollgate_core::lease_server::BucketChanges;
use tollgate_core::units::Instant;
use tollgate_net::clock::unix_time;

use super::Driver;
use super::handle::QUEUE_LEN;
use crate::buckets::{BucketStore, BucketStoreError, LoadedBuckets};
use crate::metrics::LeaseMetrics;

/// Time for which changes that no answer waits for are gathered.
const GATHER: Duration = Duration::from_secs(1);

/// The longest write; a client does not wait much longer for its answer.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// Attempts to read the store, and the pause between them.
const LOADS: u32 = 3;
const LOAD_PAUSE: Duration = Duration::from_secs(1);

/// Sends an answer, of which the part that tells of tokens may be told if the argument says so.
type Reply = Box<dyn FnOnce(bool) + Send>;

/// Resources of a write, and its end.
type Writing = (Vec<ResourceId>, JoinHandle<Result<(), BucketStoreError>>);

/// Changes that are to be stored, and the answers that wait for that.
#[derive(Default)]
pub(super) struct Journal {
    store: Option<Arc<dyn BucketStore>>,
    origin: Origin,
    metrics: LeaseMetrics,
    writing: Option<Writing>,
    /// Answers that wait for the write that is under way.
    replies: Vec<Waiting>,
    /// The last change of each resource, for the next write.
    changes: BTreeMap<ResourceId, BucketChange>,
    /// Answers that wait for the next write.
    next_replies: Vec<Waiting>,
    /// Time of the next write, if there are changes.
    due: Option<Instant>,
    is_failing: bool,
    /// Whether there was no room for a bucket; that is logged once.
    is_full: bool,
    /// Whether it could not be read what is used of quotas: then nothing is lent of them, and nothing written.
    is_unread: bool,
}

/// An answer that waits for a write.
struct Waiting {
    /// Time until which it waits; none if it tells of a quota, and waits until it is stored.
    until: Option<Instant>,
    reply: Reply,
}

// === impl Journal ===

impl Journal {
    pub(super) fn new(
        store: Option<Arc<dyn BucketStore>>,
        origin: Origin,
        metrics: LeaseMetrics,
    ) -> Self {
        Self {
            store,
            origin,
            metrics,
            ..Self::default()
        }
    }

    /// Takes changes for the next write.
    fn add(&mut self, now: Instant, changes: Vec<BucketChange>) {
        for change in changes {
            let tells_of_quota = |stored: &StoredLimit| !stored.quotas.is_empty();
            if self.is_unread && change.bucket.as_ref().is_some_and(tells_of_quota) {
                continue;
            }
            let wait = if change.is_urgent {
                Duration::ZERO
            } else {
                GATHER
            };
            let at = now.saturating_add(wait);
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
            self.changes.insert(change.resource.clone(), change);
        }
    }

    /// Notes that an answer tells of a slow bucket that is not stored, for as many as may be are.
    fn note_full(&mut self, max: usize) {
        self.metrics.count_unstored_bucket();
        if !self.is_full {
            tracing::warn!(
                max,
                "buckets: no more are stored (bounds.max_durable); a crash of this coordinator would fill the others"
            );
        }
        self.is_full = true;
    }

    /// Sends an answer when all changes until now are stored, as far as answers wait for them: one that tells of a
    /// quota, as long as that takes.
    fn reply(&mut self, now: Instant, tells_of_quota: bool, reply: Reply) {
        if tells_of_quota && self.is_unread {
            return reply(false);
        }
        let queue = if self.due.is_some_and(|due| due <= now) {
            &mut self.next_replies
        } else if self.writing.is_some() {
            &mut self.replies
        } else {
            return reply(true);
        };
        let max_wait = self.store.as_ref().map(|store| store.max_wait());
        let until = now.saturating_add(max_wait.unwrap_or_default());
        let until = Some(until).filter(|_| !tells_of_quota);
        // A caller that gets none asks again; a store that hangs must not gather answers without end.
        if queue.len() < QUEUE_LEN {
            queue.push(Waiting { until, reply });
        }
    }

    /// Starts the next write, if it is due and none is under way.
    fn start(&mut self, now: Instant) {
        let is_due = self.due.is_some_and(|due| due <= now);
        if !is_due || self.writing.is_some() {
            return;
        }
        let Some(store) = self.store.clone() else {
            return;
        };
        self.due = None;
        self.replies.append(&mut self.next_replies);
        let changes = std::mem::take(&mut self.changes);
        let (resources, changes): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let origin = self.origin;
        let write = async move {
            let written = store.write(origin, unix_time(), changes);
            let written = tokio::time::timeout(WRITE_LIMIT, written).await;
            written.unwrap_or_else(|_| Err(store.timed_out()))
        };
        self.writing = Some((resources, tokio::spawn(write)));
    }

    /// Time of the next write, if none is under way, or at which answers wait no longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.filter(|_| self.writing.is_none());
        let first = |queue: &[Waiting]| queue.iter().find_map(|waiting| waiting.until);
        let firsts = [first(&self.replies), first(&self.next_replies)];
        let ends = firsts.into_iter().flatten();
        due.into_iter().chain(ends).min()
    }

    /// Sends all answers that have waited for too long.
    fn send_late(&mut self, now: Instant) {
        for queue in [&mut self.replies, &mut self.next_replies] {
            let is_late = |waiting: &mut Waiting| waiting.until.is_some_and(|until| until <= now);
            for waiting in queue.extract_if(.., is_late) {
                (waiting.reply)(true);
            }
        }
    }

    /// Waits for the end of the write that is under way, and sends the answers that wait for it. Returns the
    /// resources whose changes may not be stored. Cancelling loses nothing.
    pub(super) async fn written(&mut self) -> Vec<ResourceId> {
        let Some((_, writing)) = &mut self.writing else {
            return std::future::pending().await;
        };
        let outcome = writing.await;
        let outcome = outcome.unwrap_or_else(|error| Err(BucketStoreError::new("buckets", error)));
        let resources = self.writing.take().map(|(resources, _)| resources);
        let resources = resources.unwrap_or_default();
        let is_master = !matches!(&outcome, Err(error) if error.is_master_unsure);
        for Waiting { until, reply } in std::mem::take(&mut self.replies) {
            let tells_of_quota = until.is_none();
            reply(is_master && (outcome.is_ok() || !tells_of_quota));
        }
        self.metrics
            .count_bucket_writes(resources.len(), outcome.is_ok());
        match outcome {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("buckets: stored again");
                }
                Vec::new()
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(
                        %error,
                        "buckets: cannot be stored; a crash of this coordinator would fill them"
                    );
                }
                resources
            }
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("store", &self.store)
            .field("changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}

// === impl Driver ===

impl Driver {
    /// Begins with the buckets that are stored, but for those that the lease table of the master before has.
    pub(super) async fn restore_buckets(&mut self) {
        if let Some(store) = self.journal.store.clone() {
            let stored = load(&*store, self.origin).await;
            self.journal.is_unread = stored.is_none();
            let stored = stored.unwrap_or_default();
            let stored = stored.at_home(|id| self.is_home(&id.scope));
            self.server.keep_buckets(self.clock.now(), stored);
        }
    }

    /// Sends an answer of the lease table when what it tells is stored.
    pub(super) fn reply_when_stored(
        &mut self,
        now: Instant,
        reply: impl FnOnce(bool) + Send + 'static,
    ) {
        let BucketChanges {
            is_told,
            is_strict,
            is_unstored,
            ..
        } = self.journal_changes(now);
        if is_unstored {
            reply(false)
        } else if is_told {
            self.journal.reply(now, is_strict, Box::new(reply))
        } else {
            reply(true)
        }
    }

    /// Has the changes of buckets stored. Returns of what the last answers tell.
    fn journal_changes(&mut self, now: Instant) -> BucketChanges {
        let mut changes = self.server.take_bucket_changes();
        if changes.is_full {
            self.journal.note_full(self.server.bounds().max_durable);
        }
        let news = std::mem::take(&mut changes.changes);
        self.journal.add(now, news);
        changes
    }

    /// Starts a write of what is to be stored.
    pub(super) fn store_buckets(&mut self, now: Instant) {
        self.journal_changes(now);
        self.journal.start(now);
        self.journal.send_late(now);
    }

    /// Takes note of buckets that could not be stored.
    pub(super) fn not_stored(&mut self, resources: &[ResourceId]) {
        for resource in resources {
            self.server.bucket_not_stored(resource);
        }
    }
}

// === free functions ===

/// Reads what is stored. Without an answer of the store all buckets begin full, and quotas stay closed.
async fn load(store: &dyn BucketStore, origin: Origin) -> Option<LoadedBuckets> {
    for attempt in 1..=LOADS {
        match store.load(origin, unix_time()).await {
            Ok(stored) => {
                // Of a backup that was put back this says how much is missing.
                let all = || stored.own.values().chain(stored.others.values());
                if let Some(age) = all().map(|limit| limit.bucket.age).min() {
                    let (count, last_written_s) = (all().count(), age.as_secs());
                    tracing::info!(count, last_written_s, "buckets: read from the store");
                }
                return Some(stored);
            }
            Err(error) if attempt < LOADS => {
                tracing::warn!(%error, "buckets: cannot be read yet");
                tokio::time::sleep(LOAD_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "buckets: cannot be read, so all of them begin full; nothing of a quota passes until a restart"
                );
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
