//! A node that takes part in an election, and nothing else: it keeps no snapshot but those it is given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::body::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tollgate_cluster::election::{
    Election as _, ElectionError, ElectionEvent, ElectionMetrics, ElectionPublisher, EtcdElection,
    Masters, Term,
};
use tollgate_config::{ClusterConfig, Config, Tls};
use tollgate_core::cluster::ShardId;
use tollgate_tests::wait;

/// Longer than anything here takes on a machine that has much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// One part in an election.
pub(crate) struct Elector {
    pub(crate) masters: watch::Receiver<Arc<Masters>>,
    pub(crate) terms: Terms,
    stop: watch::Sender<()>,
    running: JoinHandle<Result<(), ElectionError>>,
}

/// The last terms of a node, by shard, also those that have ended, with the snapshot that came with them.
#[derive(Clone, Default)]
pub(crate) struct Terms(Arc<Mutex<LatestTerms>>);

type LatestTerms = BTreeMap<ShardId, LatestTerm>;

/// A term, the snapshot that came with it, and for how long there was no master before it.
type LatestTerm = (Term, Option<Bytes>, Option<Duration>);

// === impl Elector ===

impl Elector {
    /// Takes part as `node`, and hands over `snapshot` of every shard that it has to give up.
    pub(crate) fn start(cluster: &ClusterConfig, snapshot: Option<Bytes>) -> Self {
        let listen = Config::parse("limits: []").unwrap().listen;
        let peer = listen.peer(cluster, &Tls::default());
        let (publisher, outcome) = ElectionPublisher::new(cluster.shards);
        let (stop, stopped) = watch::channel(());
        let etcd = EtcdElection::new(cluster, peer, ElectionMetrics::default());
        let running = tokio::spawn(etcd.run(publisher, stopped));
        let terms = Terms::default();
        tokio::spawn(terms.clone().follow(outcome.events, snapshot));
        Self {
            masters: outcome.masters,
            terms,
            stop,
            running,
        }
    }

    /// Waits until it is master of `count` shards.
    pub(crate) async fn leads(&self, count: usize) {
        wait::until("an elector to lead", LIMIT, async || {
            let leads = self.terms.led().len();
            ensure!(leads == count, "it leads {leads} shards, not {count}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Dies without a word; what it knew of its terms stays.
    pub(crate) async fn kill(self) -> Terms {
        self.running.abort();
        let _ = self.running.await;
        self.terms
    }

    /// Stops in order.
    pub(crate) async fn stop(self) -> Terms {
        drop(self.stop);
        self.running.await.unwrap().unwrap();
        self.terms
    }

    /// Waits until it ends by itself.
    pub(crate) async fn error(self) -> ElectionError {
        let ended = tokio::time::timeout(LIMIT, self.running).await;
        ended.expect("it goes on").unwrap().unwrap_err()
    }
}

// === impl Terms ===

impl Terms {
    /// The shards that are led now, with their terms.
    pub(crate) fn led(&self) -> Vec<(ShardId, Term)> {
        let terms = self.0.lock().unwrap();
        let terms = terms
            .iter()
            .map(|(shard, (term, ..))| (*shard, term.clone()));
        terms.filter(|(_, term)| term.holds()).collect()
    }

    /// The term of `shard`, whether it holds or not.
    pub(crate) fn of(&self, shard: ShardId) -> Option<(Term, Option<Bytes>)> {
        let terms = self.0.lock().unwrap();
        let (term, snapshot, _) = terms.get(&shard)?;
        Some((term.clone(), snapshot.clone()))
    }

    /// The time for which `shard` had no master before its term, if the node knows.
    pub(crate) fn vacant_for(&self, shard: ShardId) -> Option<Duration> {
        self.0.lock().unwrap().get(&shard)?.2
    }

    async fn follow(self, mut events: mpsc::Receiver<ElectionEvent>, snapshot: Option<Bytes>) {
        while let Some(event) = events.recv().await {
            let mut terms = self.0.lock().unwrap();
            match event {
                ElectionEvent::Elected {
                    shard,
                    term,
                    snapshot,
                    vacant_for,
                } => {
                    assert!(term.holds(), "elected for a term that has ended");
                    let latest = (term.clone(), snapshot, vacant_for);
                    if let Some((before, ..)) = terms.insert(shard, latest) {
                        assert!(!before.holds(), "elected twice");
                        assert!(before.epoch() < term.epoch(), "epochs grow");
                    }
                }
                ElectionEvent::StepDown { shard, reply } => {
                    assert!(terms.contains_key(&shard), "to step down from nothing");
                    let _ = reply.send(snapshot.clone());
                }
                ElectionEvent::Lost { shard } => {
                    let (term, ..) = &terms[&shard];
                    assert!(!term.holds(), "lost, and yet it holds");
                }
            }
        }
    }
}
