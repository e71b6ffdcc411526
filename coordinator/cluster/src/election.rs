//! Election of the masters of all shards.
//!
//! An [`Election`] runs for as long as the node does. It sends [`ElectionEvent`]s to the supervisor
//! of this node's shards, and publishes [`Masters`] for all who look for a shard's master. A node
//! alone uses [`SingleNode`]: it is master of everything, at once and for ever. A cluster uses
//! [`EtcdElection`].
//!
//! **Architecture invariant:** a master checks [`Term::holds`] before and after it decides about
//! leases. A master whose term has ended is none, whatever its clock did in between.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

#[cfg(feature = "etcd")]
mod etcd;
mod metrics;
mod single;
mod term;

#[cfg(feature = "etcd")]
pub use etcd::EtcdElection;
pub use metrics::ElectionMetrics;
pub use single::{RunEpoch, RunEpochError, SingleNode};
pub use term::{Term, TermDeadline};

/// Events that wait. Each shard has at most one in progress, and there are at most 64 shards.
const EVENTS_LEN: usize = 128;

/// Reason for which an election ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The cluster has another number of shards.
    #[error(
        "cluster.shards: is {ours}, but the cluster at {key:?} in etcd has {theirs}; all nodes \
         must have the same"
    )]
    Shards {
        /// Number of shards in this node's configuration.
        ours: NonZeroU16,
        /// Number of shards of the cluster.
        theirs: NonZeroU16,
        /// The key in etcd that holds it.
        key: String,
    },
    /// The cluster settings in etcd cannot be read.
    #[error("{key:?} in etcd is not what a coordinator of this version writes: {found:?}")]
    Agreement {
        /// The key in etcd that holds it.
        key: String,
        /// The value found.
        found: String,
    },
}

/// A way to elect masters.
pub trait Election: Send + 'static {
    /// Publishes events and masters until `stop` changes or its sender is gone; then hands over
    /// this node's shards, and ends.
    ///
    /// # Errors
    /// If this node cannot take part at all.
    fn run(
        self,
        publisher: ElectionPublisher,
        stop: watch::Receiver<()>,
    ) -> impl Future<Output = Result<(), ElectionError>> + Send;
}

/// Change in this node's masterships.
#[derive(Debug)]
pub enum ElectionEvent {
    /// This node became master of a shard.
    Elected {
        /// The shard.
        shard: ShardId,
        /// Its term.
        term: Term,
        /// Snapshot of the term directly before, if its master handed one over; remaining times in
        /// it count from now. Without it the new master learns.
        snapshot: Option<Bytes>,
        /// Time for which the shard had no master before, if this node knows: the new master learns
        /// for as much less.
        vacant_for: Option<Duration>,
    },
    /// This node is to stop answering for a shard, and to return a snapshot for the next master;
    /// `None` if there is none.
    StepDown {
        /// The shard.
        shard: ShardId,
        /// Receives the snapshot.
        reply: oneshot::Sender<Option<Bytes>>,
    },
    /// This node is no longer master of a shard; the term has ended already.
    Lost {
        /// The shard.
        shard: ShardId,
    },
}

/// A node and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its gRPC port, as `host:port`.
    pub grpc: String,
    /// Its HTTP port, as `host:port`.
    pub http: String,
    /// Whether its gRPC port speaks TLS.
    #[serde(default)]
    pub grpc_tls: bool,
    /// Whether its HTTP port speaks TLS.
    #[serde(default)]
    pub http_tls: bool,
}

/// The master of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// The node.
    pub peer: Arc<Peer>,
    /// Its term.
    pub epoch: Epoch,
}

/// Masters of all shards, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masters {
    shards: Vec<Option<Master>>,
    /// The nodes that are alive, by name.
    pub members: Vec<Arc<Peer>>,
}

/// Sender of an election's results.
#[derive(Debug)]
pub struct ElectionPublisher {
    /// For the supervisor of this node's shards.
    pub events: mpsc::Sender<ElectionEvent>,
    /// For the router and the APIs.
    pub masters: watch::Sender<Arc<Masters>>,
}

/// Receiver of an election's results.
#[derive(Debug)]
pub struct ElectionUpdates {
    /// Changes in this node's masterships, in order.
    pub events: mpsc::Receiver<ElectionEvent>,
    /// Masters of all shards.
    pub masters: watch::Receiver<Arc<Masters>>,
}

// === impl Peer ===

impl Peer {
    /// The URL of its gRPC port.
    pub fn grpc_url(&self) -> String {
        let scheme = if self.grpc_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.grpc)
    }

    /// Whether one of its ports can be reached from the same machine only.
    pub fn is_on_loopback(&self) -> bool {
        let loopback = |address: &String| {
            let address: Result<SocketAddr, _> = address.parse();
            address.is_ok_and(|address| address.ip().is_loopback())
        };
        [&self.grpc, &self.http].into_iter().any(loopback)
    }
}

// === impl ElectionPublisher ===

impl ElectionPublisher {
    /// Creates a publisher about `shards` shards without masters, and its receiver.
    pub fn new(shards: NonZeroU16) -> (Self, ElectionUpdates) {
        let (events, heard) = mpsc::channel(EVENTS_LEN);
        let (masters, seen) = watch::channel(Arc::new(Masters::none(shards)));
        let outcome = ElectionUpdates {
            events: heard,
            masters: seen,
        };
        (Self { events, masters }, outcome)
    }
}

// === impl Masters ===

impl Masters {
    /// No master for any of `shards` shards.
    pub fn none(shards: NonZeroU16) -> Self {
        Self {
            shards: vec![None; usize::from(shards.get())],
            members: Vec::new(),
        }
    }

    /// The masters of all shards in order, and the nodes that are alive.
    pub fn new(masters: impl IntoIterator<Item = Option<Master>>, members: Vec<Arc<Peer>>) -> Self {
        Self {
            shards: masters.into_iter().collect(),
            members,
        }
    }

    /// The master of `shard`, if it has one.
    pub fn of(&self, shard: ShardId) -> Option<&Master> {
        self.shards.get(shard.index())?.as_ref()
    }

    /// All shards in order, each with its master.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, Option<&Master>)> {
        (0..)
            .map(ShardId)
            .zip(self.shards.iter().map(Option::as_ref))
    }
}
