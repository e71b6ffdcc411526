//! The one task that owns a lease table.
//!
//! A caller sends an event through a [`DriverHandle`] and awaits the answer. The queue is bounded:
//! when it stays full the caller gets an error. An event whose caller has gone is skipped.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tollgate_core::cluster::shard_of;
use tollgate_core::lease::{ClientId, ClientRun, Origin, ResourceId};
use tollgate_core::lease_server::{Bounds, DrainError, LeaseServer, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Instant};
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use crate::catalog::{Catalog, ResolvedScope, Resolver};
use crate::clock::Clock;
use crate::leases::metrics::LeaseMetrics;
use crate::leases::view::{ScopeDetail, ScopePage};

mod derived;
mod error;
mod hand_over;
mod parent;
mod tally;

pub use self::derived::{DeriveRequest, DerivedAnswer, DerivedAnswers, DerivedCall};
pub use self::error::LeaseError;
use self::parent::ParentState;
pub use self::parent::{ParentBatch, ParentReply, WeakDriverHandle};
pub use self::tally::LeaseCount;
use self::tally::Tally;

/// Events that wait for the driver. A bulk call takes about a millisecond, so a full queue is
/// already later than a client waits.
const QUEUE_LEN: usize = 1024;

/// Longest wait of a caller for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// Calls for more scopes, or resources, than this are bulk calls.
const BULK_LEN: usize = 64;

/// Bulk calls in the queue at a time. A small call waits for no more of them; the other bulk calls
/// wait before the queue, in order.
const BULK_CALLS: usize = 8;

/// Bulk calls in the queue and before it. A decoded one takes many times as much memory as its bytes
/// on the wire: 0.4 MB for a thousand scopes with four units each.
const BULK_CALLS_HELD: usize = 64;

/// Event that a driver handles.
#[derive(Debug)]
enum DriverEvent {
    Refresh(Refresh, oneshot::Sender<Vec<ScopeAnswer>>),
    Release(Release, oneshot::Sender<()>),
    Drain(ClientId, Duration, oneshot::Sender<Result<(), DrainError>>),
    Derived(DerivedCall, oneshot::Sender<DerivedAnswers>),
    HandOver(oneshot::Sender<FinalState>),
    View(ViewRequest),
    /// Asks for the next requests to the parent; answered when one is due.
    ParentBatch(oneshot::Sender<ParentBatch>),
    /// The parent's answers.
    ParentReply(ParentReply, oneshot::Sender<()>),
}

/// Read-only look at the lease table, which sends its result itself.
struct ViewRequest(Box<ViewFn>);

type ViewFn = dyn FnOnce(&LeaseServer, Instant) + Send;

/// The lease table of a driver that ended, and the time at which it did.
type FinalState = Box<(LeaseServer, Instant)>;

/// Owns the lease table until the last [`DriverHandle`] is gone, or until it is handed over.
#[derive(Debug)]
pub struct Driver {
    node: LeaseServer,
    origin: Origin,
    /// Number of shards in the cluster.
    shards: NonZeroU16,
    resolver: Resolver,
    /// Limit of a scope without one; says how long its lease lasts.
    unlimited: Limit,
    clock: Clock,
    metrics: LeaseMetrics,
    /// `Some` below a parent.
    parent: Option<ParentState>,
    events: mpsc::Receiver<DriverEvent>,
    /// Snapshot of the previous master, until it is read.
    inherited: Option<Vec<u8>>,
    /// Clients that are drained from the start, each with the end of its drain.
    drains: Vec<(ClientId, Instant)>,
    /// This driver's share of the bound on leases.
    tally: Tally,
}

/// Sends events to a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverHandle {
    events: mpsc::Sender<DriverEvent>,
    /// Permits for bulk calls in the queue.
    bulk: Arc<Semaphore>,
    /// Permits for bulk calls in the queue and before it.
    bulk_held: Arc<Semaphore>,
    origin: Origin,
}

/// Permits of one bulk call, given back when this is dropped.
#[derive(Debug)]
struct BulkPermit<'a> {
    _queue: SemaphorePermit<'a>,
    _held: SemaphorePermit<'a>,
}

/// Reason for which the driver did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue stayed full for a second, or too many bulk calls wait for it.
    #[error("the coordinator is overloaded: its queue is full")]
    Busy,
    /// The driver has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

// === impl ViewRequest ===

impl fmt::Debug for ViewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewRequest")
    }
}

// === impl Driver ===

impl Driver {
    /// Creates a driver with an empty lease table that follows `catalog`, and a handle to it.
    pub fn new(
        bounds: Bounds,
        catalog: watch::Receiver<Arc<Catalog>>,
        origin: Origin,
        start: Start,
        clock: Clock,
        metrics: LeaseMetrics,
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

    /// Makes the driver one of `shards`: it answers for the scopes of its own shard alone. So a
    /// pool is in one shard, even while other nodes have another configuration.
    #[must_use]
    pub fn among(self, shards: NonZeroU16) -> Self {
        Self { shards, ..self }
    }

    /// Bounds this driver's leases together with all others that `all` counts.
    #[must_use]
    pub fn counted_in(self, all: LeaseCount) -> Self {
        let tally = Tally::new(all);
        Self { tally, ..self }
    }

    /// Drains `drains`, each until its end, regardless of the lease table.
    #[must_use]
    pub fn draining(self, drains: Vec<(ClientId, Instant)>) -> Self {
        Self { drains, ..self }
    }

    /// Handles events and expiries until the last handle is gone or the lease table is handed over.
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
                        // If the caller has gone just now, the lease table is lost and the next
                        // master learns.
                        let _ = reply.send(Box::new(frozen));
                        return;
                    }
                    Some(event) => self.handle_event(event),
                    None => return,
                },
                () = timer.until(timeout) => {}
            }
            let now = self.clock.now();
            // Also after an event: a busy queue must not delay expiries.
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
            // The bound cannot be exceeded: `Drains` has the same, and the previous master's are
            // among them.
            let _ = self.node.handle_drain(now, &client, until);
        }
    }

    /// The next time at which something is due without an event.
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
            DriverEvent::Derived(call, reply) if !reply.is_closed() => {
                let _ = reply.send(self.refresh_derived(now, call));
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
            // A scope without a limit here may have one at the parent.
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
                self.metrics.count_fault(error.fault());
                error.into()
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
    /// The shard and term of the driver's answers.
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

    /// Takes the permits of a call for `scopes` scopes; a small call needs none.
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

    /// Answers a client whose requests are derived from the lease table, in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn refresh_derived(&self, call: DerivedCall) -> Result<DerivedAnswers, DriverError> {
        let _place = self.bulk_place(call.requests.len()).await?;
        self.call(|reply| DriverEvent::Derived(call, reply)).await
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

    /// Returns the first `limit` scopes whose ids come after `after`.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn scopes(&self, after: String, limit: usize) -> Result<ScopePage, DriverError> {
        self.view(move |node, now| ScopePage::new(node, now, &after, limit))
            .await
    }

    /// Returns one scope with at most `clients` of its clients; `None` if the lease table lacks it.
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

    /// Returns the result of `look` at the lease table. No client is answered meanwhile, so it must
    /// not look at more than some thousand entries.
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

/// Refuses a scope that belongs to another shard than the master of `origin`.
fn at_home(origin: Origin, shards: NonZeroU16, resolved: &ResolvedScope) -> Result<(), LeaseError> {
    let Some(ours) = origin.shard else {
        return Ok(());
    };
    match shard_of(resolved.home(), shards) {
        shard if shard == ours => Ok(()),
        shard => Err(LeaseError::Elsewhere { shard, ours }),
    }
}

#[cfg(test)]
mod tests;
