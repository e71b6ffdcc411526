//! One lease of a node: from joining until the lease is gone or the node stops.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_core::cluster::{ElectionStep, ShardId, Vacancies};
use tollgate_core::lease::Epoch;
use tollgate_core::units::Instant;
use tollgate_net::clock::boot_time;

use super::keys::ElectionKeys;
use super::settings::ClusterSettings;
use super::tasks::{KeepAliveTimes, keep_alive, watch_others};
use super::transfer::{SnapshotTransfer, TakenTerm};
use super::view::ClusterView;
use super::{CALL_LIMIT, EtcdElection, StepError};
use crate::election::{
    ElectionEvent, ElectionMetrics, ElectionPublisher, Masters, Peer, Term, TermDeadline,
};
use crate::etcd::EtcdLink;

/// Time for a driver to return its snapshot.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(2);

/// Time for stopping a node. The next masters learn all that was not handed over by then.
const STOP_LIMIT: Duration = Duration::from_secs(4);

/// A node that takes part in the election.
#[derive(Debug)]
pub(super) struct Session {
    link: Arc<EtcdLink>,
    keys: ElectionKeys,
    peer: Arc<Peer>,
    shards: NonZeroU16,
    metrics: ElectionMetrics,
    settings: ClusterSettings,
    lease: i64,
    pulse: KeepAliveTimes,
    deadline: TermDeadline,
    led: BTreeMap<ShardId, LedTerm>,
    /// Candidacies that this node has ended, though etcd may not know yet.
    spent: BTreeMap<ShardId, Epoch>,
    /// Shards without a master, by the clock of terms.
    vacancies: Vacancies,
    work: JoinSet<(ShardId, StepOutcome)>,
    /// Shards with a step in progress.
    busy: BTreeSet<ShardId>,
}

/// Reason for which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The node stops.
    Stopped,
    /// Its lease is gone.
    Lost,
}

/// Result of a step.
#[derive(Debug)]
enum StepOutcome {
    Stood,
    Elected(Epoch, TakenTerm),
    /// Whether the next master gets a snapshot.
    HandedOver(bool),
    Failed(StepError),
}

/// Term of a shard of which this node is master.
#[derive(Debug)]
struct LedTerm {
    term: Term,
    /// Revision at which it began, as an epoch.
    began: Epoch,
}

/// A term during its hand-over; ends with it, however far that gets.
struct EndingTerm(Term);

// === impl EndingTerm ===

impl Drop for EndingTerm {
    fn drop(&mut self) {
        self.0.end();
    }
}

// === impl Session ===

impl Session {
    /// Takes an etcd lease and registers the node.
    pub(super) async fn join(
        node: &EtcdElection,
        link: Arc<EtcdLink>,
        keys: ElectionKeys,
        vacancies: Vacancies,
    ) -> Result<Self, StepError> {
        let settings = ClusterSettings::reach(&link, &keys, node.shards).await?;
        let lease = node.config.lease;
        let seconds = i64::try_from(lease.as_secs()).unwrap_or(i64::MAX);
        let sent = boot_time();
        let granted = link.call(CALL_LIMIT, async |mut client| {
            client.lease_grant(seconds, None).await
        });
        let granted = granted.await?;
        let pulse = KeepAliveTimes::new(lease);
        let session = Self {
            link,
            keys,
            peer: Arc::new(node.peer.clone()),
            shards: node.shards,
            metrics: node.metrics.clone(),
            settings,
            lease: granted.id(),
            pulse,
            deadline: TermDeadline::at(pulse.end(sent)),
            led: BTreeMap::new(),
            spent: BTreeMap::new(),
            vacancies,
            work: JoinSet::new(),
            busy: BTreeSet::new(),
        };
        match session.register().await {
            Ok(()) => Ok(session),
            Err(error) => {
                session.revoke().await;
                Err(error)
            }
        }
    }

    /// Takes part until the lease is gone or `stop` changes. Returns why it ended, with what it knows
    /// of shards without a master.
    pub(super) async fn run(
        mut self,
        publisher: &ElectionPublisher,
        stop: &mut watch::Receiver<()>,
    ) -> (SessionEnd, Vacancies) {
        let node = &self.peer.node;
        tracing::info!(%node, lease = format!("{:x}", self.lease), "election: takes part");
        let changed = Arc::new(Notify::new());
        // The tasks end with the session, however it ends.
        let mut tasks = JoinSet::new();
        let (link, metrics) = (self.link.clone(), self.metrics.clone());
        let (lease, pulse, deadline) = (self.lease, self.pulse, self.deadline.clone());
        let alive = tasks.spawn(keep_alive(link.clone(), lease, pulse, deadline, metrics));
        let mut watching = JoinSet::new();
        watching.spawn(watch_others(
            link,
            self.keys.clone(),
            pulse,
            changed.clone(),
        ));
        let mut tick = tokio::time::interval(self.pulse.beat);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ended = loop {
            let look = tokio::select! {
                _ = stop.changed() => break SessionEnd::Stopped,
                _ = tasks.join_next() => break SessionEnd::Lost,
                _ = tick.tick() => true,
                () = changed.notified() => true,
                Some(done) = self.work.join_next() => self.take_in(publisher, done).await,
            };
            if look && !self.look(publisher).await {
                break SessionEnd::Lost;
            }
        };
        if ended == SessionEnd::Stopped {
            self.stop(publisher).await;
        }
        alive.abort();
        self.lose_all(publisher).await;
        self.revoke().await;
        (ended, self.vacancies)
    }

    /// Registers the node, unless another has its name.
    async fn register(&self) -> Result<(), StepError> {
        let key = self.keys.member(&self.peer.node);
        let value = serde_json::to_vec(&*self.peer).unwrap_or_default();
        let options = PutOptions::new().with_lease(self.lease);
        let txn = Txn::new()
            .when([Compare::version(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, value, Some(options))]);
        if self.link.txn(CALL_LIMIT, txn).await?.succeeded() {
            Ok(())
        } else {
            Err(StepError::Known(self.peer.node.clone()))
        }
    }

    /// Reads the cluster's state, publishes the masters, and begins the next steps; returns false
    /// if etcd does not have this node any more.
    async fn look(&mut self, publisher: &ElectionPublisher) -> bool {
        self.metrics.set_term(self.deadline.left());
        let view = ClusterView::look(&self.link, &self.keys, self.shards, self.settings).await;
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                self.metrics.errors.inc();
                tracing::warn!(%error, "election: cannot watch the masters");
                return true;
            }
        };
        if !view.has(&self.peer.node) {
            return false;
        }
        say(publisher, view.masters());
        let led = self.led.iter();
        let led = led.map(|(shard, led)| (*shard, led.term.epoch()));
        let led: Vec<_> = led.collect();
        let now = since_boot(boot_time());
        let mine = (&*self.peer.node, &*led);
        view.note_vacancies(now, mine, &self.spent, &mut self.vacancies);
        for step in view.steps(&self.peer.node, &led) {
            self.begin(publisher, step).await;
        }
        true
    }

    async fn begin(&mut self, publisher: &ElectionPublisher, step: ElectionStep) {
        let (ElectionStep::Stand(shard)
        | ElectionStep::Withdraw(shard, _)
        | ElectionStep::Lead(shard, _)
        | ElectionStep::HandOver(shard, _)
        | ElectionStep::Lose(shard, _)) = step;
        if self.busy.contains(&shard) {
            return;
        }
        let (transfer, link) = (self.transfer(shard), self.link.clone());
        match step {
            ElectionStep::Stand(_) => {
                let peer = self.peer.clone();
                self.spawn(shard, async move {
                    transfer.stand(&link, &peer).await?;
                    Ok(StepOutcome::Stood)
                });
            }
            ElectionStep::Lead(_, epoch) if self.spent.get(&shard) != Some(&epoch) => {
                self.spawn(shard, async move {
                    let taken = transfer.take(&link, epoch).await?;
                    Ok(StepOutcome::Elected(epoch, taken))
                });
            }
            ElectionStep::Withdraw(_, epoch) | ElectionStep::Lead(_, epoch) => {
                self.spawn(shard, async move {
                    transfer.withdraw(&link, epoch).await?;
                    Ok(StepOutcome::Stood)
                });
            }
            ElectionStep::HandOver(..) => self.hand_over(publisher, shard).await,
            ElectionStep::Lose(..) => self.lose(publisher, shard).await,
        }
    }

    /// Takes the snapshot of `shard` from its driver and leaves it for the next master.
    async fn hand_over(&mut self, publisher: &ElectionPublisher, shard: ShardId) {
        let Some(LedTerm { term, .. }) = self.led.remove(&shard) else {
            return;
        };
        self.spent.insert(shard, term.epoch());
        self.metrics.set_master(shard, false);
        let (reply, snapshot) = oneshot::channel();
        let step_down = ElectionEvent::StepDown { shard, reply };
        let sent = publisher.events.send(step_down).await;
        let (transfer, link) = (self.transfer(shard), self.link.clone());
        let epoch = term.epoch();
        let leaving = EndingTerm(term);
        self.spawn(shard, async move {
            let snapshot = match sent {
                Ok(()) => timeout(SNAPSHOT_LIMIT, snapshot).await,
                Err(_) => return Err(StepError::NoSnapshot),
            };
            // From here on the driver grants nothing, even if it still runs.
            drop(leaving);
            let Ok(Ok(snapshot)) = snapshot else {
                return Err(StepError::NoSnapshot);
            };
            let has_snapshot = snapshot.is_some();
            transfer.leave(&link, epoch, snapshot).await?;
            Ok(StepOutcome::HandedOver(has_snapshot))
        });
    }

    /// Applies the result of a step; returns whether to look again at once.
    async fn take_in(
        &mut self,
        publisher: &ElectionPublisher,
        done: Result<(ShardId, StepOutcome), tokio::task::JoinError>,
    ) -> bool {
        let Ok((shard, done)) = done else {
            return false;
        };
        self.busy.remove(&shard);
        let id = shard.0;
        match done {
            StepOutcome::Stood => {}
            StepOutcome::Elected(epoch, taken) => {
                let elected = self.lead(shard, epoch, taken);
                let _ = publisher.events.send(elected).await;
            }
            StepOutcome::HandedOver(has_snapshot) => {
                tracing::info!(shard = id, has_snapshot, "election: handed over");
                if has_snapshot {
                    self.metrics.hand_overs.inc();
                }
            }
            StepOutcome::Failed(error) => {
                self.metrics.errors.inc();
                tracing::warn!(shard = id, %error, "election: step failed");
                // Waits for the next tick.
                return false;
            }
        }
        true
    }

    /// Begins the term of `epoch`, and returns the event for it.
    fn lead(&mut self, shard: ShardId, epoch: Epoch, taken: TakenTerm) -> ElectionEvent {
        let TakenTerm {
            snapshot,
            last,
            began,
        } = taken;
        let vacant_since = self.vacancies.take(shard, last, began);
        let now = since_boot(boot_time());
        let vacant_for = vacant_since.map(|since| now.saturating_since(since));
        let (id, bytes) = (shard.0, snapshot.as_ref().map(Bytes::len));
        tracing::info!(shard = id, epoch = epoch.0, snapshot_bytes = ?bytes, ?vacant_for, "election: became master");
        let term = Term::new(epoch, self.deadline.clone());
        let led = LedTerm {
            term: term.clone(),
            began,
        };
        self.led.insert(shard, led);
        self.metrics.elections.inc();
        self.metrics.set_master(shard, true);
        ElectionEvent::Elected {
            shard,
            term,
            snapshot,
            vacant_for,
        }
    }

    /// Hands all shards over, and gives this node's place to its peers at once.
    async fn stop(&mut self, publisher: &ElectionPublisher) {
        let all = async {
            while let Some(done) = self.work.join_next().await {
                self.take_in(publisher, done).await;
            }
            let key = self.keys.member(&self.peer.node);
            let gone = self.link.call(CALL_LIMIT, async |mut client| {
                client.delete(key, None).await
            });
            if let Err(error) = gone.await {
                tracing::warn!(%error, "election: cannot announce that this node stops");
            }
            while let Some((&shard, _)) = self.led.first_key_value() {
                self.hand_over(publisher, shard).await;
            }
            while let Some(done) = self.work.join_next().await {
                self.take_in(publisher, done).await;
            }
        };
        if timeout(STOP_LIMIT, all).await.is_err() {
            tracing::warn!("hand-over: not all shards were handed over in time");
        }
    }

    async fn lose_all(&mut self, publisher: &ElectionPublisher) {
        self.work.shutdown().await;
        while let Some((&shard, _)) = self.led.first_key_value() {
            self.lose(publisher, shard).await;
        }
    }

    async fn lose(&mut self, publisher: &ElectionPublisher, shard: ShardId) {
        let Some(LedTerm { term, began }) = self.led.remove(&shard) else {
            return;
        };
        term.end();
        let granted_until = since_boot(self.deadline.time().min(boot_time()));
        self.vacancies.handle_end(granted_until, shard, began);
        self.metrics.set_master(shard, false);
        let epoch = term.epoch().0;
        tracing::warn!(shard = shard.0, epoch, "election: no longer master");
        let _ = publisher.events.send(ElectionEvent::Lost { shard }).await;
    }

    /// Revokes the lease, so that no peer has to wait for its end.
    async fn revoke(&self) {
        let lease = self.lease;
        let revoked = self.link.call(CALL_LIMIT, async |mut client| {
            client.lease_revoke(lease).await
        });
        if let Err(error) = revoked.await {
            tracing::debug!(%error, "election: cannot revoke the lease in etcd, it expires by itself");
        }
    }

    fn transfer(&self, shard: ShardId) -> SnapshotTransfer {
        SnapshotTransfer {
            keys: self.keys.clone(),
            settings: self.settings,
            shard,
            lease: self.lease,
        }
    }

    fn spawn(
        &mut self,
        shard: ShardId,
        step: impl Future<Output = Result<StepOutcome, StepError>> + Send + 'static,
    ) {
        self.busy.insert(shard);
        self.work.spawn(async move {
            let done = step.await.unwrap_or_else(StepOutcome::Failed);
            (shard, done)
        });
    }
}

// === free functions ===

/// The time since the machine's boot as the core's.
fn since_boot(time: Duration) -> Instant {
    Instant::ZERO.saturating_add(time)
}

/// Publishes `masters` if they have changed.
fn say(publisher: &ElectionPublisher, masters: Masters) {
    publisher.masters.send_if_modified(|before| {
        for (shard, master) in masters.iter() {
            if before.of(shard) != master {
                let node = master.map(|master| &*master.peer.node);
                let epoch = master.map(|master| master.epoch.0);
                tracing::info!(shard = shard.0, node, epoch, "election: master changed");
            }
        }
        let is_news = **before != masters;
        if is_news {
            *before = Arc::new(masters);
        }
        is_news
    });
}
