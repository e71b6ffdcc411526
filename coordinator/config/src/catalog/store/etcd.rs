//! A store in etcd, for several writers.
//!
//! Each record has a key below `<prefix>/config/`. One more key, the guard, has the number of the
//! last write. Every batch replaces it in one transaction with the records, on condition that the
//! guard is as this writer knows it. So the batches of all writers have one order, and one that was
//! checked against an outdated state is refused as a whole. Comparing only the keys that a write
//! touches would let writes of different objects pass each other; but a write also depends on the
//! number of objects, and on attachments to a group.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Error, Txn, TxnOp, TxnOpResponse, TxnResponse};
use follower::Follower;
use layout::{Guard, Layout};
use reader::{CALL_LIMIT, EtcdUpdate, GuardVersion, Reader, position};
use tokio::sync::{mpsc, watch};
use tollgate_cluster::config::EtcdConfig;
use tollgate_cluster::etcd::{EtcdError, EtcdLink};
use tonic::Code;

use super::{
    ApplyOutcome, FORMAT, RecordKey, Store, StoreContent, StoreError, StoreUpdate, WriteBatch,
};
use crate::catalog::metrics::CatalogMetrics;

mod follower;
mod layout;
mod reader;

/// Updates that were received and not yet taken; more wait in etcd.
const UPDATES_LEN: usize = 64;

/// Time for reading everything at the start, and for an etcd that starts at the same time.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps records in etcd.
pub struct EtcdStore {
    layout: Layout,
    link: Arc<EtcdLink>,
    reader: Reader,
    /// The guard as of the last update taken.
    guard: GuardVersion,
    updates: mpsc::Receiver<EtcdUpdate>,
    lost: watch::Receiver<Option<String>>,
}

// === impl EtcdStore ===

impl EtcdStore {
    /// Creates the store of the cluster in the etcd of `config`; it connects when it is used.
    pub fn new(config: &EtcdConfig, metrics: CatalogMetrics) -> Self {
        let layout = Layout::new(&config.prefix);
        let link = Arc::new(EtcdLink::new(config.clone()));
        Self {
            reader: Reader::new(layout.clone(), link.clone(), metrics),
            layout,
            link,
            guard: GuardVersion::default(),
            updates: mpsc::channel(1).1,
            lost: watch::channel(None).1,
        }
    }

    fn name(&self) -> String {
        format!("etcd {}", self.layout.prefix())
    }

    fn may_write(&self) -> Result<(), StoreError> {
        let store = self.name();
        if let Some(cause) = self.lost.borrow().clone() {
            return Err(StoreError::Away { store, cause });
        }
        let format = self.guard.guard.format;
        if format > FORMAT {
            return Err(StoreError::Newer { store, format });
        }
        Ok(())
    }

    /// The changes of `batch`, on condition that the guard is unchanged; else a read of the guard.
    fn transaction(&self, batch: WriteBatch) -> Txn {
        let guard = self.layout.guard();
        let unchanged = Compare::mod_revision(guard.clone(), CompareOp::Equal, self.guard.changed);
        let next = Guard {
            format: FORMAT,
            revision: batch.revision,
        };
        let shared = batch.shared.clone();
        let shared = shared.map(|text| TxnOp::put(self.layout.shared(), text, None));
        let mut operations: Vec<TxnOp> = last_of_each(batch)
            .into_iter()
            .map(|(key, record)| {
                let key = self.layout.record(&key);
                match record {
                    Some(record) => TxnOp::put(key, record, None),
                    None => TxnOp::delete(key, None),
                }
            })
            .chain(shared)
            .collect();
        if !operations.is_empty() {
            operations.push(TxnOp::put(guard.clone(), next.to_string(), None));
        }
        Txn::new()
            .when([unchanged])
            .and_then(operations)
            .or_else([TxnOp::get(guard, None)])
    }

    fn failed(&self, error: &EtcdError) -> StoreError {
        let store = self.name();
        let cause = error.to_string();
        // etcd's own refusals; after any other error the transaction may have been made.
        let refused = [
            Code::InvalidArgument,
            Code::PermissionDenied,
            Code::Unauthenticated,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
        ];
        match error {
            EtcdError::Call(Error::GRpcStatus(status)) if refused.contains(&status.code()) => {
                StoreError::Failed { store, cause }
            }
            EtcdError::File { .. } | EtcdError::Password(_) | EtcdError::Hangs(_) => {
                StoreError::Away { store, cause }
            }
            _ => StoreError::Unsure { store, cause },
        }
    }
}

#[tonic::async_trait]
impl Store for EtcdStore {
    async fn load(&mut self) -> Result<StoreContent, StoreError> {
        let store = self.name();
        let away = |cause: String| StoreError::Away {
            store: store.clone(),
            cause,
        };
        let loaded = self.reader.load_within(LOAD_TIMEOUT).await;
        let (stored, guard) = loaded.map_err(away)?;
        let format = guard.guard.format;
        if format > FORMAT {
            return Err(StoreError::Newer { store, format });
        }
        let (sender, updates) = mpsc::channel(UPDATES_LEN);
        let (lost, is_lost) = watch::channel(None);
        let follower = Follower::new(self.reader.clone(), stored.position, sender, lost);
        // It ends with this store, its only receiver.
        tokio::spawn(follower.run());
        (self.updates, self.lost, self.guard) = (updates, is_lost, guard);
        Ok(stored)
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        self.may_write()?;
        let changes = !batch.changes.is_empty() || batch.shared.is_some();
        let transaction = self.transaction(batch);
        let written = self.link.call(CALL_LIMIT, async |client| {
            client.kv_client().txn(transaction).await
        });
        let answer = written.await.map_err(|error| self.failed(&error))?;
        if answer.succeeded() {
            let header = answer.header().filter(|_| changes);
            let at = header.map_or(self.guard.changed, |header| header.revision());
            return Ok(ApplyOutcome::Shared(position(at)));
        }
        // The guard was deleted after it was read.
        let at = guard_changed(&answer).unwrap_or_else(|| self.guard.changed.saturating_add(1));
        Ok(ApplyOutcome::Overtaken(position(at)))
    }

    async fn next_update(&mut self) -> StoreUpdate {
        match self.updates.recv().await {
            Some(EtcdUpdate { update, guard }) => {
                self.guard = guard.unwrap_or(self.guard);
                update
            }
            // The follower ends only with this store.
            None => std::future::pending().await,
        }
    }

    fn shared_key(&self) -> Option<String> {
        Some(self.layout.shared())
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("prefix", &self.layout.prefix())
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

// === free functions ===

/// The last change of each key: a transaction has room for one.
fn last_of_each(batch: WriteBatch) -> BTreeMap<RecordKey, Option<Vec<u8>>> {
    batch.changes.into_iter().collect()
}

/// etcd's revision of the guard's last change, from the answer to a refused transaction.
fn guard_changed(answer: &TxnResponse) -> Option<i64> {
    let guards = answer.op_responses().into_iter();
    let mut guards = guards.filter_map(|answer| match answer {
        TxnOpResponse::Get(guard) => Some(guard),
        _ => None,
    });
    Some(guards.next()?.kvs().first()?.mod_revision())
}
