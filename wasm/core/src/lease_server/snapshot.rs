//! Snapshot of a lease table, which a master hands over to the next, so that it need not learn.
//!
//! The successor goes on from the very same state: it would give every answer that its predecessor
//! would have given, but for the epoch. So the laws hold across a hand-over for the reasons for
//! which they hold without one. That needs two things of those who carry the snapshot: the
//! predecessor answers nothing after it wrote it, which [`LeaseServer::hand_over`] sees to by
//! taking the server; and no other master lent anything in between, which the terms of masters see
//! to.
//!
//! Times are durations, because the two do not share a clock. The successor counts them from when
//! it reads the snapshot, which is later than it was written: leases are in its table for longer
//! than in use, never shorter.
//!
//! A pool is not rebuilt from its members' refreshes, as their limits are: until the last of them
//! had refreshed, the pool would count too little and lend it twice. So the snapshot names the
//! members of each pool, and the limits as well, on which the allocation between members depends.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::{Bounds, DRAINS_MAX, LeaseServer, ResourceSlot, Start, requeue};
use crate::fleet::{FleetBucketSnapshot, QuotaRecord};
use crate::lease::{ClientId, Epoch, ResourceId};
use crate::limit::Limit;
use crate::pool::{Pool, PoolSnapshot};
use crate::resource::{ClientSnapshot, Resource};
use crate::units::{Instant, Tokens};

/// State of a lease server, in durations that remain or have passed when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The term of the master that wrote it.
    pub epoch: Epoch,
    /// Time since learning began, for resources that have no clients yet; none if all leases have
    /// been known from the start.
    pub learning_for: Option<Duration>,
    /// The pools that have members.
    pub pools: Vec<PoolSnapshot>,
    /// The resources that have clients.
    pub resources: Vec<ResourceSnapshot>,
    /// Clients that are drained, with the time that is left.
    pub drains: Vec<(ClientId, Duration)>,
}

/// Resource in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSnapshot {
    /// Which.
    pub id: ResourceId,
    /// The limit that the last refresh came with.
    pub limit: Limit,
    /// The pool that it is a member of, and its weight there.
    pub pool: Option<(ResourceId, NonZeroU32)>,
    /// Time that is left of learning mode.
    pub learning: Duration,
    /// Time for which it still confirms no more than shares while it learns.
    pub crowded: Duration,
    /// Time until the next round of max-rates, if these are the algorithm.
    pub balance: Duration,
    /// Bucket of the whole fleet, if clients draw of it.
    pub bucket: Option<FleetBucketSnapshot>,
    /// Use of its quotas.
    pub quotas: Vec<QuotaRecord>,
    /// Its clients.
    pub clients: Vec<ClientSnapshot>,
}

/// Reason for which a snapshot cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It is of this term or of a later one.
    #[error(
        "epoch: the snapshot is of term {theirs}, not before this one, {ours}",
        theirs = .theirs.0,
        ours = .ours.0
    )]
    NotBefore {
        /// The term of the snapshot.
        theirs: Epoch,
        /// The term of the master that was to take it.
        ours: Epoch,
    },
    /// More resources than this coordinator keeps.
    #[error("resources: {count} are more than this coordinator keeps, {max}")]
    TooManyResources {
        /// Number in the snapshot.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// More clients of a resource than this coordinator keeps.
    #[error(
        "clients of {of}: {count} are more than this coordinator keeps, {max}",
        of = .resource.scope
    )]
    TooManyClients {
        /// The resource.
        resource: ResourceId,
        /// How many there are.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// More leases than this coordinator keeps.
    #[error("leases: {count} are more than this coordinator has room for, {max}")]
    TooManyLeases {
        /// How many there are.
        count: usize,
        /// How many there is room for.
        max: usize,
    },
    /// More drained clients than [`DRAINS_MAX`].
    #[error("drains: {count} are more than this coordinator keeps, {max}", max = DRAINS_MAX)]
    TooManyDrains {
        /// How many there are.
        count: usize,
    },
    /// A resource that is there twice.
    #[error("resources: {of} is there twice", of = .0.scope)]
    ResourceTwice(ResourceId),
    /// A client of one resource that is there twice.
    #[error(
        "clients of {of}: {client} is there twice",
        of = .resource.scope,
        client = .client.as_str()
    )]
    ClientTwice {
        /// The resource.
        resource: ResourceId,
        /// The client.
        client: ClientId,
    },
    /// A member of a pool that is not in the snapshot or counts another unit.
    #[error("pool of {of}: {pool} is not in the snapshot", of = .resource.scope, pool = .pool.scope)]
    NoPool {
        /// The member.
        resource: ResourceId,
        /// The pool that it names.
        pool: ResourceId,
    },
}

// === impl Snapshot ===

impl Snapshot {
    /// Number of leases.
    pub fn lease_count(&self) -> usize {
        let clients = self.resources.iter().map(|snapshot| snapshot.clients.len());
        clients.fold(0, usize::saturating_add)
    }

    fn check(&self, epoch: Epoch, bounds: Bounds) -> Result<(), SnapshotError> {
        if self.epoch >= epoch {
            return Err(SnapshotError::NotBefore {
                theirs: self.epoch,
                ours: epoch,
            });
        }
        let (count, max) = (self.resources.len(), bounds.max_resources);
        if count > max {
            return Err(SnapshotError::TooManyResources { count, max });
        }
        let max = bounds.max_clients_per_resource;
        let crowded = |snapshot: &&ResourceSnapshot| snapshot.clients.len() > max;
        if let Some(snapshot) = self.resources.iter().find(crowded) {
            return Err(SnapshotError::TooManyClients {
                resource: snapshot.id.clone(),
                count: snapshot.clients.len(),
                max,
            });
        }
        let (count, max) = (self.lease_count(), bounds.max_leases);
        if count > max {
            return Err(SnapshotError::TooManyLeases { count, max });
        }
        match self.drains.len() {
            count if count > DRAINS_MAX => Err(SnapshotError::TooManyDrains { count }),
            _ => Ok(()),
        }
    }
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Returns the snapshot for the next master. This server has ended with it: the next one would
    /// not know of a later answer.
    #[must_use]
    pub fn hand_over(mut self, now: Instant) -> Snapshot {
        self.handle_timeout(now);
        self.snapshot(now)
    }

    /// Returns the whole state; leases that expired at `now` without having been taken back are in
    /// it.
    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        let learning_for = match self.start {
            Start::Learning | Start::Vacant { .. } => Some(now.saturating_since(self.learns_from)),
            Start::Fresh => None,
        };
        let pools = self.pools.iter();
        let pools = pools.map(|(id, pool)| PoolSnapshot {
            id: id.clone(),
            limit: pool.limit().clone(),
            crowded: pool.crowded_until.saturating_since(now),
            bucket: pool.fleet.bucket.map(|bucket| bucket.snapshot(now)),
            quotas: pool.fleet.quotas.records(),
        });
        let resources = self.resources.iter();
        let drains = self.drains.iter(now);
        let drains = drains.map(|(client, until)| (client.clone(), until.saturating_since(now)));
        Snapshot {
            epoch: self.epoch,
            learning_for,
            pools: pools.collect(),
            resources: resources.map(|(id, slot)| slot.snapshot(now, id)).collect(),
            drains: drains.collect(),
        }
    }

    /// The master of term `epoch` that goes on with the snapshot of the one before.
    ///
    /// # Errors
    /// If the snapshot is not of an earlier term, exceeds a bound or contradicts itself. Nothing of
    /// it can be trusted then, and the master has to learn.
    pub fn take_over(
        now: Instant,
        epoch: Epoch,
        bounds: Bounds,
        snapshot: &Snapshot,
    ) -> Result<Self, SnapshotError> {
        snapshot.check(epoch, bounds)?;
        let start = match snapshot.learning_for {
            Some(_) => Start::Learning,
            None => Start::Fresh,
        };
        let mut node = Self::new(now, epoch, bounds, start);
        node.started_at = now.saturating_sub(snapshot.learning_for.unwrap_or_default());
        node.learns_from = node.started_at;
        node.taken_over_at = Some(now);
        for pool in &snapshot.pools {
            node.pools.insert(&pool.id, Pool::restore(now, pool));
        }
        let holds = |r: &&ResourceSnapshot| !r.clients.is_empty() || r.bucket.is_some();
        for resource in snapshot.resources.iter().filter(holds) {
            node.restore(now, resource)?;
        }
        node.restore_pools(now);
        for (client, time) in &snapshot.drains {
            // There are not too many.
            let until = now.saturating_add(*time);
            let _ = node.drains.set(now, client, until);
        }
        Ok(node)
    }

    /// Fills the buckets of the pools by the sums of all their members, which are there now.
    fn restore_pools(&mut self, now: Instant) {
        for (_, pool) in self.pools.iter_mut() {
            pool.fill(now);
        }
        for (id, slot) in &mut self.resources {
            if slot.pool.is_some() {
                slot.report(now, &mut self.pools);
                slot.resource.watch_all();
                requeue(&mut self.timeouts, id, slot);
            }
        }
        self.pools.watch_empty();
    }

    fn restore(&mut self, now: Instant, snapshot: &ResourceSnapshot) -> Result<(), SnapshotError> {
        let id = &snapshot.id;
        let resource = Resource::restore(now, snapshot);
        let resource = resource.map_err(|client| SnapshotError::ClientTwice {
            resource: id.clone(),
            client,
        })?;
        if self.resources.contains_key(id) {
            return Err(SnapshotError::ResourceTwice(id.clone()));
        }
        let mut slot = ResourceSlot::new(resource, now);
        if let Some((pool, weight)) = &snapshot.pool {
            let known = self.pools.get_mut(pool).filter(|_| pool.unit == id.unit);
            let known = known.ok_or_else(|| SnapshotError::NoPool {
                resource: id.clone(),
                pool: pool.clone(),
            })?;
            let mut clients = snapshot.clients.iter();
            known.fleet.is_drawn |= clients.any(|client| client.draws.is_offered);
            slot.pool = Some((pool.clone(), known.join(id, *weight, Tokens::ZERO)));
            slot.count(&mut self.pools);
        }
        let queued_at = slot.resource.poll_timeout().unwrap_or(now);
        self.insert(id, slot, queued_at);
        Ok(())
    }
}

// === impl ResourceSlot ===

impl ResourceSlot {
    fn snapshot(&self, now: Instant, id: &ResourceId) -> ResourceSnapshot {
        let pool = self.pool.as_ref();
        ResourceSnapshot {
            id: id.clone(),
            limit: self.resource.limit().clone(),
            pool: pool.map(|(pool, membership)| (pool.clone(), membership.weight)),
            learning: self.resource.learning_until().saturating_since(now),
            crowded: self.resource.allocation.crowded_until.saturating_since(now),
            balance: self.resource.allocation.balance_at.saturating_since(now),
            bucket: self
                .resource
                .fleet_bucket()
                .map(|bucket| bucket.snapshot(now)),
            quotas: self.resource.allocation.fleet.quotas.records(),
            clients: self.resource.client_snapshots(now),
        }
    }
}

#[cfg(test)]
mod tests;
