//! A store in etcd, which several coordinators write to.
//!
//! Each record has a key below `<prefix>/config/`. One more, the guard, has the number of the last
//! write, and every batch replaces it: in one transaction with the records, which etcd makes only
//! if the guard is still as this coordinator has seen it. So the writes of all coordinators have
//! one order, and a batch that was checked against a state that is no longer the newest is refused
//! as a whole. The obvious alternative, to compare only the keys that a write depends on, would let
//! writes of different things pass each other; but what a write depends on is also how many there
//! are, and whether nothing is attached to a group.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Error, Txn, TxnOp, TxnOpResponse, TxnResponse};
use tokio::sync::{mpsc, watch};
use tonic::Code;

use super::{
    ApplyOutcome, FORMAT, RecordKey, Store, StoreContent, StoreError, StoreUpdate, WriteBatch,
};
use crate::cluster::etcd::{EtcdError, EtcdLink};
use crate::config::EtcdConfig;
use crate::observe::metrics::Metrics;
use follower::Follower;
use layout::{Guard, Layout};
use reader::{CALL_LIMIT, EtcdUpdate, GuardVersion, Reader, place};

mod follower;
mod layout;
mod reader;

/// News that have been heard and not yet taken; more wait in etcd.
const HEARD_LEN: usize = 64;

/// How long to read everything may take at the start, and to wait for an etcd that starts as well.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps records in etcd.
pub struct EtcdStore {
    layout: Layout,
    link: Arc<EtcdLink>,
    reader: Reader,
    /// The guard, as it was with the last update that were taken.
    guard: GuardVersion,
    heard: mpsc::Receiver<EtcdUpdate>,
    lost: watch::Receiver<Option<String>>,
}

// === impl EtcdStore ===

impl EtcdStore {
    /// The store of the cluster that is in the etcd of `config`, which is reached when it is used.
    pub fn new(config: &EtcdConfig, metrics: Metrics) -> Self {
        let layout = Layout::new(&config.prefix);
        let link = Arc::new(EtcdLink::new(config.clone()));
        Self {
            reader: Reader::new(layout.clone(), link.clone(), metrics),
            layout,
            link,
            guard: GuardVersion::default(),
            heard: mpsc::channel(1).1,
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

    /// The changes of `batch`, only if the guard is as it was seen; else what the guard is.
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
        // etcd's own refusals; everything else may have happened after the transaction was made.
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
        let (heard, to_take) = mpsc::channel(HEARD_LEN);
        let (lost, is_lost) = watch::channel(None);
        let follower = Follower::new(self.reader.clone(), stored.place, heard, lost);
        // It ends with this store, which is the only one to listen.
        tokio::spawn(follower.run());
        (self.heard, self.lost, self.guard) = (to_take, is_lost, guard);
        Ok(stored)
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        self.may_write()?;
        let changes = !batch.changes.is_empty() || batch.shared.is_some();
        let transaction = self.transaction(batch);
        let made = self.link.call(CALL_LIMIT, async |client| {
            client.kv_client().txn(transaction).await
        });
        let answer = made.await.map_err(|error| self.failed(&error))?;
        if answer.succeeded() {
            let made = answer.header().filter(|_| changes);
            let at = made.map_or(self.guard.changed, |header| header.revision());
            return Ok(ApplyOutcome::Shared(place(at)));
        }
        // A guard that is gone was deleted after it was seen.
        let at = guard_changed(&answer).unwrap_or_else(|| self.guard.changed.saturating_add(1));
        Ok(ApplyOutcome::Overtaken(place(at)))
    }

    async fn next_update(&mut self) -> StoreUpdate {
        match self.heard.recv().await {
            Some(EtcdUpdate { update, guard }) => {
                self.guard = guard.unwrap_or(self.guard);
                update
            }
            // The follower ends only with this.
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

/// etcd's revision of the guard's last change, as the answer to a refused transaction says.
fn guard_changed(answer: &TxnResponse) -> Option<i64> {
    let guards = answer.op_responses().into_iter();
    let mut guards = guards.filter_map(|answer| match answer {
        TxnOpResponse::Get(guard) => Some(guard),
        _ => None,
    });
    Some(guards.next()?.kvs().first()?.mod_revision())
}
