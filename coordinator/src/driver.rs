//! The one task that owns the books.
//!
//! Whoever wants something of the [`Node`] sends an event through a [`Handle`] and awaits the
//! answer. The queue is bounded; when it stays full the caller is told so, and an event whose
//! caller has gone is skipped rather than answered into the void.

use std::fmt;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tollgate_core::lease::{ClientId, Epoch, ResourceId, Unit};
use tollgate_core::limit::Limit;
use tollgate_core::node::{Node, Start, Terms};
use tollgate_core::resource::RefreshError;
use tollgate_core::units::{Capacity, Instant};
use tollgate_proto::request::{Refresh, Release, ScopeAsks};
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use crate::clock::Clock;
use crate::config::Config;
use crate::grpc::scope_error;
use crate::limits::Limits;
use crate::metrics::{Metrics, RefreshFault};
use crate::view::{ScopeDetail, ScopePage, Totals};

/// Events that wait for the driver. A bulk call takes about a millisecond, so a full queue is
/// already later than a client waits.
const QUEUE_LEN: usize = 1024;

/// How long a caller waits for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// What the driver can be asked to do.
#[derive(Debug)]
enum Event {
    Refresh(Refresh, oneshot::Sender<Vec<ScopeAnswer>>),
    Release(Release, oneshot::Sender<()>),
    View(View),
}

/// A question about the books: takes a look and sends what it saw.
struct View(Box<Look>);

type Look = dyn FnOnce(&Node, Instant) + Send;

/// Owns the books until the last [`Handle`] is gone.
#[derive(Debug)]
pub struct Driver {
    node: Node,
    limits: Limits,
    /// What counts for units that the configuration does not know.
    unlimited: Limit,
    clock: Clock,
    metrics: Metrics,
    events: mpsc::Receiver<Event>,
}

/// Sends events to a [`Driver`].
#[derive(Clone, Debug)]
pub struct Handle {
    events: mpsc::Sender<Event>,
    epoch: Epoch,
}

/// Why the driver did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue stayed full for a second.
    #[error("the coordinator is overloaded: its queue is full")]
    Busy,
    /// The driver has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

// === impl View ===

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

// === impl Driver ===

impl Driver {
    /// A driver with empty books, and the way to reach it.
    pub fn new(
        config: Config,
        epoch: Epoch,
        start: Start,
        clock: Clock,
        metrics: Metrics,
    ) -> (Self, Handle) {
        let (sender, events) = mpsc::channel(QUEUE_LEN);
        let driver = Self {
            node: Node::new(clock.now(), epoch, config.bounds, start),
            limits: config.limits,
            unlimited: Limit::new(Capacity::UNLIMITED),
            clock,
            metrics,
            events,
        };
        let handle = Handle {
            events: sender,
            epoch,
        };
        (driver, handle)
    }

    /// Handles events and expiries until the last handle is gone.
    pub async fn run(mut self) {
        loop {
            let timeout = self.clock.sleep_until(self.node.poll_timeout());
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.handle_event(event),
                    None => return,
                },
                () = timeout => {}
            }
            let now = self.clock.now();
            // Also after an event: a busy queue must not keep leases in the books.
            if self.node.poll_timeout().is_some_and(|at| at <= now) {
                self.node.handle_timeout(now);
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Refresh(refresh, reply) if !reply.is_closed() => {
                let answers = self.refresh(now, &refresh);
                let _ = reply.send(answers);
            }
            Event::Release(release, reply) => {
                // Even for a caller that has gone: it has nothing more to ask.
                self.release(&release);
                let _ = reply.send(());
            }
            Event::View(View(look)) => look(&self.node, now),
            _ => {}
        }
    }

    fn refresh(&mut self, now: Instant, refresh: &Refresh) -> Vec<ScopeAnswer> {
        let scopes = refresh.scopes.iter();
        scopes
            .map(|scope| {
                let outcome = self.refresh_scope(now, &refresh.client, scope);
                ScopeAnswer {
                    scope: scope.scope.clone(),
                    canonical: scope.scope.clone(),
                    limited: self.limited(&scope.scope),
                    outcome: outcome.map_err(|error| {
                        self.metrics.count_fault(fault(error));
                        scope_error(error)
                    }),
                }
            })
            .collect()
    }

    fn refresh_scope(
        &mut self,
        now: Instant,
        client: &ClientId,
        scope: &ScopeAsks,
    ) -> Result<Vec<UnitAnswer>, RefreshError> {
        let requests = self.limits.find(&scope.scope);
        let mut refresh_unit = |(unit, ask): &(Unit, _)| {
            let resource = ResourceId {
                scope: scope.scope.clone(),
                unit: *unit,
            };
            let ask: &tollgate_core::lease::Ask = ask;
            let limit = match unit {
                Unit::Requests => requests,
                _ => &self.unlimited,
            };
            let terms = Terms::of(limit);
            let answer = self
                .node
                .handle_refresh(now, client, &resource, ask, &terms)?;
            Ok(UnitAnswer {
                unit: *unit,
                sequence: ask.sequence,
                answer,
            })
        };
        scope.asks.iter().map(&mut refresh_unit).collect()
    }

    fn limited(&self, scope: &str) -> Vec<Unit> {
        let unlimited = self.limits.find(scope).capacity.is_unlimited();
        (!unlimited).then_some(Unit::Requests).into_iter().collect()
    }

    fn release(&mut self, release: &Release) {
        for (resource, sequence) in &release.resources {
            self.node
                .handle_release(&release.client, resource, *sequence);
        }
    }
}

// === impl Handle ===

impl Handle {
    /// The epoch of the driver's answers.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn refresh(&self, refresh: Refresh) -> Result<Vec<ScopeAnswer>, DriverError> {
        self.call(|reply| Event::Refresh(refresh, reply)).await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), DriverError> {
        self.call(|reply| Event::Release(release, reply)).await
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

    /// The sums over all books.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn totals(&self) -> Result<Totals, DriverError> {
        self.view(Totals::new).await
    }

    /// What `look` sees in the books. The driver answers no client meanwhile, so it must not look
    /// at more than some thousand entries.
    ///
    /// # Errors
    /// If the driver cannot be reached.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node, Instant) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let event = |reply: oneshot::Sender<T>| {
            Event::View(View(Box::new(move |node, now| {
                if !reply.is_closed() {
                    let _ = reply.send(look(node, now));
                }
            })))
        };
        self.call(event).await
    }

    async fn call<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> Event,
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

fn fault(error: RefreshError) -> RefreshFault {
    match error {
        RefreshError::Stale { .. } => RefreshFault::Stale,
        RefreshError::TooManyClients { .. } => RefreshFault::TooManyClients,
        RefreshError::TooManyResources { .. } => RefreshFault::TooManyResources,
    }
}

#[cfg(test)]
mod tests;
