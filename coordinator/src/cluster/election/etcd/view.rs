//! What a node sees of the others, at one revision of etcd.

use std::num::NonZeroU16;
use std::sync::Arc;

use etcd_client::{GetOptions, KeyValue};
use tollgate_core::cluster::{Candidate, Election, ElectionStep, ShardId};
use tollgate_core::lease::Epoch;

use super::keys::{ElectionKey, ElectionKeys};
use super::settings::ClusterSettings;
use super::{CALL_LIMIT, StepError};
use crate::cluster::election::{Master, Masters, Peer};
use crate::cluster::etcd::EtcdLink;

/// The most masters and members that are looked at: 64 shards, each with more nodes waiting than
/// any cluster has.
const SEEN_MAX: i64 = 4096;

/// Who is alive, and who stands for which shard.
#[derive(Debug)]
pub(super) struct ClusterView {
    shards: NonZeroU16,
    members: Vec<Arc<Peer>>,
    candidates: Vec<CandidateEntry>,
}

#[derive(Debug)]
struct CandidateEntry {
    shard: ShardId,
    epoch: Epoch,
    /// None if it cannot be read; it stands all the same.
    peer: Option<Arc<Peer>>,
}

// === impl ClusterView ===

impl ClusterView {
    /// Looks at all masters and members.
    pub(super) async fn look(
        link: &EtcdLink,
        keys: &ElectionKeys,
        shards: NonZeroU16,
        settings: ClusterSettings,
    ) -> Result<Self, StepError> {
        let (start, end) = keys.masters_and_members();
        let options = GetOptions::new().with_range(end).with_limit(SEEN_MAX);
        let found = link.call(CALL_LIMIT, async |mut client| {
            client.get(start, Some(options)).await
        });
        let found = found.await?;
        if found.more() {
            return Err(StepError::TooMany(found.count()));
        }
        let mut seen = Self {
            shards,
            members: Vec::new(),
            candidates: Vec::new(),
        };
        for pair in found.kvs() {
            seen.take(keys, settings, pair);
        }
        Ok(seen)
    }

    /// Whether `node` is alive, as far as etcd knows.
    pub(super) fn has(&self, node: &str) -> bool {
        self.members.iter().any(|peer| peer.node == node)
    }

    /// What `node`, which leads `led`, is to do next.
    pub(super) fn steps(&self, node: &str, led: &[(ShardId, Epoch)]) -> Vec<ElectionStep> {
        let members: Vec<&str> = self.members.iter().map(|peer| &*peer.node).collect();
        let candidates = self.candidates();
        let election = Election {
            shards: self.shards,
            node,
            members: &members,
            candidates: &candidates,
            led,
        };
        election.steps()
    }

    /// The masters of all shards.
    pub(super) fn masters(&self) -> Masters {
        let candidates = self.candidates();
        let election = Election {
            shards: self.shards,
            node: "",
            members: &[],
            candidates: &candidates,
            led: &[],
        };
        let masters = ShardId::all(self.shards).map(|shard| {
            let epoch = election.master(shard)?.epoch;
            let of = |one: &&CandidateEntry| one.shard == shard && one.epoch == epoch;
            let peer = self.candidates.iter().find(of)?.peer.clone()?;
            Some(Master { peer, epoch })
        });
        Masters::new(masters, self.members.clone())
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let candidates = self.candidates.iter().map(|one| Candidate {
            shard: one.shard,
            epoch: one.epoch,
            // Nobody's name is empty.
            node: one.peer.as_ref().map_or("", |peer| &peer.node),
        });
        candidates.collect()
    }

    fn take(&mut self, keys: &ElectionKeys, settings: ClusterSettings, pair: &KeyValue) {
        if pair.lease() == 0 {
            // What outlives its node is no word of a node.
            return;
        }
        let peer = serde_json::from_slice::<Peer>(pair.value())
            .ok()
            .map(Arc::new);
        if peer.is_none() {
            let key = String::from_utf8_lossy(pair.key());
            tracing::warn!(%key, "election: key in etcd was not written by a coordinator of this version");
        }
        match (keys.parse(pair.key()), peer) {
            (Some(ElectionKey::Member(node)), Some(peer)) if peer.node == node => {
                self.members.push(peer)
            }
            (Some(ElectionKey::Candidate(shard)), peer) => self.candidates.push(CandidateEntry {
                shard,
                epoch: settings.epoch(pair.create_revision()),
                peer,
            }),
            _ => {}
        }
    }
}
