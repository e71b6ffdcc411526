//! Resources that the processes share: one, or two that are members of a pool.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use tollgate_core::cluster::{ShardId, shard_of};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::{PoolTerms, Terms};
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::units::{Capacity, Instant};

use crate::scenario::Scenario;

/// Present configuration, and the capacities that were in force before.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) members: Vec<Member>,
    pub(crate) pool: Option<Source>,
    shards: NonZeroU16,
}

/// Resource and its membership in the pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) own: Source,
    pub(crate) attached: bool,
    pub(crate) weight: NonZeroU32,
    /// Times at which it came or went.
    moved_at: Vec<Instant>,
}

/// Limit of a resource or a pool, with its earlier capacities.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) id: ResourceId,
    pub(crate) limit: Limit,
    /// Capacities with the times at which they came into force.
    capacities: Vec<(Instant, Capacity)>,
}

// === impl Sources ===

impl Sources {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let unit = scenario.work.unit();
        let first = Source::new("tenant/acme", unit, &scenario.limit);
        let member = |own, weight| Member {
            own,
            attached: scenario.pooled.is_some(),
            weight,
            moved_at: Vec::new(),
        };
        let Some(pooled) = &scenario.pooled else {
            return Self {
                members: vec![member(first, NonZeroU32::MIN)],
                pool: None,
                shards: scenario.shards,
            };
        };
        let second = Source::new("tenant/umbrella", unit, &pooled.second);
        let [a, b] = pooled.weights;
        Self {
            members: vec![member(first, a), member(second, b)],
            pool: Some(Source::new("group/gold", unit, &pooled.limit)),
            shards: scenario.shards,
        }
    }

    /// Returns whether requests in flight are counted.
    pub(crate) fn is_concurrency(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.own.id.unit.is_concurrency())
    }

    /// Returns the index of the member whose capacity a process uses.
    pub(crate) fn member_of(&self, process: usize) -> usize {
        process % self.members.len()
    }

    pub(crate) fn terms(&self, member: usize) -> Terms<'_> {
        let member = &self.members[member];
        let pool = self.pool.as_ref().filter(|_| member.attached);
        Terms {
            limit: &member.own.limit,
            pool: pool.map(|pool| PoolTerms {
                pool: &pool.id,
                limit: &pool.limit,
                weight: member.weight,
            }),
        }
    }

    /// Returns the shard of a member: its pool's, which has to be whole in one.
    pub(crate) fn shard_of(&self, member: usize) -> ShardId {
        let member = &self.members[member];
        let pool = self.pool.as_ref().filter(|_| member.attached);
        let home = pool.map_or(&member.own.id, |pool| &pool.id);
        shard_of(&home.scope, self.shards)
    }

    /// Returns the shard of the pool.
    pub(crate) fn pool_shard(&self) -> Option<ShardId> {
        let pool = self.pool.as_ref()?;
        Some(shard_of(&pool.id.scope, self.shards))
    }

    /// Returns the most of a member that may be in use: as much again for each move within the last
    /// lease, because its new master does not know the leases of the old one.
    pub(crate) fn in_use_max(&self, now: Instant, member: usize) -> u128 {
        let Member { own, moved_at, .. } = &self.members[member];
        let since = own.since(now);
        let moves = moved_at.iter().filter(|at| **at >= since).count();
        let moves = if self.shards.get() > 1 { moves } else { 0 };
        u128::from(own.capacity_max(now).as_micros()) * (1 + moves as u128)
    }

    /// Attaches the last member, or detaches it, as an operator does.
    pub(crate) fn move_last(&mut self, now: Instant) {
        if let Some(member) = self.members.last_mut() {
            member.attached = !member.attached;
            member.moved_at.push(now);
        }
    }

    /// Returns the most of the pool that may be in use, or `None` while leases last that a member
    /// brought along.
    pub(crate) fn pool_capacity_max(&self, now: Instant) -> Option<Capacity> {
        self.pool_capacity_max_before(now, Duration::ZERO)
    }

    /// Returns the same for a snapshot whose leases may last longer by `held_up`.
    pub(crate) fn pool_capacity_max_before(
        &self,
        now: Instant,
        held_up: Duration,
    ) -> Option<Capacity> {
        let pool = self.pool.as_ref()?;
        let since = pool.since(now.saturating_sub(held_up));
        let moved = self
            .members
            .iter()
            .any(|m| m.moved_at.iter().any(|at| *at >= since));
        (!moved).then(|| pool.capacity_max_before(now, held_up))
    }
}

// === impl Source ===

impl Source {
    fn new(scope: &str, unit: Unit, limit: &Limit) -> Self {
        Self {
            id: ResourceId::new(scope, unit).expect("a valid id"),
            limit: limit.clone(),
            capacities: vec![(Instant::ZERO, limit.capacity)],
        }
    }

    pub(crate) fn change(&mut self, now: Instant, capacity: Capacity) {
        set_capacity(&mut self.limit, capacity);
        self.capacities.push((now, capacity));
    }

    /// Returns the capacity that clients divide between them when nothing else happens.
    pub(crate) fn divided(&self) -> f64 {
        let Limit {
            capacity, reserve, ..
        } = self.limit;
        capacity.saturating_sub(reserve.of(capacity)).as_f64()
    }

    /// Returns the largest capacity in force within the last lease: the most that may be in use.
    pub(crate) fn capacity_max(&self, now: Instant) -> Capacity {
        self.capacity_max_before(now, Duration::ZERO)
    }

    /// Returns the same for a snapshot whose leases may last longer by `held_up`.
    pub(crate) fn capacity_max_before(&self, now: Instant, held_up: Duration) -> Capacity {
        let since = self.since(now.saturating_sub(held_up));
        let starts = self.capacities.iter().skip(1).map(|(at, _)| *at);
        let ends = starts.chain([Instant::from_nanos(u64::MAX)]);
        let in_force = self.capacities.iter().zip(ends);
        let in_force = in_force.filter(|(_, end)| *end >= since);
        let capacities = in_force.map(|((_, capacity), _)| *capacity);
        capacities.max().unwrap_or_default()
    }

    /// Returns the time one lease before `now`.
    fn since(&self, now: Instant) -> Instant {
        let lease = self.limit.lease.as_nanos() as u64;
        Instant::from_nanos(now.as_nanos().saturating_sub(lease))
    }
}

// === free functions ===

/// Changes the capacity as an operator does; no safe capacity is above the capacity.
pub(crate) fn set_capacity(limit: &mut Limit, capacity: Capacity) {
    limit.capacity = capacity;
    if let SafeCapacity::Fixed(safe) = &mut limit.safe {
        *safe = (*safe).min(capacity);
    }
}
