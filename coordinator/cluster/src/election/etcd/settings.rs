//! Settings that all nodes of a cluster must share: the first node writes them, the others check
//! them.

use std::num::NonZeroU16;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use serde::{Deserialize, Serialize};
use tollgate_core::lease::Epoch;
use tollgate_net::clock::epoch_of_this_start;

use super::keys::ElectionKeys;
use super::{CALL_LIMIT, StepError};
use crate::election::ElectionError;
use crate::etcd::EtcdLink;

/// Settings that all nodes of a cluster share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ClusterSettings {
    /// Number of shards.
    shards: NonZeroU16,
    /// Base of epochs. Revisions of etcd start at 1, and a node that was alone before has used much
    /// higher epochs, as has a cluster whose etcd was lost.
    origin: u64,
}

// === impl ClusterSettings ===

impl ClusterSettings {
    /// Writes the settings with `shards` shards, or checks those that are there.
    pub(super) async fn reach(
        link: &EtcdLink,
        keys: &ElectionKeys,
        shards: NonZeroU16,
    ) -> Result<Self, StepError> {
        let proposed = Self {
            shards,
            origin: epoch_of_this_start().0,
        };
        let key = keys.settings();
        let found = propose(link, &key, &proposed).await?;
        let Some(found) = found else {
            return Ok(proposed);
        };
        match serde_json::from_slice::<Self>(&found) {
            Ok(agreed) if agreed.shards == shards && agreed.epoch(0).is_possible() => Ok(agreed),
            Ok(agreed) if agreed.shards != shards => {
                Err(StepError::ForGood(ElectionError::Shards {
                    ours: shards,
                    theirs: agreed.shards,
                    key,
                }))
            }
            _ => Err(StepError::ForGood(ElectionError::Agreement {
                key,
                found: String::from_utf8_lossy(&found).into_owned(),
            })),
        }
    }

    /// The epoch of a candidacy that began at `revision`.
    pub(super) fn epoch(self, revision: i64) -> Epoch {
        let revision = u64::try_from(revision).unwrap_or_default();
        Epoch(self.origin.saturating_add(revision))
    }

    /// The revision at which the candidacy of `epoch` began.
    pub(super) fn revision(self, epoch: Epoch) -> i64 {
        let revision = epoch.0.saturating_sub(self.origin);
        i64::try_from(revision).unwrap_or(i64::MAX)
    }
}

/// Writes `proposed` if nothing is there; else returns what is.
async fn propose(
    link: &EtcdLink,
    key: &str,
    proposed: &ClusterSettings,
) -> Result<Option<Vec<u8>>, StepError> {
    let value = serde_json::to_vec(proposed).unwrap_or_default();
    let txn = Txn::new()
        .when([Compare::version(key, CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key, value, None)])
        .or_else([TxnOp::get(key, None)]);
    let answer = link.txn(CALL_LIMIT, txn).await?;
    if answer.succeeded() {
        return Ok(None);
    }
    let found = answer
        .op_responses()
        .into_iter()
        .find_map(|found| match found {
            TxnOpResponse::Get(found) => Some(found.kvs().first()?.value().to_owned()),
            _ => None,
        });
    Ok(Some(found.unwrap_or_default()))
}
