//! The cluster as one node sees it, at one revision of etcd.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use etcd_client::{GetOptions, KeyValue, ResponseHeader};
use tollgate_core::cluster::{Candidate, Election, ElectionStep, ShardId, Vacancies};
use tollgate_core::lease::Epoch;
use tollgate_core::units::Instant;

use super::keys::{ElectionKey, ElectionKeys};
use super::settings::ClusterSettings;
use super::{CALL_LIMIT, StepError};
use crate::election::{Master, Masters, Peer};
use crate::etcd::EtcdLink;

/// The most keys of masters and members: 64 shards, each with more candidates than any cluster has
/// nodes.
const KEYS_MAX: i64 = 4096;

/// The nodes that are alive, and the candidates of all shards.
#[derive(Debug)]
pub(super) struct ClusterView {
    shards: NonZeroU16,
    /// The revision, as an epoch.
    revision: Epoch,
    members: Vec<Arc<Peer>>,
    candidates: Vec<CandidateEntry>,
}

#[derive(Debug)]
struct CandidateEntry {
    shard: ShardId,
    epoch: Epoch,
    /// `None` if it cannot be read; the candidacy counts all the same.
    peer: Option<Arc<Peer>>,
}

// === impl ClusterView ===

impl ClusterView {
    /// Reads all masters and members.
    pub(super) async fn look(
        link: &EtcdLink,
        keys: &ElectionKeys,
        shards: NonZeroU16,
        settings: ClusterSettings,
    ) -> Result<Self, StepError> {
        let (start, end) = keys.masters_and_members();
        let options = GetOptions::new().with_range(end).with_limit(KEYS_MAX);
        let found = link.call(CALL_LIMIT, async |mut client| {
            client.get(start, Some(options)).await
        });
        let found = found.await?;
        if found.more() {
            return Err(StepError::TooMany(found.count()));
        }
        let revision = found.header().map_or(0, ResponseHeader::revision);
        let mut view = Self {
            shards,
            revision: settings.epoch(revision),
            members: Vec::new(),
            candidates: Vec::new(),
        };
        for pair in found.kvs() {
            view.take(keys, settings, pair);
        }
        Ok(view)
    }

    /// Whether etcd has `node` as alive.
    pub(super) fn has(&self, node: &str) -> bool {
        self.members.iter().any(|peer| peer.node == node)
    }

    /// The next steps of `node`, which is master of `led`.
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

    /// Tells `vacancies` which shards are without a master, as `node` was told at `now`, which is
    /// master of `led` and was under the candidacies `spent`.
    pub(super) fn note_vacancies(
        &self,
        now: Instant,
        (node, led): (&str, &[(ShardId, Epoch)]),
        spent: &BTreeMap<ShardId, Epoch>,
        vacancies: &mut Vacancies,
    ) {
        let candidates = self.candidates();
        let election = Election {
            shards: self.shards,
            node,
            members: &[],
            candidates: &candidates,
            led,
        };
        vacancies.handle_view(now, self.revision, &election, spent);
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
            // No node has an empty name.
            node: one.peer.as_ref().map_or("", |peer| &peer.node),
        });
        candidates.collect()
    }

    fn take(&mut self, keys: &ElectionKeys, settings: ClusterSettings, pair: &KeyValue) {
        if pair.lease() == 0 {
            // A key without a lease was not written by a node.
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
