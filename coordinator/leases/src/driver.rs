//! The one task that owns a lease table.
//!
//! A caller sends a command through a [`DriverHandle`] and awaits the answer. The queue is bounded:
//! when it stays full the caller gets an error. A command that only asks is skipped once its caller has gone.

use std::num::NonZeroU16;
use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_config::catalog::{ResolvedScope, Resolver};
use tollgate_core::cluster::shard_of;
use tollgate_core::fleet::QuotaThreshold;
use tollgate_core::lease::{ClientId, ClientRun, Origin, ResourceId, Unit};
use tollgate_core::lease_server::{LeaseServer, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Instant, WallClock, WallTime};
use tollgate_net::clock::{Clock, unix_time};
use tollgate_proto::request::{Refresh, Release, ScopeRefresh};
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use crate::metrics::{LeaseMetrics, QuotaPart};
use crate::nudges::Nudges;
use crate::rules::RuleNames;

mod command;
mod derived;
mod error;
mod hand_over;
mod handle;
mod journal;
mod parent;
mod parent_batch;
mod quotas;
mod settings;
mod tally;

use self::command::Command;
pub use self::error::{DriverError, LeaseError};
pub(crate) use self::handle::DriverHandle;
use self::journal::Journal;
use self::parent::ParentState;
pub(crate) use self::parent::WeakDriverHandle;
pub(crate) use self::parent_batch::ParentReply;
pub use self::quotas::{QuotaFault, ScopeQuotas, ScopeQuotasPage};
pub use self::settings::DriverSettings;
pub use self::tally::LeaseCount;
use self::tally::Tally;

/// Owns the lease table until the last [`DriverHandle`] is gone, or until it is handed over.
#[derive(Debug)]
pub struct Driver {
    server: LeaseServer,
    origin: Origin,
    /// Number of shards in the cluster.
    shards: NonZeroU16,
    resolver: Resolver,
    /// Limit of a scope without one; says how long its lease lasts.
    unlimited: Limit,
    clock: Clock,
    metrics: LeaseMetrics,
    nudges: Nudges,
    rules: RuleNames,
    /// `Some` below a parent.
    parent: Option<ParentState>,
    commands: mpsc::Receiver<Command>,
    /// Snapshot of the previous master, until it is read.
    inherited: Option<Vec<u8>>,
    /// Clients that are drained from the start, each with the end of its drain.
    drains: Vec<(ClientId, Instant)>,
    /// This driver's share of the bound on leases.
    tally: Tally,
    /// Changes of the fleet's buckets that are to be stored.
    journal: Journal,
}

// === impl Driver ===

impl Driver {
    /// Creates a driver of `origin` with an empty lease table, and a handle to it. One of several
    /// shards answers for its own scopes alone: so a pool is in one shard, even while other nodes
    /// have another configuration.
    pub fn new(settings: &DriverSettings, origin: Origin) -> (Self, DriverHandle) {
        let (handle, commands) = DriverHandle::new(origin);
        let (bounds, clock) = (settings.bounds, settings.clock);
        settings.rules.begin(clock.now());
        let driver = Self {
            server: LeaseServer::new(clock.now(), origin.epoch, bounds, settings.start),
            origin,
            shards: settings.shards.unwrap_or(NonZeroU16::MIN),
            resolver: Resolver::new(settings.catalog.clone(), bounds.max_resources),
            unlimited: Limit::new(Capacity::UNLIMITED),
            clock,
            metrics: settings.metrics.clone(),
            nudges: settings.nudges.clone(),
            rules: settings.rules.clone(),
            parent: None,
            commands,
            inherited: None,
            drains: Vec::new(),
            tally: Tally::new(settings.leases.clone()),
            journal: Journal::new(settings.buckets.clone(), origin, settings.metrics.clone()),
        };
        (driver, handle)
    }

    /// Drains `drains`, each until its end, regardless of the lease table.
    #[must_use]
    pub fn draining(self, drains: Vec<(ClientId, Instant)>) -> Self {
        Self { drains, ..self }
    }

    /// Carries out commands and expiries until the last handle is gone or the lease table is handed over.
    pub async fn run(mut self) {
        self.inherit().await;
        self.restore_buckets().await;
        self.count_leases();
        self.drain_all();
        self.borrow();
        let mut timer = self.clock.timer();
        loop {
            let timeout = self.poll_timeout();
            tokio::select! {
                biased;
                // First: a busy queue must not delay answers that wait for the store.
                resources = self.journal.written() => self.not_stored(&resources),
                command = self.commands.recv() => match command {
                    Some(Command::HandOver(reply)) if !reply.is_closed() => {
                        let frozen = (self.server, self.clock.now());
                        // If the caller has gone just now, the lease table is lost and the next
                        // master learns.
                        let _ = reply.send(Box::new(frozen));
                        return;
                    }
                    Some(command) => {
                        self.count_leases();
                        tracing::trace!(?command, "driver: command");
                        let now = self.clock.now();
                        self.read_wall_clock(now);
                        self.handle(now, command);
                    }
                    None => return,
                },
                () = timer.until(timeout) => {}
            }
            let now = self.clock.now();
            self.read_wall_clock(now);
            // Also after a command: a busy queue must not delay expiries.
            if self.server.poll_timeout().is_some_and(|at| at <= now) {
                self.server.handle_timeout(now);
            }
            self.store_buckets(now);
            self.tell_of_quotas();
            self.count_leases();
            self.tell_parent(now);
            self.send_nudges();
        }
    }

    /// Quotas go by the wall clock.
    fn read_wall_clock(&mut self, now: Instant) {
        let ms = u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX);
        let clock = WallClock::new(now, WallTime::from_millis(ms));
        self.server.set_wall_clock(clock);
    }

    /// Logs and counts the quotas of which much is used.
    fn tell_of_quotas(&mut self) {
        for (resource, threshold) in self.server.take_quota_thresholds() {
            let QuotaThreshold { name, percent } = threshold;
            let (scope, unit) = (&*resource.scope, resource.unit.name());
            if percent < 100 {
                tracing::info!(scope, unit, quota = name, "quota: 80 percent are used");
                self.metrics.count_quota(QuotaPart::Most);
            } else {
                tracing::warn!(scope, unit, quota = name, "quota: all of it is used");
                self.metrics.count_quota(QuotaPart::All);
            }
        }
    }

    fn count_leases(&mut self) {
        let elsewhere = self.tally.count(self.server.lease_count());
        self.server.set_leases_elsewhere(elsewhere);
    }

    /// Nudges the clients whose share has changed.
    fn send_nudges(&mut self) {
        while let Some(nudge) = self.server.poll_nudge() {
            self.nudges.nudge(&nudge.client, &nudge.resource);
        }
    }

    fn drain_all(&mut self) {
        let now = self.clock.now();
        for (client, until) in std::mem::take(&mut self.drains) {
            // The bound cannot be exceeded: `NodeDrains` has the same, and the previous master's are
            // among them.
            let _ = self.server.handle_drain(now, &client, until);
        }
    }

    /// The next time at which something is due without a command.
    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [
            self.server.poll_timeout(),
            self.poll_parent(),
            self.journal.poll_timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }

    fn refresh(&mut self, now: Instant, refresh: &Refresh) -> Vec<ScopeAnswer> {
        self.follow_catalog();
        let scopes = refresh.scopes.iter();
        scopes
            .map(|asks| self.refresh_scope(now, &refresh.client, asks))
            .collect()
    }

    /// Switches to the newest catalog.
    fn follow_catalog(&mut self) {
        if self.resolver.update() {
            self.server.forget_vacancy();
        }
    }

    /// Whether `scope` belongs to this shard.
    fn is_home(&mut self, scope: &Arc<str>) -> bool {
        self.origin.shard.is_none()
            || check_home(self.origin, self.shards, self.resolver.resolve(scope)).is_ok()
    }

    fn refresh_scope(
        &mut self,
        now: Instant,
        client: &ClientRun,
        request: &ScopeRefresh,
    ) -> ScopeAnswer {
        self.rules.add(now, &request.scope);
        let resolved = self.resolver.resolve(&request.scope);
        let home = check_home(self.origin, self.shards, resolved);
        let (server, parent) = (&mut self.server, self.parent.as_ref());
        let answers = request.asks.iter().map(|(unit, ask)| {
            home?;
            let (scope, unit) = (resolved.scope.clone(), *unit);
            let resource = ResourceId { scope, unit };
            let answer = match terms(resolved, unit, parent, &self.unlimited) {
                Some(terms) => server.handle_refresh(now, client, &resource, ask, &terms)?,
                None => server.handle_unlimited(client, &resource, &self.unlimited),
            };
            Ok(UnitAnswer {
                unit,
                sequence: ask.sequence,
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
            // A parent may limit what has no limit here.
            usual: parent.map_or(resolved.usual, |_| Some(false)),
            origin: self.origin,
            outcome: outcome.map_err(|error| {
                self.metrics.count_fault(error.fault());
                error.into()
            }),
        }
    }

    fn release(&mut self, release: &Release) {
        for (resource, sequence) in &release.resources {
            self.server
                .handle_release(&release.client, resource, *sequence);
        }
    }
}

// === free functions ===

/// Refuses a scope that belongs to another shard than the master of `origin`.
fn check_home(
    origin: Origin,
    shards: NonZeroU16,
    resolved: &ResolvedScope,
) -> Result<(), LeaseError> {
    let Some(ours) = origin.shard else {
        return Ok(());
    };
    match shard_of(resolved.home(), shards) {
        shard if shard == ours => Ok(()),
        shard => Err(LeaseError::Elsewhere { shard, ours }),
    }
}

/// The terms of a lease of `unit`; `None` if nothing limits it. Below a parent everything is leased:
/// a scope without a limit here may have one there.
fn terms<'a>(
    resolved: &'a ResolvedScope,
    unit: Unit,
    parent: Option<&ParentState>,
    unlimited: &'a Limit,
) -> Option<Terms<'a>> {
    let terms = resolved.terms(unit);
    terms.or_else(|| parent.map(|_| Terms::of(unlimited)))
}

#[cfg(test)]
mod tests;
