//! Who is master of which shard.
//!
//! An [`Election`] runs for as long as the node does. It tells two things: [`ElectionEvent`]s, which are for
//! the one who owns the books of this node's shards, and [`Masters`], which are for everybody who
//! has to find a shard's master. With one node that is [`SingleNode`]: master of everything, at once and
//! for ever. In a cluster it is [`EtcdElection`].
//!
//! **Architecture invariant:** whoever lends looks at [`Term::holds`] before and after it has
//! decided. A master whose term has ended is none, whatever its clock did in between.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use axum::body::Bytes;
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

/// Events that wait. Each shard has at most one under way, and there are at most 64 shards.
const EVENTS_LEN: usize = 128;

/// Why an election ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The cluster has another number of shards.
    #[error(
        "cluster.shards: is {ours}, but the cluster at {key:?} in etcd has {theirs}; all nodes \
         must have the same"
    )]
    Shards {
        /// What this node's configuration says.
        ours: NonZeroU16,
        /// What the first node said.
        theirs: NonZeroU16,
        /// The key in etcd that holds it.
        key: String,
    },
    /// What the nodes have agreed on cannot be read.
    #[error("{key:?} in etcd is not what a coordinator of this version writes: {found:?}")]
    Agreement {
        /// The key in etcd that holds it.
        key: String,
        /// What stands there.
        found: String,
    },
}

/// A way to settle who is master.
pub trait Election: Send + 'static {
    /// Tells `voice` until `stop` changes or its sender is gone; then gives up in order whatever
    /// this node leads, and ends.
    ///
    /// # Errors
    /// If this node cannot take part at all.
    fn run(
        self,
        publisher: ElectionPublisher,
        stop: watch::Receiver<()>,
    ) -> impl Future<Output = Result<(), ElectionError>> + Send;
}

/// What this node is to do about a shard.
#[derive(Debug)]
pub enum ElectionEvent {
    /// Be its master.
    Elected {
        /// Which.
        shard: ShardId,
        /// For how long, and under which epoch.
        term: Term,
        /// The books of the term directly before, if its master handed them over; what is left of
        /// times in them counts from now. Without them one has to learn.
        books: Option<Bytes>,
    },
    /// Answer nobody any more, and give the books back, so that another can go on from them; none
    /// if they are not worth it.
    StepDown {
        /// Which.
        shard: ShardId,
        /// Where to.
        reply: oneshot::Sender<Option<Bytes>>,
    },
    /// Be no longer its master; the term has ended already.
    Lost {
        /// Which.
        shard: ShardId,
    },
}

/// A node and how others reach it.
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
    /// Whether its HTTP port does.
    #[serde(default)]
    pub http_tls: bool,
}

/// The master of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Who it is.
    pub peer: Arc<Peer>,
    /// Its term.
    pub epoch: Epoch,
}

/// Who is master, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masters {
    shards: Vec<Option<Master>>,
    /// The nodes that are alive, by name.
    pub members: Vec<Arc<Peer>>,
}

/// Where an election tells what it has settled.
#[derive(Debug)]
pub struct ElectionPublisher {
    /// For the one who owns the books.
    pub events: mpsc::Sender<ElectionEvent>,
    /// For everybody.
    pub masters: watch::Sender<Arc<Masters>>,
}

/// What an election has settled.
#[derive(Debug)]
pub struct ElectionUpdates {
    /// What this node is to do, in order.
    pub events: mpsc::Receiver<ElectionEvent>,
    /// Who is master.
    pub masters: watch::Receiver<Arc<Masters>>,
}

// === impl Peer ===

impl Peer {
    /// The URL of its gRPC port.
    pub fn grpc_url(&self) -> String {
        let scheme = if self.grpc_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.grpc)
    }

    /// Whether only who is on the same machine reaches one of its ports.
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
    /// A voice about `shards` shards, none of which has a master, and where it is heard.
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
    /// Nobody leads any of `shards` shards.
    pub fn none(shards: NonZeroU16) -> Self {
        Self {
            shards: vec![None; usize::from(shards.get())],
            members: Vec::new(),
        }
    }

    /// `masters` of all shards in order, and the nodes that are alive.
    pub fn new(masters: impl IntoIterator<Item = Option<Master>>, members: Vec<Arc<Peer>>) -> Self {
        Self {
            shards: masters.into_iter().collect(),
            members,
        }
    }

    /// The master of `shard`; none if there is none.
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
