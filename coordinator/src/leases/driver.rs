//! The one task that owns the books.
//!
//! Whoever wants something of the [`LeaseServer`] sends an event through a [`DriverHandle`] and awaits the
//! answer. The queue is bounded; when it stays full the caller is told so, and an event whose
//! caller has gone is skipped rather than answered into the void.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{ClientId, ClientRun, Origin, ResourceId};
use tollgate_core::lease_server::{Bounds, DrainError, LeaseServer, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::resource::RefreshError;
use tollgate_core::units::{Capacity, Instant};
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use crate::api::grpc::scope_error;
use crate::catalog::{Catalog, ResolvedScope, Resolver};
use crate::clock::Clock;
use crate::leases::view::{ScopeDetail, ScopePage};
use crate::observe::metrics::{Metrics, RefreshFault};

mod echo;
mod hand_over;
mod parent;
mod tally;

pub use self::echo::{EchoAsk, EchoCall, Granted};
use self::parent::ParentState;
pub use self::parent::{ParentBatch, ParentReply, WeakDriverHandle};
pub use self::tally::LeaseCount;
use self::tally::Tally;

/// Events that wait for the driver. A bulk call takes about a millisecond, so a full queue is
/// already later than a client waits.
const QUEUE_LEN: usize = 1024;

/// How long a caller waits for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// Calls for more scopes, or resources, than this are bulk calls.
const BULK_LEN: usize = 64;

/// Bulk calls in the queue at a time. A small call waits for no more of them, whoever sends how
/// many; the other bulk calls wait before the queue, in order.
const BULK_CALLS: usize = 8;

/// Bulk calls in the queue and before it. A decoded one takes many times as much memory as its bytes
/// on the wire: 0.4 MB for a thousand scopes with four units each.
const BULK_CALLS_HELD: usize = 64;

/// What the driver can be asked to do.
#[derive(Debug)]
enum DriverEvent {
    Refresh(Refresh, oneshot::Sender<Vec<ScopeAnswer>>),
    Release(Release, oneshot::Sender<()>),
    Drain(ClientId, Duration, oneshot::Sender<Result<(), DrainError>>),
    Echoes(EchoCall, oneshot::Sender<Echoed>),
    HandOver(oneshot::Sender<FinalState>),
    View(ViewRequest),
    /// What there is to say to the parent, when there is something.
    ParentBatch(oneshot::Sender<ParentBatch>),
    /// What the parent has said.
    ParentReply(ParentReply, oneshot::Sender<()>),
}

/// What came of each ask of a call.
pub type Echoed = Vec<Result<Granted, LeaseError>>;

/// A question about the books: takes a look and sends what it saw.
struct ViewRequest(Box<ViewFn>);

type ViewFn = dyn FnOnce(&LeaseServer, Instant) + Send;

/// The books of a driver that has ended, and when.
type FinalState = Box<(LeaseServer, Instant)>;

/// Owns the books until the last [`DriverHandle`] is gone, or until it has handed them over.
#[derive(Debug)]
pub struct Driver {
    node: LeaseServer,
    origin: Origin,
    /// Into how many shards the scopes are divided.
    shards: NonZeroU16,
    resolver: Resolver,
    /// How long a lease lasts where there is no limit.
    unlimited: Limit,
    clock: Clock,
    metrics: Metrics,
    /// Of one that has a parent.
    parent: Option<ParentState>,
    events: mpsc::Receiver<DriverEvent>,
    /// What the master before left, until it is read.
    inherited: Option<Vec<u8>>,
    /// Who is drained from the start, each until when.
    drains: Vec<(ClientId, Instant)>,
    /// Its part of the leases that are bounded together.
    tally: Tally,
}

/// Sends events to a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverHandle {
    events: mpsc::Sender<DriverEvent>,
    /// Places in the queue for bulk calls.
    bulk: Arc<Semaphore>,
    /// Places for bulk calls in the queue and before it.
    bulk_held: Arc<Semaphore>,
    origin: Origin,
}

/// The places of a bulk call, which are free when this is dropped.
#[derive(Debug)]
struct BulkPermit<'a> {
    _queue: SemaphorePermit<'a>,
    _held: SemaphorePermit<'a>,
}

/// Why the driver did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue stayed full for a second, or too many bulk calls wait for it.
    #[error("the coordinator is overloaded: its queue is full")]
    Busy,
    /// The driver has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

/// Why one ask of a call got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The books refused it.
    #[error(transparent)]
    Refresh(#[from] RefreshError),
    /// It is not for this master to answer: nodes do not know the same configuration yet, by which
    /// scopes belong to shards.
    #[error("the scope belongs to shard {} here, and this node is master of shard {}", shard.0, ours.0)]
    Elsewhere {
        /// The shard of the scope by the configuration of this node.
        shard: ShardId,
        /// The shard of this master.
        ours: ShardId,
    },
}

// === impl ViewRequest ===

impl fmt::Debug for ViewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewRequest")
    }
}

// === impl Driver ===

impl Driver {
    /// A driver with empty books that follows `catalog`, and the way to reach it.
    pub fn new(
        bounds: Bounds,
        catalog: watch::Receiver<Arc<Catalog>>,
        origin: Origin,
        start: Start,
        clock: Clock,
        metrics: Metrics,
    ) -> (Self, DriverHandle) {
        let (sender, events) = mpsc::channel(QUEUE_LEN);
        let driver = Self {
            node: LeaseServer::new(clock.now(), origin.epoch, bounds, start),
            origin,
            shards: NonZeroU16::MIN,
            resolver: Resolver::new(catalog, bounds.max_resources),
            unlimited: Limit::new(Capacity::UNLIMITED),
            clock,
            metrics,
            parent: None,
            events,
            inherited: None,
            drains: Vec::new(),
            tally: Tally::default(),
        };
        let handle = DriverHandle {
            events: sender,
            bulk: Arc::new(Semaphore::new(BULK_CALLS)),
            bulk_held: Arc::new(Semaphore::new(BULK_CALLS_HELD)),
            origin,
        };
        (driver, handle)
    }

    /// The same, of a cluster that divides the scopes into `shards`: it answers for those of its own
    /// alone. Only so is a pool in one shard, whatever other nodes know of the configuration.
    #[must_use]
    pub fn among(self, shards: NonZeroU16) -> Self {
        Self { shards, ..self }
    }

    /// The same, whose leases are bounded together with all others that are counted in `all`.
    #[must_use]
    pub fn counted_in(self, all: LeaseCount) -> Self {
        let tally = Tally::new(all);
        Self { tally, ..self }
    }

    /// The same, which drains those clients, each until then, whatever its books say.
    #[must_use]
    pub fn draining(self, drains: Vec<(ClientId, Instant)>) -> Self {
        Self { drains, ..self }
    }

    /// Handles events and expiries until the last handle is gone or the books are handed over.
    pub async fn run(mut self) {
        self.inherit().await;
        self.count_leases();
        self.drain_all();
        self.borrow();
        let mut timer = self.clock.timer();
        loop {
            let timeout = self.poll_timeout();
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(DriverEvent::HandOver(reply)) if !reply.is_closed() => {
                        let frozen = (self.node, self.clock.now());
                        // Whoever asked may have gone just now. Nobody has the books then.
                        let _ = reply.send(Box::new(frozen));
                        return;
                    }
                    Some(event) => self.handle_event(event),
                    None => return,
                },
                () = timer.until(timeout) => {}
            }
            let now = self.clock.now();
            // Also after an event: a busy queue must not keep leases in the books.
            if self.node.poll_timeout().is_some_and(|at| at <= now) {
                self.node.handle_timeout(now);
            }
            self.count_leases();
            self.tell_parent(now);
        }
    }

    fn count_leases(&mut self) {
        let elsewhere = self.tally.count(self.node.lease_count());
        self.node.set_leases_elsewhere(elsewhere);
    }

    fn drain_all(&mut self) {
        let now = self.clock.now();
        for (client, until) in std::mem::take(&mut self.drains) {
            // There are no more of them than books keep; those of the master before are the same.
            let _ = self.node.handle_drain(now, &client, until);
        }
    }

    /// When there is something to do although nobody asks.
    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.node.poll_timeout(), self.poll_parent()];
        timeouts.into_iter().flatten().min()
    }

    fn handle_event(&mut self, event: DriverEvent) {
        let now = self.clock.now();
        self.count_leases();
        match event {
            DriverEvent::Refresh(refresh, reply) if !reply.is_closed() => {
                let answers = self.refresh(now, &refresh);
                let _ = reply.send(answers);
            }
            DriverEvent::Echoes(call, reply) if !reply.is_closed() => {
                let _ = reply.send(self.answer_echoes(now, call));
            }
            DriverEvent::Release(release, reply) => {
                // Even for a caller that has gone: it has nothing more to ask.
                self.release(&release);
                let _ = reply.send(());
            }
            DriverEvent::Drain(client, time, reply) => {
                let until = now.saturating_add(time);
                let _ = reply.send(self.node.handle_drain(now, &client, until));
            }
            DriverEvent::View(ViewRequest(look)) => look(&self.node, now),
            DriverEvent::ParentBatch(reply) => self.await_batch(reply),
            DriverEvent::ParentReply(heard, reply) => {
                self.hear(now, heard);
                let _ = reply.send(());
            }
            _ => {}
        }
    }

    fn refresh(&mut self, now: Instant, refresh: &Refresh) -> Vec<ScopeAnswer> {
        self.resolver.update();
        let scopes = refresh.scopes.iter();
        scopes
            .map(|asks| self.refresh_scope(now, &refresh.client, asks))
            .collect()
    }

    fn refresh_scope(
        &mut self,
        now: Instant,
        client: &ClientRun,
        asks: &ScopeRefresh,
    ) -> ScopeAnswer {
        let resolved = self.resolver.resolve(&asks.scope);
        let home = at_home(self.origin, self.shards, resolved);
        let (node, parent) = (&mut self.node, self.parent.as_ref());
        let answers = asks.asks.iter().map(|(unit, ask)| {
            let (scope, unit) = (resolved.scope.clone(), *unit);
            let resource = ResourceId { scope, unit };
            home?;
            // What has no limit here may have one above.
            let whole = parent.map(|_| Terms::of(&self.unlimited));
            let answer = match resolved.terms(unit).or(whole) {
                Some(terms) => node.handle_refresh(now, client, &resource, ask, &terms)?,
                None => node.handle_unlimited(client, &resource, &self.unlimited),
            };
            let sequence = ask.sequence;
            Ok(UnitAnswer {
                unit,
                sequence,
                answer,
            })
        });
        let outcome: Result<Vec<_>, LeaseError> = answers.collect();
        let (canonical, limited) = match parent {
            Some(parent) => parent.merged(resolved),
            None => (resolved.canonical.clone(), resolved.limited.clone()),
        };
        ScopeAnswer {
            scope: resolved.scope.clone(),
            canonical,
            limited,
            origin: self.origin,
            outcome: outcome.map_err(|error| {
                self.metrics.count_fault(fault(error));
                scope_error(error)
            }),
        }
    }

    fn release(&mut self, release: &Release) {
        for (resource, sequence) in &release.resources {
            self.node
                .handle_release(&release.client, resource, *sequence);
        }
    }
}

// === impl DriverHandle ===

impl DriverHandle {
    /// Where the driver's answers come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn refresh(&self, refresh: Refresh) -> Result<Vec<ScopeAnswer>, DriverError> {
        let _place = self.bulk_place(refresh.scopes.len()).await?;
        self.call(|reply| DriverEvent::Refresh(refresh, reply))
            .await
    }

    /// The places of a call for so many scopes; none are needed for a small one.
    async fn bulk_place(&self, scopes: usize) -> Result<Option<BulkPermit<'_>>, DriverError> {
        if scopes <= BULK_LEN {
            return Ok(None);
        }
        let held = self.bulk_held.try_acquire();
        let held = held.map_err(|_| DriverError::Busy)?;
        let queue = tokio::time::timeout(QUEUE_WAIT, self.bulk.acquire()).await;
        let queue = queue.map_err(|_| DriverError::Busy)?;
        Ok(Some(BulkPermit {
            _queue: queue.map_err(|_| DriverError::Stopped)?,
            _held: held,
        }))
    }

    /// Answers a client whose protocol has no sequences, each ask in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn echoes(&self, call: EchoCall) -> Result<Echoed, DriverError> {
        let _place = self.bulk_place(call.asks.len()).await?;
        self.call(|reply| DriverEvent::Echoes(call, reply)).await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), DriverError> {
        let _place = self.bulk_place(release.resources.len()).await?;
        self.call(|reply| DriverEvent::Release(release, reply))
            .await
    }

    /// Gives `client` nothing for `time`; lets it serve again if that is zero.
    ///
    /// # Errors
    /// If the driver cannot be reached; within, if too many clients are drained already.
    pub async fn drain(
        &self,
        client: ClientId,
        time: Duration,
    ) -> Result<Result<(), DrainError>, DriverError> {
        self.call(|reply| DriverEvent::Drain(client, time, reply))
            .await
    }

    /// The first `limit` scopes whose ids come after `after`.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn scopes(&self, after: String, limit: usize) -> Result<ScopePage, DriverError> {
        self.view(move |node, now| ScopePage::new(node, now, &after, limit))
            .await
    }

    /// The books of one scope with at most `clients` of its clients; none if it is not in them.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn scope(
        &self,
        scope: String,
        clients: usize,
    ) -> Result<Option<ScopeDetail>, DriverError> {
        self.view(move |node, now| ScopeDetail::find(node, now, &scope, clients))
            .await
    }

    /// What `look` sees in the books. The driver answers no client meanwhile, so it must not look
    /// at more than some thousand entries.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&LeaseServer, Instant) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let event = |reply: oneshot::Sender<T>| {
            DriverEvent::View(ViewRequest(Box::new(move |node, now| {
                if !reply.is_closed() {
                    let _ = reply.send(look(node, now));
                }
            })))
        };
        self.call(event).await
    }

    async fn call<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> DriverEvent,
    ) -> Result<T, DriverError> {
        let place = tokio::time::timeout(QUEUE_WAIT, self.events.reserve()).await;
        let place = place
            .map_err(|_| DriverError::Busy)?
            .map_err(|_| DriverError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        place.send(event(reply));
        answer.await.map_err(|_| DriverError::Stopped)
    }
}

// === free functions ===

/// Refuses what the master of `origin` is not to answer for, of a cluster of `shards`.
fn at_home(origin: Origin, shards: NonZeroU16, resolved: &ResolvedScope) -> Result<(), LeaseError> {
    let Some(ours) = origin.shard else {
        return Ok(());
    };
    match shard_of(resolved.home(), shards) {
        shard if shard == ours => Ok(()),
        shard => Err(LeaseError::Elsewhere { shard, ours }),
    }
}

fn fault(error: LeaseError) -> RefreshFault {
    match error {
        LeaseError::Refresh(RefreshError::Stale { .. } | RefreshError::EarlierTerm { .. }) => {
            RefreshFault::Stale
        }
        LeaseError::Refresh(RefreshError::TooManyClients { .. }) => RefreshFault::TooManyClients,
        LeaseError::Refresh(RefreshError::TooManyResources { .. }) => {
            RefreshFault::TooManyResources
        }
        LeaseError::Refresh(RefreshError::TooManyLeases { .. }) => RefreshFault::TooManyLeases,
        LeaseError::Elsewhere { .. } => RefreshFault::Elsewhere,
    }
}

#[cfg(test)]
mod tests;
