//! Lease server: the state machine of a coordinator, with its lease table of all resources.
//!
//! The server does not know the configuration: callers pass a resource's limit with each refresh,
//! so a changed limit takes effect at the next refresh of each client and there is nothing to
//! invalidate.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

mod binding;
mod buckets;
mod drain;
mod nudges;
mod parent;
mod pools;
mod quotas;
mod refresh;
mod slot;
mod snapshot;
mod terms;

pub use self::binding::{BindingLimit, LimitOwner};
pub use self::buckets::BucketChanges;
use self::buckets::StoredBuckets;
pub use self::drain::{DRAINS_MAX, DrainError, Drains};
pub use self::nudges::Nudge;
use self::nudges::NudgeQueue;
use self::pools::Pools;
use self::slot::ResourceSlot;
pub use self::snapshot::{ResourceSnapshot, Snapshot, SnapshotError};
pub use self::terms::{PoolTerms, Terms};
use crate::deadlines::Deadlines;
use crate::fleet::QuotaThreshold;
use crate::lease::{ClientId, ClientRun, Epoch, ResourceId};
use crate::pool::Pool;
use crate::resource::Resource;
use crate::tree::ParentLeases;
use crate::units::{Instant, Tokens, WallClock};

/// Part of a time without a master that does not count as learning, as of an etcd lease that does
/// not count for its term.
const CLOCK_MARGIN_PART: u32 = 10;

/// State of a coordinator that is master.
#[derive(Debug)]
pub struct LeaseServer {
    epoch: Epoch,
    bounds: Bounds,
    start: Start,
    started_at: Instant,
    /// Time from which learning counts: its start, or earlier if there was no master before it.
    learns_from: Instant,
    /// Boxed: a third of a tree's nodes is empty.
    resources: BTreeMap<ResourceId, Box<ResourceSlot>>,
    /// For each resource with clients one instant, not after its next expiry.
    timeouts: Deadlines<ResourceId>,
    /// Pools with members; so there are never more than resources.
    pools: Pools,
    drains: Drains,
    /// Leases of the parent, if there is one.
    parent_leases: Option<ParentLeases>,
    /// Time at which it took a snapshot over, if it did.
    taken_over_at: Option<Instant>,
    /// Equals the sum over resources of their clients.
    leases: usize,
    /// Leases that other shards of the process count against [`Bounds::max_leases`].
    leases_elsewhere: usize,
    /// Clients that should ask again.
    nudges: NudgeQueue,
    /// Tokens that clients have drawn of the fleet's buckets.
    drawn: Tokens,
    /// Buckets of the fleet that a store keeps.
    buckets: StoredBuckets,
    /// The wall clock, by which quotas go.
    wall_clock: WallClock,
    /// Thresholds that quotas have reached since the last look.
    quota_thresholds: Vec<(ResourceId, QuotaThreshold)>,
}

/// Bounds on the size of a lease server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Resources.
    pub max_resources: usize,
    /// Clients of one resource.
    pub max_clients_per_resource: usize,
    /// Leases: the clients of all resources together.
    pub max_leases: usize,
    /// Buckets that a store keeps.
    pub max_durable: usize,
}

/// Knowledge of a lease server, at its start, of the leases that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: it learns the clients' leases before it lends.
    Learning,
    /// Nothing but that no other master has lent anything since then, which its node has observed by
    /// the clock that the server is told: it learns for as much less.
    Vacant {
        /// That time.
        since: Instant,
    },
    /// There are none: the fleet is new.
    Fresh,
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Counts learning from its own start again: leases may have been longer under the configuration
    /// before.
    pub fn forget_vacancy(&mut self) {
        self.learns_from = self.learns_from.max(self.started_at);
    }

    /// A master of term `epoch` with an empty lease table.
    pub fn new(now: Instant, epoch: Epoch, bounds: Bounds, start: Start) -> Self {
        let vacant_for = match start {
            Start::Vacant { since } => now.saturating_since(since),
            Start::Learning | Start::Fresh => Duration::ZERO,
        };
        Self {
            epoch,
            bounds,
            start,
            started_at: now,
            learns_from: now.saturating_sub(counted(vacant_for)),
            resources: BTreeMap::new(),
            timeouts: Deadlines::default(),
            pools: Pools::default(),
            drains: Drains::default(),
            parent_leases: None,
            taken_over_at: None,
            leases: 0,
            leases_elsewhere: 0,
            nudges: NudgeQueue::default(),
            drawn: Tokens::ZERO,
            buckets: StoredBuckets::default(),
            wall_clock: WallClock::default(),
            quota_thresholds: Vec::new(),
        }
    }

    /// Takes the wall clock, by which quotas go.
    pub fn set_wall_clock(&mut self, clock: WallClock) {
        let is_first = self.wall_clock == WallClock::default();
        self.wall_clock = clock;
        if is_first {
            self.begin_windows();
        }
    }

    /// Begins the windows of quotas that were taken over, whose ends are known now.
    fn begin_windows(&mut self) {
        let now = self.wall_clock.read_at();
        for (_, pool) in self.pools.iter_mut() {
            pool.advance_quotas(now, self.wall_clock);
        }
        self.pools.watch_empty();
        for (id, slot) in &mut self.resources {
            slot.resource
                .allocation
                .advance_quotas(now, self.wall_clock);
            requeue(&mut self.timeouts, id, slot);
        }
    }

    /// The term of this master; it goes into every answer.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Bounds on its size.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Tokens that clients have drawn of all the fleet's buckets since the start.
    pub fn drawn(&self) -> Tokens {
        self.drawn
    }

    /// Number of leases in its table.
    pub fn lease_count(&self) -> usize {
        self.leases
    }

    /// Takes the number of leases that others keep, such as the servers of the process's other
    /// shards: they all share [`Bounds::max_leases`].
    pub fn set_leases_elsewhere(&mut self, leases: usize) {
        self.leases_elsewhere = leases;
    }

    /// Takes back the lease of `client` for `resource`; ignored if a later request came first.
    pub fn handle_release(&mut self, client: &ClientRun, resource: &ResourceId, sequence: u64) {
        if let Some(slot) = self.resources.get_mut(resource) {
            let known = slot.resource.client_count();
            let (now, clock) = (self.wall_clock.read_at(), self.wall_clock);
            slot.resource.allocation.advance_quotas(now, clock);
            slot.resource.handle_release(client, sequence);
            slot.count(&mut self.pools);
            recount(&mut self.leases, known, slot);
            requeue(&mut self.timeouts, resource, slot);
            if slot.is_stirred(&self.pools) || slot.resource.client_count() == 0 {
                // There is no time here to look at other clients, or at its bucket, by.
                self.timeouts
                    .advance(&mut slot.queued_at, Instant::ZERO, resource);
            }
        }
        // Borrowed tokens go back to the parent first, at the timeout, for there is no time here to count them by.
        if self.parent_leases.is_none() {
            self.collect(resource);
        }
    }

    /// Drains `client` until `until`: it gets nothing, and its leases shrink to nothing at their
    /// next refreshes. An `until` that has passed lets it serve again.
    ///
    /// # Errors
    /// If [`DRAINS_MAX`] others are being drained.
    pub fn handle_drain(
        &mut self,
        now: Instant,
        client: &ClientId,
        until: Instant,
    ) -> Result<(), DrainError> {
        self.drains.set(now, client, until)
    }

    /// Takes back leases that have expired and forgets resources without clients.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.timeouts.pop_due(now) {
            let Some(slot) = self.resources.get_mut(&id) else {
                continue;
            };
            let known = slot.resource.client_count();
            // Tokens that clients hold at a window's end count in the next one.
            slot.resource
                .allocation
                .advance_quotas(now, self.wall_clock);
            slot.resource.expire(now);
            slot.report(now, &mut self.pools);
            recount(&mut self.leases, known, slot);
            if let Some(next) = slot.resource.poll_timeout() {
                slot.queued_at = next;
                self.timeouts.insert(next, id.clone());
                self.look_for_nudges(now, &id);
            } else if let Some(mut slot) = self.resources.remove(&id) {
                self.leave_tokens(now, &id, &mut slot);
                self.forget(&id, &mut slot);
            }
        }
        for (id, pool) in self.pools.forget_full(now, self.wall_clock) {
            self.forget_pool(&id, &pool);
        }
    }

    /// Forgets the resource of `slot`, called `id`.
    fn forget(&mut self, id: &ResourceId, slot: &mut ResourceSlot) {
        // A group that was asked for itself may have become a pool.
        let pool = self.pools.get(id);
        let stays = pool.is_some_and(|pool| pool.fleet.is_stored);
        let limit = &slot.resource.allocation.fleet;
        self.buckets.forget(id, limit, stays);
        self.leave(slot);
    }

    /// Leaves the borrowed tokens of `slot` to its parent.
    fn leave_tokens(&mut self, now: Instant, id: &ResourceId, slot: &mut ResourceSlot) {
        if let Some(parent_leases) = &mut self.parent_leases {
            let left = slot.resource.allocation.take_left(now);
            parent_leases.leave_tokens(id, left);
        }
    }

    /// Takes the resource of `slot` out of its pool.
    fn leave(&mut self, slot: &mut ResourceSlot) {
        if let Some((id, pool)) = slot.leave(&mut self.pools) {
            self.forget_pool(&id, &pool);
        }
    }

    /// Forgets the bucket of a pool. A group that is asked for itself now may be stored under the same id.
    fn forget_pool(&mut self, id: &ResourceId, pool: &Pool) {
        let own = self.resources.get(id);
        let stays = own.is_some_and(|slot| slot.resource.allocation.fleet.is_stored);
        self.buckets.forget(id, &pool.fleet, stays);
    }

    /// Time at which [`LeaseServer::handle_timeout`] next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.timeouts.earliest(), self.pools.poll_timeout()];
        due.into_iter().flatten().min()
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

    /// Number of resources that have clients.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }

    /// The resource called `id`, if it has clients.
    pub fn resource(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id).map(|slot| &slot.resource)
    }

    /// Pools with members that have clients, or whose buckets are not full yet, by id.
    pub fn pools(&self) -> impl Iterator<Item = (&ResourceId, &Pool)> {
        self.pools.iter()
    }

    /// The pool called `id`, if it has members that have clients.
    pub fn pool(&self, id: &ResourceId) -> Option<&Pool> {
        self.pools.get(id)
    }

    /// The pool that the resource `id` is a member of, if it has clients and is in one.
    pub fn pool_of(&self, id: &ResourceId) -> Option<(&ResourceId, &Pool)> {
        let (pool, _) = self.resources.get(id)?.pool.as_ref()?;
        Some((pool, self.pools.get(pool)?))
    }

    /// End of the drain of `client`, if it is drained.
    pub fn drained_until(&self, now: Instant, client: &ClientId) -> Option<Instant> {
        self.drains.until(now, client)
    }

    /// The clients that are drained, with the ends of their drains.
    pub fn drained(&self, now: Instant) -> impl Iterator<Item = (&ClientId, Instant)> {
        self.drains.iter(now)
    }

    /// Keeps a resource that is new here.
    fn insert(&mut self, id: &ResourceId, mut slot: ResourceSlot, queued_at: Instant) {
        slot.queued_at = queued_at;
        recount(&mut self.leases, 0, &slot);
        self.timeouts.insert(queued_at, id.clone());
        self.resources.insert(id.clone(), Box::new(slot));
    }

    fn collect(&mut self, id: &ResourceId) {
        let slot = self.resources.get(id);
        if slot.is_some_and(|slot| slot.resource.poll_timeout().is_none())
            && let Some(mut slot) = self.resources.remove(id)
        {
            self.forget(id, &mut slot);
            self.timeouts.remove(slot.queued_at, id.clone());
        }
    }
}

// === free functions ===

/// The part of the time without a master that counts as learning. The rest is for clocks of unequal
/// speed: a client's may be slower than the one by which that time was observed.
fn counted(vacant_for: Duration) -> Duration {
    let margin = vacant_for.checked_div(CLOCK_MARGIN_PART);
    vacant_for.saturating_sub(margin.unwrap_or(vacant_for))
}

/// Counts the clients of `slot`, which had `known`, into `leases`.
fn recount(leases: &mut usize, known: usize, slot: &ResourceSlot) {
    let others = leases.saturating_sub(known);
    *leases = others.saturating_add(slot.resource.client_count());
}

/// Lets the server look at `slot` in time for its next expiry.
fn requeue(timeouts: &mut Deadlines<ResourceId>, id: &ResourceId, slot: &mut ResourceSlot) {
    if let Some(next) = slot.resource.poll_timeout() {
        timeouts.advance(&mut slot.queued_at, next, id);
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, not(all(target_family = "wasm", target_os = "unknown"))))]
mod laws;
