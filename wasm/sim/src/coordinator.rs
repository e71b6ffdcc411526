//! Simulated coordinator: a real lease server for each shard, and the terms of its masters.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{ClientId, ClientRun, Epoch, Origin, ResourceId};
use tollgate_core::lease_server::{Bounds, LeaseServer, Snapshot, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeAnswer, ScopeError, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant};

mod parent;
mod watches;

pub(crate) use self::watches::Watcher;
use crate::limits::{LimitTable, ScopeLimits};
use crate::process::Clock;
use crate::random::Random;
use crate::scenario::{CoordinatorSpec, FirstTerm};

/// The google.rpc.Code of a request that came after a later one.
const ABORTED: u32 = 10;
/// The google.rpc.Code of a shard without a master.
const UNAVAILABLE: u32 = 14;
/// Time after which a call to the parent counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

const BOUNDS: Bounds = Bounds {
    max_resources: 10_000_000,
    max_clients_per_resource: 10_000_000,
    max_leases: 1_000_000_000,
};

/// Coordinators of one name, with one master for each shard.
#[derive(Debug)]
pub(crate) struct Coordinator {
    id: ClientId,
    pub(crate) parent: Option<usize>,
    /// Number of coordinators above.
    pub(crate) level: u32,
    pub(crate) shards: Vec<Shard>,
    clock: Clock,
    /// Time until which it stands still.
    pub(crate) stopped_until: Instant,
    /// Limit of a scope without one.
    unlimited: Limit,
    /// Scopes of which it lends safe capacity while its parent is away, each until the last lease of
    /// that may have ended.
    safe: BTreeMap<Arc<str>, Instant>,
    /// Streams on which its clients hear what to ask for.
    watches: BTreeMap<ClientId, Watcher>,
}

/// One shard and its present master.
#[derive(Debug)]
pub(crate) struct Shard {
    id: Option<ShardId>,
    pub(crate) epoch: Epoch,
    pub(crate) server: Option<LeaseServer>,
    /// Time since which it has had no master, if its nodes have followed the election since.
    pub(crate) vacant_since: Option<Instant>,
    /// Time for which work is planned next.
    pub(crate) planned: Option<Instant>,
}

// === impl Coordinator ===

impl Coordinator {
    /// Returns the coordinator of `spec`, which starts at `now` below the one at `parent`.
    pub(crate) fn new(
        now: Instant,
        spec: &CoordinatorSpec,
        parent: Option<(usize, &Self)>,
        random: &mut Random,
    ) -> Self {
        let count = NonZeroU16::new(spec.shards).unwrap_or(NonZeroU16::MIN);
        let alone = count == NonZeroU16::MIN;
        let shard = |id| Shard {
            id: (!alone).then_some(id),
            epoch: Epoch(0),
            server: None,
            vacant_since: None,
            planned: None,
        };
        let id = ClientId::new(&format!("{}/0", spec.name));
        let mut coordinator = Self {
            id: id.unwrap_or_else(|_| ClientId::new("coordinator/0").expect("a valid id")),
            parent: parent.map(|(index, _)| index),
            level: parent.map_or(0, |(_, above)| above.level + 1),
            shards: ShardId::all(count).map(shard).collect(),
            clock: Clock::new(now, 0, random),
            stopped_until: now,
            unlimited: Limit::new(Capacity::UNLIMITED),
            safe: BTreeMap::new(),
            watches: BTreeMap::new(),
        };
        let start = match spec.start {
            FirstTerm::Fresh => Start::Fresh,
            FirstTerm::Learning => Start::Learning,
        };
        for shard in 0..coordinator.shards.len() {
            coordinator.elect(now, shard, start, None);
        }
        coordinator
    }

    /// Ends the master of each shard, and all that it knows. Its nodes know since when there is none
    /// if they have `followed` the election.
    pub(crate) fn crash(&mut self, now: Instant, followed: bool) {
        for shard in &mut self.shards {
            if shard.server.take().is_some() {
                shard.vacant_since = followed.then_some(now);
            }
        }
    }

    /// Returns the knowledge with which a shard's next master starts. Nodes that have stood still
    /// since the last one ended do not know that there was none.
    pub(crate) fn start_of(&self, shard: usize) -> Start {
        let since = self.shards[shard].vacant_since;
        match since.filter(|since| self.stopped_until <= *since) {
            Some(since) => Start::Vacant {
                since: self.clock.at(since),
            },
            None => Start::Learning,
        }
    }

    /// Gives a shard a master of a new term, with the leases of the one before if it left them.
    pub(crate) fn elect(
        &mut self,
        now: Instant,
        shard: usize,
        start: Start,
        left: Option<&Snapshot>,
    ) {
        let local = self.clock.at(now);
        let borrows = self.parent.is_some();
        let shard = &mut self.shards[shard];
        shard.epoch = Epoch(shard.epoch.0 + 1);
        let taken = left.and_then(|left| {
            let taken = LeaseServer::take_over(local, shard.epoch, BOUNDS, left);
            taken.ok()
        });
        let fresh = || LeaseServer::new(local, shard.epoch, BOUNDS, start);
        let mut server = taken.unwrap_or_else(fresh);
        if borrows {
            server.borrow_from_parent(local, local.as_nanos(), CALL_TIMEOUT);
        }
        shard.server = Some(server);
        shard.vacant_since = None;
        shard.planned = None;
    }

    /// Ends the master of a shard, and returns its leases.
    pub(crate) fn hand_over(&mut self, now: Instant, shard: usize) -> Option<Snapshot> {
        let local = self.clock.at(now);
        let server = self.shards[shard].server.take()?;
        Some(server.hand_over(local))
    }

    /// Returns the time until the last of its masters has learned which leases are out.
    pub(crate) fn learning_left(&self, now: Instant) -> Duration {
        let local = self.clock.at(now);
        let resources = self.servers().flat_map(LeaseServer::resources);
        let left = resources.map(|(_, resource)| resource.learning_until().saturating_since(local));
        left.max().unwrap_or_default()
    }

    /// Returns whether no shard has a master.
    pub(crate) fn is_down(&self) -> bool {
        self.shards.iter().all(|shard| shard.server.is_none())
    }

    /// Answers a refresh.
    pub(crate) fn refresh(
        &mut self,
        now: Instant,
        refresh: &Refresh,
        limits: &mut LimitTable,
    ) -> Refreshed {
        let scopes = refresh.scopes.iter().map(|asked| {
            let of_scope = limits.of(&asked.scope);
            Ok(self.refresh_scope(now, &refresh.client, asked, &of_scope))
        });
        Refreshed {
            scopes: scopes.collect(),
        }
    }

    fn refresh_scope(
        &mut self,
        now: Instant,
        client: &ClientRun,
        asked: &ScopeRefresh,
        limits: &ScopeLimits,
    ) -> ScopeAnswer {
        let local = self.clock.at(now);
        let borrows = self.parent.is_some();
        let index = self.shard_of(&limits.home);
        let shard = &mut self.shards[index];
        let origin = Origin {
            shard: shard.id,
            epoch: shard.epoch,
        };
        let unlimited = &self.unlimited;
        let outcome = match &mut shard.server {
            None => Err(ScopeError {
                code: UNAVAILABLE,
                message: "the shard has no master".to_owned(),
            }),
            Some(server) => {
                let answers = asked.asks.iter().map(|(unit, request)| {
                    let resource = ResourceId {
                        scope: asked.scope.clone(),
                        unit: *unit,
                    };
                    let terms = limits.terms(*unit);
                    let terms = terms.or_else(|| borrows.then(|| Terms::of(unlimited)));
                    let answer = match terms {
                        Some(terms) => {
                            server.handle_refresh(local, client, &resource, request, &terms)?
                        }
                        None => server.handle_unlimited(client, &resource, unlimited),
                    };
                    Ok(tollgate_core::lease::UnitAnswer {
                        unit: *unit,
                        sequence: request.sequence,
                        answer,
                    })
                });
                let answers: Result<Vec<_>, tollgate_core::resource::RefreshError> =
                    answers.collect();
                answers.map_err(|error| ScopeError {
                    code: ABORTED,
                    message: error.to_string(),
                })
            }
        };
        ScopeAnswer {
            scope: asked.scope.clone(),
            canonical: limits.canonical.clone(),
            limited: limits.limited.clone(),
            usual: false,
            origin,
            outcome,
        }
    }

    /// Takes leases back.
    pub(crate) fn release(&mut self, release: &Release, limits: &mut LimitTable) {
        for (resource, sequence) in &release.resources {
            let index = self.shard_of(&limits.of(&resource.scope).home);
            if let Some(server) = &mut self.shards[index].server {
                server.handle_release(&release.client, resource, *sequence);
            }
        }
    }

    fn shard_of(&self, home: &str) -> usize {
        let count = NonZeroU16::new(self.shards.len() as u16).unwrap_or(NonZeroU16::MIN);
        shard_of(home, count).index()
    }

    /// Returns the time at which a shard has something to do, unless that was planned before.
    pub(crate) fn plan(&mut self, now: Instant, shard: usize) -> Option<Instant> {
        let (clock, stopped) = (self.clock, self.stopped_until);
        let shard = &mut self.shards[shard];
        let server = shard.server.as_ref()?;
        let next = [server.poll_timeout(), server.poll_parent()];
        let next = next.into_iter().flatten().min()?;
        let next = clock.world(next).max(now).max(stopped);
        if shard.planned.is_some_and(|planned| planned <= next) {
            return None;
        }
        shard.planned = Some(next);
        Some(next)
    }

    /// Returns the lease servers of all shards.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &LeaseServer> {
        self.shards.iter().filter_map(|shard| shard.server.as_ref())
    }
}
