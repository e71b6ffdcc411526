//! Transfer of a shard's snapshot from one master to the next.
//!
//! The old master writes its snapshot in parts, each in a transaction that requires its candidacy
//! to be unchanged. The last one writes the head and ends the candidacy, so either all parts are
//! there or none count. The new master takes a snapshot only if it is of the term directly before
//! its own, and removes it in the transaction that writes its own term.

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp,
    TxnOpResponse,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

use super::keys::ElectionKeys;
use super::settings::ClusterSettings;
use super::{CALL_LIMIT, SNAPSHOT_CALL_LIMIT, StepError};
use crate::election::Peer;
use crate::etcd::EtcdLink;

/// Bytes of a snapshot in one request; etcd takes 1.5 MiB.
const PART_LEN: usize = 1 << 20;

/// The most parts, so 64 MiB: leases of a million clients. A larger snapshot is not handed over,
/// and the next master learns.
const PARTS_MAX: usize = 64;

/// A candidacy for one shard, with which snapshots are taken and left.
#[derive(Clone, Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) keys: ElectionKeys,
    pub(super) settings: ClusterSettings,
    pub(super) shard: ShardId,
    /// The node's etcd lease.
    pub(super) lease: i64,
}

/// A term that has begun, and what the one before left.
#[derive(Debug)]
pub(super) struct TakenTerm {
    /// The snapshot of the term before, if its master handed one over.
    pub(super) snapshot: Option<Bytes>,
    /// Revision at which the term before began, as an epoch.
    pub(super) last: Epoch,
    /// Revision at which this one began.
    pub(super) began: Epoch,
}

/// Head of a snapshot that was handed over.
#[derive(Debug, Deserialize, Serialize)]
struct SnapshotHead {
    /// Its term.
    epoch: u64,
    parts: usize,
    /// SHA-256 of all parts together, in hexadecimal.
    sha256: String,
}

/// State that the last master left.
#[derive(Debug, Default)]
struct LastTerm {
    /// The revision of its term; 0 if there never was a master.
    revision: i64,
    head: Option<SnapshotHead>,
}

// === impl SnapshotTransfer ===

impl SnapshotTransfer {
    /// Becomes a candidate for the shard, unless this node is one already.
    pub(super) async fn stand(&self, link: &EtcdLink, peer: &Peer) -> Result<(), StepError> {
        let value = serde_json::to_vec(peer).unwrap_or_default();
        let options = PutOptions::new().with_lease(self.lease);
        let txn = Txn::new()
            .when([Compare::version(self.key(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(self.key(), value, Some(options))]);
        link.txn(CALL_LIMIT, txn).await?;
        Ok(())
    }

    /// Ends the candidacy.
    pub(super) async fn withdraw(&self, link: &EtcdLink, epoch: Epoch) -> Result<(), StepError> {
        let delete = TxnOp::delete(self.key(), None);
        // If it has ended already, so much the better.
        self.still(link, epoch, [delete]).await.map(drop)
    }

    /// Becomes master, and returns what the term before left.
    pub(super) async fn take(&self, link: &EtcdLink, epoch: Epoch) -> Result<TakenTerm, StepError> {
        let left = self.left(link).await?;
        let snapshot = match &left.head {
            Some(head) => self.read(link, head).await?,
            None => None,
        };
        let term = self.keys.term(self.shard);
        let unchanged = Compare::mod_revision(term.clone(), CompareOp::Equal, left.revision);
        let all = DeleteOptions::new().with_prefix();
        let txn = Txn::new().when([self.stands(epoch), unchanged]).and_then([
            TxnOp::put(term, epoch.0.to_string(), None),
            TxnOp::delete(self.keys.snapshot(self.shard), Some(all)),
        ]);
        let taken = link.txn(CALL_LIMIT, txn).await?;
        if !taken.succeeded() {
            return Err(StepError::NotCandidate(self.shard));
        }
        let began = taken.header().map_or(0, ResponseHeader::revision);
        Ok(TakenTerm {
            snapshot,
            last: self.settings.epoch(left.revision),
            began: self.settings.epoch(began),
        })
    }

    /// Ends the mastership, and leaves `snapshot` for the next master.
    pub(super) async fn leave(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        snapshot: Option<Bytes>,
    ) -> Result<(), StepError> {
        let bytes = snapshot.as_deref().unwrap_or_default();
        let count = bytes.len().div_ceil(PART_LEN);
        let mut last = vec![TxnOp::delete(self.key(), None)];
        if count > PARTS_MAX {
            let (shard, bytes) = (self.shard.0, count.saturating_mul(PART_LEN));
            tracing::warn!(shard, bytes, "hand-over: lease table is too large");
        } else if let Some(snapshot) = &snapshot {
            for (number, part) in snapshot.chunks(PART_LEN).enumerate() {
                let key = self.keys.snapshot_part(self.shard, number);
                let put = TxnOp::put(key, part, None);
                self.must(link, epoch, [put]).await?;
            }
            let head = SnapshotHead {
                epoch: epoch.0,
                parts: count,
                sha256: sha256(snapshot),
            };
            let head = serde_json::to_vec(&head).unwrap_or_default();
            last.push(TxnOp::put(self.keys.snapshot_head(self.shard), head, None));
        }
        self.must(link, epoch, last).await
    }

    fn key(&self) -> String {
        self.keys.candidate(self.shard, self.lease)
    }

    /// Condition that this node's candidacy began at `epoch`.
    fn stands(&self, epoch: Epoch) -> Compare {
        let revision = self.settings.revision(epoch);
        Compare::create_revision(self.key(), CompareOp::Equal, revision)
    }

    /// Makes `ops` if this node's candidacy began at `epoch`; returns whether it did.
    async fn still(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        ops: impl Into<Vec<TxnOp>>,
    ) -> Result<bool, StepError> {
        let txn = Txn::new().when([self.stands(epoch)]).and_then(ops);
        Ok(link.txn(SNAPSHOT_CALL_LIMIT, txn).await?.succeeded())
    }

    async fn must(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        ops: impl Into<Vec<TxnOp>>,
    ) -> Result<(), StepError> {
        if self.still(link, epoch, ops).await? {
            Ok(())
        } else {
            Err(StepError::NotCandidate(self.shard))
        }
    }

    /// The state that the last master left; with a snapshot's head only if that is of the last
    /// term.
    async fn left(&self, link: &EtcdLink) -> Result<LastTerm, StepError> {
        let txn = Txn::new().and_then([
            TxnOp::get(self.keys.term(self.shard), None),
            TxnOp::get(self.keys.snapshot_head(self.shard), None),
        ]);
        let found = link.txn(CALL_LIMIT, txn).await?.op_responses();
        let mut pairs = found.iter().map(|found| match found {
            TxnOpResponse::Get(found) => found.kvs().first(),
            _ => None,
        });
        let (term, head) = (pairs.next().flatten(), pairs.next().flatten());
        let Some(term) = term else {
            return Ok(LastTerm::default());
        };
        let epoch = std::str::from_utf8(term.value()).ok();
        let epoch: Option<u64> = epoch.and_then(|text| text.parse().ok());
        let head = head.and_then(|head: &KeyValue| serde_json::from_slice(head.value()).ok());
        let head =
            head.filter(|head: &SnapshotHead| Some(head.epoch) == epoch && head.parts <= PARTS_MAX);
        Ok(LastTerm {
            revision: term.mod_revision(),
            head,
        })
    }

    /// The snapshot that `head` describes; `None` if it is incomplete.
    async fn read(&self, link: &EtcdLink, head: &SnapshotHead) -> Result<Option<Bytes>, StepError> {
        let mut snapshot = Vec::new();
        for number in 0..head.parts {
            let key = self.keys.snapshot_part(self.shard, number);
            let part = link.call(SNAPSHOT_CALL_LIMIT, async |mut client| {
                client.get(key, None).await
            });
            let part = part.await?;
            let part = part.kvs().first().map(KeyValue::value);
            snapshot.extend_from_slice(part.unwrap_or_default());
        }
        if sha256(&snapshot) != head.sha256 {
            let shard = self.shard.0;
            tracing::warn!(shard, "hand-over: lease table is incomplete and not used");
            return Ok(None);
        }
        Ok(Some(snapshot.into()))
    }
}

// === free functions ===

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
