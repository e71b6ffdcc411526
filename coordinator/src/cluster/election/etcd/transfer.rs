//! Taking office and leaving it: how the books of a shard pass from one master to the next.
//!
//! Who leaves writes its books in parts, each in a transaction that needs its candidacy to stand
//! still; the last one writes the head and ends the candidacy, so that either all of the books are
//! there or nobody takes them for such. Who comes takes them only if they are of the term directly
//! before its own, and removes them in the transaction that writes its own term.

use axum::body::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

use super::keys::ElectionKeys;
use super::settings::ClusterSettings;
use super::{BOOKS_CALL_LIMIT, CALL_LIMIT, StepError};
use crate::cluster::election::Peer;
use crate::cluster::etcd::EtcdLink;

/// Bytes of the books in one request; etcd takes 1.5 MiB.
const PART_LEN: usize = 1 << 20;

/// The most parts, so 64 MiB: books of a million clients. Larger ones stay behind, and the next
/// master has to learn.
const PARTS_MAX: usize = 64;

/// A candidacy for one shard, and what it takes to keep office.
#[derive(Clone, Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) keys: ElectionKeys,
    pub(super) settings: ClusterSettings,
    pub(super) shard: ShardId,
    /// The lease of the node.
    pub(super) lease: i64,
}

/// What is said of books that were handed over.
#[derive(Debug, Deserialize, Serialize)]
struct SnapshotHead {
    /// The term that they are of.
    epoch: u64,
    parts: usize,
    /// SHA-256 of all parts together, in hexadecimal.
    sha256: String,
}

/// What the last master has left.
#[derive(Debug, Default)]
struct LastTerm {
    /// The revision of its term; 0 if nobody ever was master.
    revision: i64,
    head: Option<SnapshotHead>,
}

// === impl SnapshotTransfer ===

impl SnapshotTransfer {
    /// Stands for the shard, unless this node does already.
    pub(super) async fn stand(&self, link: &EtcdLink, peer: &Peer) -> Result<(), StepError> {
        let value = serde_json::to_vec(peer).unwrap_or_default();
        let options = PutOptions::new().with_lease(self.lease);
        let txn = Txn::new()
            .when([Compare::version(self.key(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(self.key(), value, Some(options))]);
        let answer = link.call(CALL_LIMIT, async |mut client| client.txn(txn).await);
        answer.await?;
        Ok(())
    }

    /// Stands no longer.
    pub(super) async fn withdraw(&self, link: &EtcdLink, epoch: Epoch) -> Result<(), StepError> {
        let delete = TxnOp::delete(self.key(), None);
        // One that has gone already is as good.
        self.still(link, epoch, [delete]).await.map(drop)
    }

    /// Becomes master, and gives the books of the term before; none if there are none.
    pub(super) async fn take(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
    ) -> Result<Option<Bytes>, StepError> {
        let left = self.left(link).await?;
        let books = match &left.head {
            Some(head) => self.read(link, head).await?,
            None => None,
        };
        let term = self.keys.term(self.shard);
        let seen = Compare::mod_revision(term.clone(), CompareOp::Equal, left.revision);
        let all = DeleteOptions::new().with_prefix();
        let txn = Txn::new().when([self.stands(epoch), seen]).and_then([
            TxnOp::put(term, epoch.0.to_string(), None),
            TxnOp::delete(self.keys.books(self.shard), Some(all)),
        ]);
        let answer = link.call(CALL_LIMIT, async |mut client| client.txn(txn).await);
        match answer.await?.succeeded() {
            true => Ok(books),
            false => Err(StepError::NotStanding(self.shard)),
        }
    }

    /// Leaves office, with `books` for the next master.
    pub(super) async fn leave(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        books: Option<Bytes>,
    ) -> Result<(), StepError> {
        let parts = || books.iter().flat_map(|books| books.chunks(PART_LEN));
        let count = parts().count();
        let mut last = vec![TxnOp::delete(self.key(), None)];
        if count > PARTS_MAX {
            let (shard, bytes) = (self.shard.0, count.saturating_mul(PART_LEN));
            tracing::warn!(shard, bytes, "hand-over: lease table is too large");
        } else if let Some(books) = &books {
            for (number, part) in parts().enumerate() {
                let key = self.keys.books_part(self.shard, number);
                self.must(link, epoch, [TxnOp::put(key, part, None)])
                    .await?;
            }
            let head = SnapshotHead {
                epoch: epoch.0,
                parts: count,
                sha256: sha256(books),
            };
            let head = serde_json::to_vec(&head).unwrap_or_default();
            last.push(TxnOp::put(self.keys.books_head(self.shard), head, None));
        }
        self.must(link, epoch, last).await
    }

    fn key(&self) -> String {
        self.keys.candidate(self.shard, self.lease)
    }

    /// That this node stands since `epoch`.
    fn stands(&self, epoch: Epoch) -> Compare {
        let revision = self.settings.revision(epoch);
        Compare::create_revision(self.key(), CompareOp::Equal, revision)
    }

    /// Does `ops` if this node stands since `epoch`, and says whether it did.
    async fn still(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        ops: impl Into<Vec<TxnOp>>,
    ) -> Result<bool, StepError> {
        let txn = Txn::new().when([self.stands(epoch)]).and_then(ops);
        let answer = link.call(BOOKS_CALL_LIMIT, async |mut client| client.txn(txn).await);
        Ok(answer.await?.succeeded())
    }

    async fn must(
        &self,
        link: &EtcdLink,
        epoch: Epoch,
        ops: impl Into<Vec<TxnOp>>,
    ) -> Result<(), StepError> {
        match self.still(link, epoch, ops).await? {
            true => Ok(()),
            false => Err(StepError::NotStanding(self.shard)),
        }
    }

    /// What the last master has left: its books' head, if they are of the last term.
    async fn left(&self, link: &EtcdLink) -> Result<LastTerm, StepError> {
        let txn = Txn::new().and_then([
            TxnOp::get(self.keys.term(self.shard), None),
            TxnOp::get(self.keys.books_head(self.shard), None),
        ]);
        let answer = link.call(CALL_LIMIT, async |mut client| client.txn(txn).await);
        let found = answer.await?.op_responses();
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

    /// The books that `head` tells of; none if they are not as it says.
    async fn read(&self, link: &EtcdLink, head: &SnapshotHead) -> Result<Option<Bytes>, StepError> {
        let mut books = Vec::new();
        for number in 0..head.parts {
            let key = self.keys.books_part(self.shard, number);
            let part = link.call(BOOKS_CALL_LIMIT, async |mut client| {
                client.get(key, None).await
            });
            let part = part.await?;
            let part = part.kvs().first().map(KeyValue::value);
            books.extend_from_slice(part.unwrap_or_default());
        }
        if sha256(&books) != head.sha256 {
            let shard = self.shard.0;
            tracing::warn!(shard, "hand-over: lease table is incomplete and not used");
            return Ok(None);
        }
        Ok(Some(books.into()))
    }
}

// === free functions ===

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
