//! Nodes of a cluster, and the masters of its shards.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_cluster::election::{Master, Peer};
use tollgate_core::cluster::ShardId;
use tollgate_leases::shards::Shards;
use utoipa::ToSchema;

use crate::Peers;
use crate::lease_view::ms;

/// Cluster as the node that answers knows it, with the answers of the others.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct ClusterStatus {
    /// The node that answers.
    pub node: String,
    /// The nodes that have a lease in etcd, by name; one that dies loses it.
    pub nodes: Vec<NodeStatus>,
    /// The shards, in order.
    pub shards: Vec<ShardStatus>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Its gRPC port, as others reach it.
    pub grpc: String,
    /// Its HTTP port, as others reach it.
    pub http: String,
    /// Whether it has answered just now.
    pub alive: bool,
    /// The version of its program; null if it has not answered, as the fields below.
    pub version: Option<String>,
    /// The time since its start.
    pub uptime_ms: Option<u64>,
    /// Scopes that it has refreshed per second, the mean of the last ten seconds.
    #[schema(minimum = 0)]
    pub refreshes_per_second: Option<f64>,
}

/// A shard of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ShardStatus {
    /// Its number, from 0.
    pub shard: u16,
    /// The node that is its master, if there is one.
    pub master: Option<String>,
    /// The epoch of the master.
    pub epoch: Option<u64>,
    /// The rest of its term unless etcd confirms it; null if the master has not answered.
    pub term_left_ms: Option<u64>,
    /// Its resources in learning mode; null if the master has not answered.
    pub learning_count: Option<usize>,
}

// === impl ClusterStatus ===

impl ClusterStatus {
    /// Returns what this node knows by itself: all of its own shards, of the others the master.
    /// `learning` counts the resources in learning mode by shard, and `me` describes this node.
    pub(super) fn of(
        peers: &Peers,
        shards: &Shards,
        learning: &BTreeMap<ShardId, usize>,
        me: impl Fn(&mut NodeStatus),
    ) -> Self {
        let masters = peers.masters();
        let node = |peer: &Arc<Peer>| {
            let mut node = NodeStatus::of(peer);
            if peer.node == peers.me().node {
                me(&mut node);
            }
            node
        };
        let shard = |(shard, master): (ShardId, Option<&Master>)| {
            let held = shards.get(shard);
            let epoch = held.as_ref().map(|held| held.epoch().0);
            let own = held.as_ref().map(|_| peers.me().node.clone());
            ShardStatus {
                shard: shard.0,
                master: own.or_else(|| master.map(|master| master.peer.node.clone())),
                epoch: epoch.or_else(|| master.map(|master| master.epoch.0)),
                term_left_ms: held.as_ref().and_then(|held| held.left().map(ms)),
                learning_count: held.map(|_| learning.get(&shard).copied().unwrap_or(0)),
            }
        };
        Self {
            node: peers.me().node.clone(),
            nodes: masters.members.iter().map(node).collect(),
            shards: masters.iter().map(shard).collect(),
        }
    }

    /// Adds the answer of the node of `other` about itself and the shards that it leads.
    pub(super) fn join(&mut self, other: Self) {
        let answer = other.nodes.into_iter().find(|node| node.node == other.node);
        let node = self.nodes.iter_mut().find(|node| node.node == other.node);
        if let (Some(node), Some(answer)) = (node, answer) {
            let (grpc, http) = (take(&mut node.grpc), take(&mut node.http));
            *node = NodeStatus {
                grpc,
                http,
                ..answer
            };
        }
        for shard in other.shards {
            let leads = shard.master.as_deref() == Some(&*other.node);
            let known = self.shards.iter_mut();
            let mut known = known.filter(|known| known.shard == shard.shard);
            if let Some(known) = known.next().filter(|known| known.epoch <= shard.epoch)
                && leads
                && shard.learning_count.is_some()
            {
                *known = shard;
            }
        }
    }
}

// === impl NodeStatus ===

impl NodeStatus {
    /// One that has not answered.
    fn of(peer: &Peer) -> Self {
        Self {
            node: peer.node.clone(),
            grpc: peer.grpc.clone(),
            http: peer.http.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(master: &str, epoch: u64, learning_count: Option<usize>) -> ShardStatus {
        ShardStatus {
            shard: 0,
            master: Some(master.to_owned()),
            epoch: Some(epoch),
            term_left_ms: learning_count.map(|_| 2000),
            learning_count,
        }
    }

    fn status(node: &str, shard: ShardStatus) -> ClusterStatus {
        ClusterStatus {
            node: node.to_owned(),
            nodes: Vec::new(),
            shards: vec![shard],
        }
    }

    #[test]
    fn of_a_shard_its_master_in_the_latest_term_is_believed() {
        let rows = [
            (
                shard("b", 7, None),
                shard("b", 7, Some(3)),
                ("b", 7, Some(3)),
            ),
            (
                shard("a", 7, Some(1)),
                shard("b", 6, Some(3)),
                ("a", 7, Some(1)),
            ),
            (
                shard("a", 7, Some(1)),
                shard("b", 8, Some(0)),
                ("b", 8, Some(0)),
            ),
            // A node knows only from others about a shard that it does not lead.
            (
                shard("a", 7, Some(1)),
                shard("c", 8, None),
                ("a", 7, Some(1)),
            ),
        ];
        for (own, other, (master, epoch, learning)) in rows {
            let mut whole = status("a", own);
            whole.join(status("b", other));
            let [one] = &whole.shards[..] else { panic!() };
            let shown = (one.master.as_deref(), one.epoch, one.learning_count);
            assert_eq!(shown, (Some(master), Some(epoch), learning));
        }
    }
}
