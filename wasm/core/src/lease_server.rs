//! One coordinator's books: every resource that its clients have asked for.
//!
//! The node does not know the configuration: whoever calls looks the limit of a resource up and
//! passes it with each refresh, so a changed limit takes effect at the next refresh of each client
//! and there is nothing to invalidate.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;
use core::time::Duration;

mod binding;
mod drain;
mod parent;
mod snapshot;
mod terms;

pub use self::binding::{BindingLimit, LimitOwner};
pub use self::drain::DrainError;
use self::drain::Drains;
pub use self::snapshot::{PoolSnapshot, ResourceSnapshot, Snapshot, SnapshotError};
pub use self::terms::{PoolTerms, Terms};
use crate::lease::{
    Answer, ClientId, ClientRun, Demand, Epoch, LeaseRequest, LeaseTerms, NO_FINGERPRINT,
    ResourceId,
};
use crate::limit::Limit;
use crate::pool::Pool;
use crate::resource::{RefreshError, RepeatedLease, Resource};
use crate::tree::ParentLeases;
use crate::units::{Capacity, Instant};

/// The state of a coordinator that is master.
#[derive(Debug)]
pub struct LeaseServer {
    epoch: Epoch,
    bounds: Bounds,
    start: Start,
    started_at: Instant,
    resources: BTreeMap<ResourceId, ResourceSlot>,
    /// For each resource with clients one instant, not after its next expiry.
    timeouts: BTreeSet<(Instant, ResourceId)>,
    /// Pools with members; so there are never more than resources.
    pools: BTreeMap<ResourceId, Pool>,
    drains: Drains,
    /// What it borrows, if it has a parent.
    parent_leases: Option<ParentLeases>,
    /// When it took books over, if it did.
    taken_over_at: Option<Instant>,
    /// Equals the sum over resources of their clients.
    leases: usize,
    /// Leases that other shards of the process count against [`Bounds::max_leases`].
    leases_elsewhere: usize,
}

/// The most clients that are drained at a time: each refresh looks whether its client is.
pub const DRAINS_MAX: usize = 1000;

/// How much a node keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Resources.
    pub max_resources: usize,
    /// Clients of one resource.
    pub max_clients_per_resource: usize,
    /// Leases: the clients of all resources together.
    pub max_leases: usize,
}

/// What a node that starts knows of the leases that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: it learns what clients have before it lends.
    Learning,
    /// That there are none: the fleet is new.
    Fresh,
}

#[derive(Debug)]
struct ResourceSlot {
    resource: Resource,
    /// The pool that it is a member of.
    pool: Option<ResourceId>,
    queued_at: Instant,
}

// === impl LeaseServer ===

impl LeaseServer {
    /// A master of term `epoch` without any books.
    pub fn new(now: Instant, epoch: Epoch, bounds: Bounds, start: Start) -> Self {
        Self {
            epoch,
            bounds,
            start,
            started_at: now,
            resources: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            pools: BTreeMap::new(),
            drains: Drains::default(),
            parent_leases: None,
            taken_over_at: None,
            leases: 0,
            leases_elsewhere: 0,
        }
    }

    /// The term of this master; it goes into every answer.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How much it keeps at most.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// How many leases it keeps.
    pub fn lease_count(&self) -> usize {
        self.leases
    }

    /// Says how many leases others keep, such as the nodes of the process's other shards: they all
    /// share [`Bounds::max_leases`].
    pub fn set_leases_elsewhere(&mut self, leases: usize) {
        self.leases_elsewhere = leases;
    }

    /// Answers what `client` asks of `resource`, for which `terms` hold now.
    ///
    /// Under a limit of [`Capacity::UNLIMITED`] the lease is unlimited, and the books go on: they
    /// show what is wanted, and if a limit comes back nobody gets anything of it before the unlimited leases
    /// have been acknowledged or expired. [`LeaseServer::handle_unlimited`] answers without books.
    ///
    /// # Errors
    /// If a later request of the client's run has been answered, or one of a later term, or a bound is
    /// reached.
    pub fn handle_refresh(
        &mut self,
        now: Instant,
        client: &ClientRun,
        resource: &ResourceId,
        request: &LeaseRequest,
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        if self.drains.until(now, &client.id).is_none() {
            return self.refresh(now, client, resource, request, terms);
        }
        let nothing = LeaseRequest {
            demand: Demand::of(Capacity::ZERO),
            ..request.clone()
        };
        let answer = self.refresh(now, client, resource, &nothing, terms)?;
        // Not even in learning mode does it fall back to what passes without a lease.
        let none = LeaseTerms {
            capacity: Capacity::ZERO,
            burst: terms.limit.burst_for(Capacity::ZERO),
            duration: terms.limit.lease,
            fingerprint: NO_FINGERPRINT,
        };
        Ok(Answer {
            lease: Some(answer.lease.unwrap_or(none)),
            ..answer
        })
    }

    /// Answers a client whose protocol has no sequences and does not tell its runs apart, and which
    /// says of its lease `echo`.
    ///
    /// # Errors
    /// If a bound is reached.
    pub fn handle_repeated_lease(
        &mut self,
        now: Instant,
        client: &ClientId,
        resource: &ResourceId,
        (repeated, demand): (Option<RepeatedLease>, Demand),
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        let client = ClientRun::only(client.clone());
        let request = match self.resource(resource) {
            Some(books) => books.ask_of(now, &client, repeated, demand),
            None => RepeatedLease::ask(repeated, 0, demand),
        };
        self.handle_refresh(now, &client, resource, &request, terms)
    }

    /// Answers what `client` asks of `resource` if that has no limit at all: `limit` says for how
    /// long the lease lasts. Nothing is kept, and what the client had under an earlier limit is forgotten.
    /// If a limit comes back, unlimited leases are in use until they expire, as after a lowered
    /// capacity.
    pub fn handle_unlimited(
        &mut self,
        client: &ClientRun,
        resource: &ResourceId,
        limit: &Limit,
    ) -> Answer {
        self.handle_release(client, resource, u64::MAX);
        Answer {
            lease: Some(LeaseTerms {
                capacity: Capacity::UNLIMITED,
                burst: limit.burst,
                duration: limit.lease,
                fingerprint: NO_FINGERPRINT,
            }),
            refresh_interval: limit.refresh,
            safe: None,
            capacity: Capacity::UNLIMITED,
        }
    }

    fn refresh(
        &mut self,
        now: Instant,
        client: &ClientRun,
        id: &ResourceId,
        request: &LeaseRequest,
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        let answer = self.refresh_resource(now, client, id, request, terms);
        self.note(now, id, request);
        answer
    }

    fn refresh_resource(
        &mut self,
        now: Instant,
        client: &ClientRun,
        id: &ResourceId,
        request: &LeaseRequest,
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        let learning_until = self.learning_until(terms);
        let free = self.free_leases();
        let of_resource = self.bounds.max_clients_per_resource;
        if let Some(slot) = self.resources.get_mut(id) {
            slot.set_lendable(now, id, terms.limit, self.parent_leases.as_ref());
            slot.resource.collect_until(learning_until);
            join_pool(&mut self.pools, id, slot, terms, learning_until);
            let pool = pool_of(&mut self.pools, slot);
            let known = slot.resource.client_count();
            let clients_max = of_resource.min(known.saturating_add(free));
            let answer =
                slot.resource
                    .handle_refresh(now, client, request, terms.limit, pool, clients_max);
            recount(&mut self.leases, known, slot);
            requeue(&mut self.timeouts, id, slot);
            return self.bounds.named(answer);
        }
        let max = self.bounds.max_resources;
        if self.resources.len() >= max {
            return Err(RefreshError::TooManyResources { max });
        }
        // Every lease of a master that has learned is in its books until it is over. So this one was
        // lent by another, from which the resource has moved here; there may be more of them.
        let learned_at = learning_until;
        let learning_until = match claims(request) {
            true => learning_until.max(now.saturating_add(time_to_learn(terms))),
            false => learning_until,
        };
        let mut resource = Resource::new(id.unit, terms.limit.clone(), learning_until);
        resource.collect_until(learned_at);
        let mut slot = ResourceSlot {
            resource,
            pool: None,
            queued_at: now,
        };
        slot.set_lendable(now, id, terms.limit, self.parent_leases.as_ref());
        join_pool(&mut self.pools, id, &mut slot, terms, learning_until);
        let pool = pool_of(&mut self.pools, &slot);
        let clients_max = of_resource.min(free);
        let answer =
            slot.resource
                .handle_refresh(now, client, request, terms.limit, pool, clients_max);
        recount(&mut self.leases, 0, &slot);
        match slot.resource.poll_timeout() {
            Some(queued_at) => {
                slot.queued_at = queued_at;
                self.timeouts.insert((queued_at, id.clone()));
                self.resources.insert(id.clone(), slot);
            }
            None => leave_pool(&mut self.pools, &mut slot),
        }
        self.bounds.named(answer)
    }

    /// For how many more leases there is room.
    fn free_leases(&self) -> usize {
        let kept = self.leases.saturating_add(self.leases_elsewhere);
        self.bounds.max_leases.saturating_sub(kept)
    }

    /// Takes back what `client` has of `resource`; ignored if a later request came first.
    pub fn handle_release(&mut self, client: &ClientRun, resource: &ResourceId, sequence: u64) {
        if let Some(slot) = self.resources.get_mut(resource) {
            let pool = pool_of(&mut self.pools, slot);
            let known = slot.resource.client_count();
            slot.resource.handle_release(client, sequence, pool);
            recount(&mut self.leases, known, slot);
            requeue(&mut self.timeouts, resource, slot);
        }
        self.collect(resource);
    }

    /// Gives `client` nothing until `until`: its leases shrink to nothing at their next refreshes.
    /// An `until` that has passed lets it serve again.
    ///
    /// # Errors
    /// If [`DRAINS_MAX`] others are being drained.
    pub fn handle_drain(
        &mut self,
        now: Instant,
        client: &ClientId,
        until: Instant,
    ) -> Result<(), DrainError> {
        self.drains.set(now, client, until, DRAINS_MAX)
    }

    /// Takes back what has expired and forgets resources without clients.
    pub fn handle_timeout(&mut self, now: Instant) {
        while self.timeouts.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.timeouts.pop_first() else {
                return;
            };
            let Some(slot) = self.resources.get_mut(&id) else {
                continue;
            };
            let pool = pool_of(&mut self.pools, slot);
            let known = slot.resource.client_count();
            slot.resource.handle_timeout(now, pool);
            recount(&mut self.leases, known, slot);
            if let Some(next) = slot.resource.poll_timeout() {
                slot.queued_at = next;
                self.timeouts.insert((next, id));
            } else if let Some(mut slot) = self.resources.remove(&id) {
                leave_pool(&mut self.pools, &mut slot);
            }
        }
    }

    /// When [`LeaseServer::handle_timeout`] next has something to look at.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// All resources with clients, by id.
    pub fn resources(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.resources.iter().map(|(id, slot)| (id, &slot.resource))
    }

    /// The resources with clients whose ids come after `id`, by id. O(log n) to the first.
    pub fn resources_after(
        &self,
        id: &ResourceId,
    ) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let resources = self.resources.range(after);
        resources.map(|(id, slot)| (id, &slot.resource))
    }

    /// How many resources have clients.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }

    /// The books of one resource, if it has clients.
    pub fn resource(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id).map(|slot| &slot.resource)
    }

    /// Pools with members that have clients, by id.
    pub fn pools(&self) -> impl Iterator<Item = (&ResourceId, &Pool)> {
        self.pools.iter()
    }

    /// The pool called `id`, if it has members that have clients.
    pub fn pool(&self, id: &ResourceId) -> Option<&Pool> {
        self.pools.get(id)
    }

    /// The pool that the resource `id` is a member of in the books.
    pub fn pool_of(&self, id: &ResourceId) -> Option<&ResourceId> {
        self.resources.get(id)?.pool.as_ref()
    }

    /// Until when `client` is drained, if it is.
    pub fn drained_until(&self, now: Instant, client: &ClientId) -> Option<Instant> {
        self.drains.until(now, client)
    }

    /// The clients that are drained, each until when.
    pub fn drained(&self, now: Instant) -> impl Iterator<Item = (&ClientId, Instant)> {
        self.drains.iter(now)
    }

    /// A pool has learned when no lease that any of its members lent before can be in use.
    fn learning_until(&self, terms: &Terms<'_>) -> Instant {
        match self.start {
            Start::Learning => self.started_at.saturating_add(time_to_learn(terms)),
            Start::Fresh => self.started_at,
        }
    }

    fn collect(&mut self, id: &ResourceId) {
        let empty = |slot: &ResourceSlot| slot.resource.client_count() == 0;
        if self.resources.get(id).is_some_and(empty)
            && let Some(mut slot) = self.resources.remove(id)
        {
            leave_pool(&mut self.pools, &mut slot);
            self.timeouts.remove(&(slot.queued_at, id.clone()));
        }
    }
}

// === impl Bounds ===

impl Bounds {
    /// The same `answer`, which names the bound that a new client has met.
    fn named(&self, answer: Result<Answer, RefreshError>) -> Result<Answer, RefreshError> {
        match answer {
            Err(RefreshError::TooManyClients { max }) if max < self.max_clients_per_resource => {
                Err(RefreshError::TooManyLeases {
                    max: self.max_leases,
                })
            }
            answer => answer,
        }
    }
}

// === free functions ===

/// Takes over into `leases` how many clients the resource of `slot` has, which had `known`.
fn recount(leases: &mut usize, known: usize, slot: &ResourceSlot) {
    let others = leases.saturating_sub(known);
    *leases = others.saturating_add(slot.resource.client_count());
}

/// How long it takes until no lease is in use that was lent before by somebody else.
fn time_to_learn(terms: &Terms<'_>) -> Duration {
    let pool = terms.bounding_pool().map(|pool| pool.limit.learning);
    terms.limit.learning.max(pool.unwrap_or_default())
}

/// Whether `ask` speaks of a lease that was lent of a limit and is not over. An unlimited one says
/// nothing of what others have: there is no sum that it was a part of.
fn claims(request: &LeaseRequest) -> bool {
    let over = request.remaining.is_some_and(|left| left.is_zero());
    request.has > Capacity::ZERO && request.has < Capacity::MAX && !over
}

/// Makes the resource of `slot` a member of the pool that `terms` name, and of no other.
fn join_pool(
    pools: &mut BTreeMap<ResourceId, Pool>,
    id: &ResourceId,
    slot: &mut ResourceSlot,
    terms: &Terms<'_>,
    learning_until: Instant,
) {
    let named = terms.bounding_pool();
    if slot.pool.as_ref() != named.map(|pool| pool.pool) {
        leave_pool(pools, slot);
        slot.resource.learn_until(learning_until);
        if let Some(named) = named {
            pools
                .entry(named.pool.clone())
                .or_insert_with(|| Pool::new(named.pool, named.limit));
            slot.pool = Some(named.pool.clone());
        }
    }
    if let (Some(named), Some(pool)) = (named, pool_of(pools, slot)) {
        pool.set_limit(named.limit);
        slot.resource.join(id, pool, named.weight);
    }
}

/// Takes the resource of `slot` out of its pool, and forgets a pool that is empty then.
fn leave_pool(pools: &mut BTreeMap<ResourceId, Pool>, slot: &mut ResourceSlot) {
    let Some(id) = slot.pool.take() else {
        return;
    };
    if let Some(pool) = pools.get_mut(&id) {
        slot.resource.leave(pool);
        if pool.member_count() == 0 {
            pools.remove(&id);
        }
    }
}

fn pool_of<'a>(
    pools: &'a mut BTreeMap<ResourceId, Pool>,
    slot: &ResourceSlot,
) -> Option<&'a mut Pool> {
    pools.get_mut(slot.pool.as_ref()?)
}

/// Sees to it that the next expiry in `slot` is looked at in time; one that is too early stays.
fn requeue(
    timeouts: &mut BTreeSet<(Instant, ResourceId)>,
    id: &ResourceId,
    slot: &mut ResourceSlot,
) {
    let Some(next) = slot
        .resource
        .poll_timeout()
        .filter(|next| *next < slot.queued_at)
    else {
        return;
    };
    if let Some((_, id)) = timeouts.take(&(slot.queued_at, id.clone())) {
        timeouts.insert((next, id));
        slot.queued_at = next;
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, not(all(target_family = "wasm", target_os = "unknown"))))]
mod laws;
