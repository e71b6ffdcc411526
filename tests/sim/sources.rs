//! What the processes share: one resource, or two that are members of a pool.

use std::num::NonZeroU32;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::{Limit, Safe};
use tollgate_core::node::{Membership, Terms};
use tollgate_core::units::{Capacity, Instant};

use crate::scenario::Scenario;

/// The configuration of the moment, and what of it was in force before.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) members: Vec<Member>,
    pub(crate) pool: Option<Source>,
}

/// A resource and its place in the pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) own: Source,
    pub(crate) attached: bool,
    pub(crate) weight: NonZeroU32,
    /// When it last came or went.
    moved_at: Option<Instant>,
}

/// A capacity.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) id: ResourceId,
    pub(crate) limit: Limit,
    /// When which capacity came into force.
    capacities: Vec<(Instant, Capacity)>,
}

// === impl Sources ===

impl Sources {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let first = Source::new("tenant/acme", &scenario.limit);
        let member = |own, weight| Member {
            own,
            attached: scenario.pooled.is_some(),
            weight,
            moved_at: None,
        };
        let Some(pooled) = &scenario.pooled else {
            return Self {
                members: vec![member(first, NonZeroU32::MIN)],
                pool: None,
            };
        };
        let second = Source::new("tenant/umbrella", &pooled.second);
        let [a, b] = pooled.weights;
        Self {
            members: vec![member(first, a), member(second, b)],
            pool: Some(Source::new("group/gold", &pooled.limit)),
        }
    }

    /// The index of the member whose capacity a process uses.
    pub(crate) fn member_of(&self, process: usize) -> usize {
        process % self.members.len()
    }

    pub(crate) fn terms(&self, member: usize) -> Terms<'_> {
        let member = &self.members[member];
        let pool = self.pool.as_ref().filter(|_| member.attached);
        Terms {
            limit: &member.own.limit,
            pool: pool.map(|pool| Membership {
                pool: &pool.id,
                limit: &pool.limit,
                weight: member.weight,
            }),
        }
    }

    /// The operator attaches the last member, or detaches it.
    pub(crate) fn move_last(&mut self, now: Instant) {
        if let Some(member) = self.members.last_mut() {
            member.attached = !member.attached;
            member.moved_at = Some(now);
        }
    }

    /// What may be in use of the pool: nothing is said while leases last that somebody brought
    /// along.
    pub(crate) fn pool_capacity_max(&self, now: Instant) -> Option<Capacity> {
        let pool = self.pool.as_ref()?;
        let since = pool.since(now);
        let moved = self
            .members
            .iter()
            .any(|m| m.moved_at.is_some_and(|at| at >= since));
        (!moved).then(|| pool.capacity_max(now))
    }
}

// === impl Source ===

impl Source {
    fn new(scope: &str, limit: &Limit) -> Self {
        Self {
            id: ResourceId::new(scope, Unit::Requests).expect("a valid id"),
            limit: limit.clone(),
            capacities: vec![(Instant::ZERO, limit.capacity)],
        }
    }

    pub(crate) fn change(&mut self, now: Instant, capacity: Capacity) {
        self.limit.capacity = capacity;
        if let Safe::Fixed(safe) = &mut self.limit.safe {
            *safe = (*safe).min(capacity);
        }
        self.capacities.push((now, capacity));
    }

    /// What clients divide between them when nothing else happens.
    pub(crate) fn divided(&self) -> f64 {
        let Limit {
            capacity, reserve, ..
        } = self.limit;
        capacity.saturating_sub(reserve.of(capacity)).as_f64()
    }

    /// The largest capacity in force within the last lease: what may be in use.
    pub(crate) fn capacity_max(&self, now: Instant) -> Capacity {
        let since = self.since(now);
        let starts = self.capacities.iter().skip(1).map(|(at, _)| *at);
        let ends = starts.chain([Instant::from_nanos(u64::MAX)]);
        let in_force = self.capacities.iter().zip(ends);
        let in_force = in_force.filter(|(_, end)| *end >= since);
        let capacities = in_force.map(|((_, capacity), _)| *capacity);
        capacities.max().unwrap_or_default()
    }

    /// A lease ago.
    fn since(&self, now: Instant) -> Instant {
        let lease = self.limit.lease.as_nanos() as u64;
        Instant::from_nanos(now.as_nanos().saturating_sub(lease))
    }
}
