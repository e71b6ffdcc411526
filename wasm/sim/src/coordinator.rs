//! Simulated coordinator: a real lease server for each shard, and the terms of its masters.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{ClientId, ClientRun, Epoch, Origin, ResourceId};
use tollgate_core::lease_server::{LeaseServer, Snapshot, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::message::{Refresh, Refreshed, Release, ScopeAnswer, ScopeError, ScopeRefresh};
use tollgate_core::units::{Capacity, Instant, WallClock};

mod parent;
mod shard;
mod watches;

use self::shard::Reach;
pub(crate) use self::shard::{Receiver, Shard};
pub(crate) use self::watches::{Watcher, WorkerCall};
use crate::limits::{LimitTable, ScopeLimits};
use crate::process::Clock;
use crate::random::Random;
use crate::scenario::{CoordinatorSpec, FirstTerm};
use crate::wall::{START, wall_time};

/// The google.rpc.Code of a request that came after a later one.
pub(crate) const ABORTED: u32 = 10;
/// The google.rpc.Code of a shard without a master.
const UNAVAILABLE: u32 = 14;
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
    /// Number of its own limits, if it has any.
    limits: Option<usize>,
    /// Time after which a call to the parent counts as lost.
    pub(crate) call_timeout: Duration,
    /// Limit of a scope without one.
    unlimited: Limit,
    /// Scopes of which it lends safe capacity while its parent is away, each until the last lease of
    /// that may have ended.
    safe: BTreeMap<Arc<str>, Instant>,
    /// Streams on which its clients hear what to ask for.
    watches: BTreeMap<ClientId, Watcher>,
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
        let shard = |id| Shard::new((!alone).then_some(id));
        let id = ClientId::new(&format!("{}/0", spec.name));
        let mut coordinator = Self {
            id: id.unwrap_or_else(|_| ClientId::new("coordinator/0").expect("a valid id")),
            parent: parent.map(|(index, _)| index),
            level: parent.map_or(0, |(_, above)| above.level + 1),
            shards: ShardId::all(count).map(shard).collect(),
            clock: Clock::new(now, 0, random),
            stopped_until: now,
            limits: spec.limits,
            call_timeout: spec.call_timeout.0,
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
    /// if they have `followed` the election. Returns the shards that had one.
    pub(crate) fn crash(&mut self, now: Instant, followed: bool) -> Vec<usize> {
        let mut ended = Vec::new();
        for (index, shard) in self.shards.iter_mut().enumerate() {
            if shard.server.take().is_some() {
                shard.vacant_since = followed.then_some(now);
                ended.push(index);
            }
        }
        ended
    }

    /// Returns the time on its clock.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        self.clock.at(now)
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
        let borrows = self.parent.map(|_| self.call_timeout);
        self.shards[shard].elect(local, start, left, borrows);
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
        self.shards.iter().all(|shard| shard.node().is_none())
    }

    /// Returns whether a past master of a shard goes on.
    pub(crate) fn has_past(&self) -> bool {
        self.shards.iter().any(|shard| shard.past.is_some())
    }

    /// Returns the server of the master of a scope's shard; the past one's until another is elected.
    pub(crate) fn master(&self, scope: &Arc<str>, limits: &LimitTable) -> Option<&LeaseServer> {
        self.shard(scope, limits).node()
    }

    /// Returns the term of the last master of a scope's shard.
    pub(crate) fn epoch(&self, scope: &Arc<str>, limits: &LimitTable) -> Epoch {
        self.shard(scope, limits).epoch
    }

    fn shard(&self, scope: &Arc<str>, limits: &LimitTable) -> &Shard {
        let home = &limits.of_source(self.limits, scope).home;
        &self.shards[self.shard_of(home)]
    }

    /// Returns whose socket a request waits in and until when, if its receiver stands still.
    pub(crate) fn waits(
        &self,
        now: Instant,
        refresh: &Refresh,
        receiver: Receiver,
        limits: &LimitTable,
    ) -> Option<(Epoch, Instant)> {
        let scope = &refresh.scopes.first()?.scope;
        self.shard(scope, limits).waits(now, receiver)
    }

    /// Answers a refresh.
    pub(crate) fn refresh(
        &mut self,
        now: Instant,
        (refresh, receiver): (&Refresh, Receiver),
        limits: &LimitTable,
    ) -> Refreshed {
        let scopes = refresh.scopes.iter().map(|asked| {
            let of_scope = limits.of_source(self.limits, &asked.scope);
            Ok(self.refresh_scope(now, (&refresh.client, receiver), asked, &of_scope))
        });
        Refreshed {
            scopes: scopes.collect(),
        }
    }

    fn refresh_scope(
        &mut self,
        now: Instant,
        (client, receiver): (&ClientRun, Receiver),
        asked: &ScopeRefresh,
        limits: &ScopeLimits,
    ) -> ScopeAnswer {
        let local = self.clock.at(now);
        let borrows = self.parent.is_some();
        let index = self.shard_of(&limits.home);
        let shard = &mut self.shards[index];
        let (id, epoch) = (shard.id, shard.epoch);
        let origin = |epoch| Origin { shard: id, epoch };
        let unlimited = &self.unlimited;
        let reach = shard.reach(now, receiver);
        let origin = origin(match &reach {
            Reach::Master(server) => server.epoch(),
            _ => epoch,
        });
        let outcome = match reach {
            Reach::Nobody => Err(unavailable("the shard has no master")),
            Reach::NotMaster => Err(unavailable("not master")),
            Reach::Master(server) => {
                server.set_wall_clock(WallClock::new(
                    local,
                    wall_time(now.saturating_since(START)),
                ));
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
        let is_stored = shard.store_buckets(local, receiver);
        let outcome = if is_stored {
            outcome
        } else {
            Err(unavailable("the buckets cannot be stored"))
        };
        ScopeAnswer {
            scope: asked.scope.clone(),
            canonical: limits.canonical.clone(),
            limited: limits.limited.clone(),
            usual: None,
            origin,
            outcome,
        }
    }

    /// Takes leases back.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        (release, receiver): (&Release, Receiver),
        limits: &LimitTable,
    ) {
        for (resource, sequence) in &release.resources {
            let home = &limits.of_source(self.limits, &resource.scope).home;
            let index = self.shard_of(home);
            if let Reach::Master(server) = self.shards[index].reach(now, receiver) {
                server.handle_release(&release.client, resource, *sequence);
            }
        }
    }

    fn shard_of(&self, home: &str) -> usize {
        match NonZeroU16::new(self.shards.len() as u16) {
            // Laws ask for it after each event.
            None | Some(NonZeroU16::MIN) => 0,
            Some(count) => shard_of(home, count).index(),
        }
    }

    /// Returns the time at which a shard has something to do, unless that was planned before.
    pub(crate) fn plan(&mut self, now: Instant, shard: usize) -> Option<Instant> {
        let (clock, stopped) = (self.clock, self.stopped_until);
        let shard = &mut self.shards[shard];
        let next = shard.poll()?;
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

// === free functions ===

fn unavailable(why: &str) -> ScopeError {
    ScopeError {
        code: UNAVAILABLE,
        message: why.to_owned(),
    }
}
