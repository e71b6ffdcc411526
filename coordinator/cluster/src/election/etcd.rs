//! An election through etcd.
//!
//! A node takes an etcd lease and writes two kinds of keys under it: one that it is alive, and one
//! for each shard of which it is a candidate. The next steps follow from all these keys as
//! [`tollgate_core::cluster`] decides; this module carries them out. The oldest candidate of a
//! shard is its master, and the etcd revision of its candidacy is its epoch.
//!
//! This is etcd's own recipe for elections, with one look at all shards in place of a call and a
//! stream for each. The node looks when etcd reports a change, and several times per lease, so that
//! a stream that died unnoticed delays little.

use std::num::NonZeroU16;
use std::time::Duration;

use keys::ElectionKeys;
use session::{Session, SessionEnd};
use tokio::sync::watch;
use tollgate_core::cluster::{ShardId, Vacancies};

use super::{Election, ElectionError, ElectionMetrics, ElectionPublisher, Peer};
use crate::config::{ClusterConfig, EtcdConfig};
use crate::etcd::{EtcdError, EtcdLink};

mod keys;
mod session;
mod settings;
mod tasks;
mod transfer;
mod view;

/// Time limit of a small call: far longer than it takes, and several fit into the time for which a
/// client waits for a new master.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// Time limit of a call that carries a part of a snapshot.
const SNAPSHOT_CALL_LIMIT: Duration = Duration::from_secs(4);

/// Waits before another attempt: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// One node's part in an election through etcd.
#[derive(Debug)]
pub struct EtcdElection {
    peer: Peer,
    shards: NonZeroU16,
    config: EtcdConfig,
    metrics: ElectionMetrics,
}

/// Reason for which a step failed; most steps may succeed later.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("this node is no longer a candidate for shard {0}")]
    NotCandidate(ShardId),
    #[error("there are {0} keys of masters and members in etcd, too many")]
    TooMany(i64),
    #[error(
        "etcd knows a node {0:?} already: an earlier run of this one, which is forgotten when its \
         lease ends, or another with the same cluster.node"
    )]
    Known(String),
    #[error("the lease table was not returned in time")]
    NoSnapshot,
    #[error(transparent)]
    ForGood(ElectionError),
}

// === impl EtcdElection ===

impl EtcdElection {
    /// Creates the election of `config`'s cluster for the node that `peer` describes.
    pub fn new(config: &ClusterConfig, peer: Peer, metrics: ElectionMetrics) -> Self {
        Self {
            peer,
            shards: config.shards,
            config: config.etcd.clone(),
            metrics,
        }
    }
}

impl Election for EtcdElection {
    async fn run(
        self,
        publisher: ElectionPublisher,
        mut stop: watch::Receiver<()>,
    ) -> Result<(), ElectionError> {
        let link = std::sync::Arc::new(EtcdLink::new(self.config.clone()));
        let keys = ElectionKeys::new(&self.config.prefix);
        for shard in ShardId::all(self.shards) {
            self.metrics.set_master(shard, false);
        }
        let mut wait = RETRY.0;
        let mut vacancies = Vacancies::default();
        loop {
            let session = tokio::select! {
                session = Session::join(&self, link.clone(), keys.clone(), vacancies.clone()) => session,
                _ = stop.changed() => return Ok(()),
            };
            match session {
                Ok(session) => {
                    wait = RETRY.0;
                    let end;
                    (end, vacancies) = session.run(&publisher, &mut stop).await;
                    if end == SessionEnd::Stopped {
                        return Ok(());
                    }
                }
                Err(StepError::ForGood(error)) => return Err(error),
                Err(error) => {
                    self.metrics.errors.inc();
                    tracing::warn!(%error, "election: cannot take part");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.changed() => return Ok(()),
            }
            wait = wait.saturating_mul(2).min(RETRY.1);
        }
    }
}
