//! The shards whose master this node is: one driver for each, from its election to the end of its
//! term.
//!
//! The rule behind this module: no answer leaves in a term that may be over. A process can be
//! stopped between any two instructions, so the term is checked before the driver is asked, and
//! again when it has answered; a late answer is dropped. Its leases stay in the table, which can
//! only count too much.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ClientId, Epoch, Origin};
use tollgate_core::lease_server::{Bounds, DrainError, LeaseServer, Start};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::cluster::election::{ElectionEvent, Term};
use crate::leases::drains::Drains;
use crate::leases::driver::{
    DerivedAnswers, DerivedCall, Driver, DriverError, DriverHandle, LeaseCount,
};
use crate::leases::metrics::LeaseMetrics;
use crate::leases::parent::Parent;
use crate::leases::stats::{ResourceVisitor, visit_resources};
use crate::leases::view::{ScopeDetail, ScopePage};

/// A shard of which this node is master, with its driver.
#[derive(Clone, Debug)]
pub struct Mastership {
    shard: ShardId,
    term: Term,
    driver: DriverHandle,
}

/// The shards of this node, kept up to date; clones see the same.
#[derive(Clone, Debug)]
pub struct Shards {
    masterships: watch::Receiver<Arc<BTreeMap<ShardId, Mastership>>>,
    drains: Drains,
}

/// Starts and ends drivers as the election decides.
#[derive(Debug)]
pub struct ShardSupervisor {
    settings: DriverSettings,
    masterships: watch::Sender<Arc<BTreeMap<ShardId, Mastership>>>,
    drains: Drains,
    drivers: JoinSet<()>,
}

/// Settings of all drivers.
#[derive(Debug)]
pub struct DriverSettings {
    /// Bounds of each driver, except for leases, whose bound is shared.
    pub bounds: Bounds,
    /// Leases of all drivers together.
    pub leases: LeaseCount,
    /// The newest configuration.
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// Number of shards; `None` for a coordinator that is alone.
    pub shards: Option<NonZeroU16>,
    /// Initial knowledge of a master without its predecessor's snapshot.
    pub start: Start,
    /// Clock of the lease tables.
    pub clock: Clock,
    /// Metrics.
    pub metrics: LeaseMetrics,
    /// The parent; `None` for a root.
    pub parent: Option<Parent>,
}

/// Reason for which the master of a shard did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MastershipError {
    /// Its term is over, or may be.
    #[error("this node is not the master of shard {0} any more")]
    Over(ShardId),
    /// The driver did not answer.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

// === impl Mastership ===

impl Mastership {
    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The epoch of its term.
    pub fn epoch(&self) -> Epoch {
        self.driver.origin().epoch
    }

    /// Whether its term still holds.
    pub fn holds(&self) -> bool {
        self.term.holds()
    }

    /// Remaining time of the term; `None` if it has no deadline.
    pub fn left(&self) -> Option<Duration> {
        self.term.left()
    }

    /// Answers a client, one answer for each scope in order.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn refresh(&self, refresh: Refresh) -> Result<Vec<ScopeAnswer>, MastershipError> {
        self.within_term(self.driver.refresh(refresh)).await
    }

    /// Answers a client whose requests are derived from the lease table, in order.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn refresh_derived(
        &self,
        call: DerivedCall,
    ) -> Result<DerivedAnswers, MastershipError> {
        self.within_term(self.driver.refresh_derived(call)).await
    }

    /// Takes leases back.
    ///
    /// # Errors
    /// If the term is over or the driver cannot be reached.
    pub async fn release(&self, release: Release) -> Result<(), MastershipError> {
        self.within_term(self.driver.release(release)).await
    }

    /// Ends the term, and sends the snapshot for the next master.
    async fn hand_over(self, reply: oneshot::Sender<Option<Bytes>>) {
        let snapshot = self.driver.hand_over().await;
        self.term.end();
        // Without a snapshot the next master learns.
        let _ = reply.send(snapshot.ok().map(Bytes::from));
    }

    async fn within_term<T>(
        &self,
        answer: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, MastershipError> {
        if !self.term.holds() {
            return Err(MastershipError::Over(self.shard));
        }
        let answer = answer.await?;
        if !self.term.holds() {
            return Err(MastershipError::Over(self.shard));
        }
        Ok(answer)
    }
}

// === impl Shards ===

impl Shards {
    /// Returns the mastership of `shard`, if this node has it.
    pub fn get(&self, shard: ShardId) -> Option<Mastership> {
        let mastership = self.masterships.borrow().get(&shard).cloned();
        mastership.filter(Mastership::holds)
    }

    /// All masterships of this node, in order of their shards.
    pub fn all(&self) -> Vec<Mastership> {
        let all = self.masterships.borrow().clone();
        all.values()
            .filter(|mastership| mastership.holds())
            .cloned()
            .collect()
    }

    /// The highest term of this node; zero if it is master of no shard.
    pub fn epoch(&self) -> Epoch {
        let epochs = self.all().into_iter().map(|mastership| mastership.epoch());
        epochs.max().unwrap_or_default()
    }

    /// Resolves when this node gains or loses a mastership.
    pub async fn changed(&mut self) {
        if self.masterships.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Resolves once this node is master of `count` shards, or never will be.
    pub async fn are(&mut self, count: usize) {
        // An error means that the supervisor has ended.
        let _ = self.masterships.wait_for(|all| all.len() >= count).await;
    }

    /// Returns the first `limit` scopes whose ids come after `after`, for each shard of this node.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn scopes(&self, after: &str, limit: usize) -> Result<Vec<ScopePage>, DriverError> {
        let mut pages = Vec::new();
        for mastership in self.all() {
            pages.push(mastership.driver.scopes(after.to_owned(), limit).await?);
        }
        Ok(pages)
    }

    /// Returns one scope with at most `clients` of its clients, for each shard of this node that
    /// has it: two while the scope moves from one shard to the other.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn scope(
        &self,
        scope: &str,
        clients: usize,
    ) -> Result<Vec<ScopeDetail>, DriverError> {
        let mut details = Vec::new();
        for mastership in self.all() {
            details.extend(mastership.driver.scope(scope.to_owned(), clients).await?);
        }
        Ok(details)
    }

    /// Gives `client` nothing for `time`, in all shards of this node and in those that it gains
    /// meanwhile.
    ///
    /// # Errors
    /// If a driver cannot be reached; within, if too many clients are drained already.
    pub async fn drain(
        &self,
        client: &ClientId,
        time: Duration,
    ) -> Result<Result<(), DrainError>, DriverError> {
        if let Err(error) = self.drains.set(client, time) {
            return Ok(Err(error));
        }
        for mastership in self.all() {
            if let Err(error) = mastership.driver.drain(client.clone(), time).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Returns the result of `look` at each lease table of this node, in order; see
    /// [`DriverHandle::view`].
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn view<T: Send + 'static>(
        &self,
        look: impl Fn(&LeaseServer, Instant) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, DriverError> {
        let mut seen = Vec::new();
        for mastership in self.all() {
            seen.push(mastership.driver.view(look.clone()).await?);
        }
        Ok(seen)
    }

    /// Shows `visitor` all lease tables of this node, and returns it.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn visit<W: ResourceVisitor>(&self, mut visitor: W) -> Result<W, DriverError> {
        for mastership in self.all() {
            visitor.enter(mastership.shard);
            visitor = visit_resources(&mastership.driver, visitor).await?;
        }
        Ok(visitor)
    }
}

// === impl DriverSettings ===

impl DriverSettings {
    /// Creates a driver of `origin` and its handle; it continues from `snapshot` if there is one.
    fn driver(&self, origin: Origin, snapshot: Option<Bytes>) -> (Driver, DriverHandle) {
        let (catalog, metrics) = (self.catalog.clone(), self.metrics.clone());
        let new = Driver::new(
            self.bounds,
            catalog,
            origin,
            self.start,
            self.clock,
            metrics,
        );
        let (driver, handle) = new;
        let mut driver = driver.counted_in(self.leases.clone());
        if let Some(shards) = self.shards {
            driver = driver.among(shards);
        }
        if let Some(snapshot) = snapshot {
            driver = driver.with_snapshot(snapshot.into());
        }
        (driver, handle)
    }
}

// === impl ShardSupervisor ===

impl ShardSupervisor {
    /// Creates a supervisor without drivers, and the view of its shards.
    pub fn new(settings: DriverSettings) -> (Self, Shards) {
        let (sender, masterships) = watch::channel(Arc::default());
        let drains = Drains::new(settings.clock);
        let supervisor = Self {
            settings,
            masterships: sender,
            drains: drains.clone(),
            drivers: JoinSet::new(),
        };
        (
            supervisor,
            Shards {
                masterships,
                drains,
            },
        )
    }

    /// Follows the election until its events end.
    pub async fn run(mut self, mut events: mpsc::Receiver<ElectionEvent>) {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                Some(_) = self.drivers.join_next() => {}
            }
        }
        // Calls in flight may still be answered.
        drop(self.masterships);
        while self.drivers.join_next().await.is_some() {}
    }

    fn handle(&mut self, event: ElectionEvent) {
        match event {
            ElectionEvent::Elected {
                shard,
                term,
                snapshot,
            } => self.take(shard, term, snapshot),
            ElectionEvent::StepDown { shard, reply } => {
                let left = self.leave(shard);
                // Without a next master, calls in flight may still be answered.
                if let Some(mastership) = left.filter(|_| !reply.is_closed()) {
                    self.drivers.spawn(mastership.hand_over(reply));
                }
            }
            ElectionEvent::Lost { shard } => {
                if let Some(mastership) = self.leave(shard) {
                    mastership.term.end();
                }
            }
        }
    }

    fn take(&mut self, shard: ShardId, term: Term, snapshot: Option<Bytes>) {
        let origin = Origin {
            shard: self.settings.shards.map(|_| shard),
            epoch: term.epoch(),
        };
        let (driver, handle) = self.settings.driver(origin, snapshot);
        let mut driver = driver.draining(self.drains.all());
        if let Some(parent) = &self.settings.parent {
            let (below, link) = match parent.link(driver, &handle, origin.shard) {
                Ok(linked) => linked,
                Err(error) => {
                    // No master is better than one that lends more than it has borrowed.
                    tracing::error!(%error, "parent: cannot borrow");
                    return;
                }
            };
            driver = below;
            self.drivers.spawn(link.run());
        }
        self.drivers.spawn(driver.run());
        let mastership = Mastership {
            shard,
            term,
            driver: handle,
        };
        let mut before = None;
        self.masterships.send_modify(|all| {
            before = Arc::make_mut(all).insert(shard, mastership);
        });
        // Clones of the old mastership must not answer in a term that another has followed.
        if let Some(before) = before {
            before.term.end();
        }
    }

    fn leave(&self, shard: ShardId) -> Option<Mastership> {
        let mut left = None;
        self.masterships.send_modify(|all| {
            left = Arc::make_mut(all).remove(&shard);
        });
        left
    }
}

#[cfg(test)]
mod tests;
