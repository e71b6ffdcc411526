//! Limits in force over the time of a run, which events change.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::lease::ResourceId;
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;
use tollgate_sim::scenario::Scenario;

use crate::limits::{GROUP, LimitsFile};

/// Limits of the resources that processes share, over time. All times are since the start.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) members: Vec<Member>,
    pub(crate) pool: Option<Source>,
    shards: u16,
}

/// Resource and its membership in the pool.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) own: Source,
    pub(crate) weight: NonZeroU32,
    /// Times at which it came or went, with whether it is in the pool from then on.
    attached: Vec<(Duration, bool)>,
}

/// Limits of a resource or a pool, with the times at which they came into force.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) id: ResourceId,
    limits: Vec<(Duration, Limit)>,
}

// === impl History ===

impl History {
    /// Returns the history of `scopes` under `files`, which the scenario's events put into force.
    pub(crate) fn new(scenario: &Scenario, files: &[LimitsFile], scopes: &[&str]) -> Self {
        let changes = scenario.events.iter();
        let changes = changes.filter_map(|event| Some((event.at.0, event.limits?)));
        let in_force = [(Duration::ZERO, 0)].into_iter().chain(changes);
        let in_force: Vec<_> = in_force.map(|(at, number)| (at, &files[number])).collect();
        let members = scopes.iter().map(|scope| Member::new(scope, &in_force));
        let pooled = files.first().and_then(|file| file.group.as_ref());
        let pool = format!("group/{GROUP}");
        Self {
            members: members.collect(),
            pool: pooled
                .filter(|group| group.is_pool)
                .map(|_| Source::new(&pool, &in_force)),
            shards: scenario
                .coordinators
                .first()
                .map_or(1, |first| first.shards),
        }
    }

    /// Returns the limit that all processes share all the time: the one scope's, or that of a pool that nobody
    /// joins or leaves; none without one.
    pub(crate) fn shared_by_all(&self) -> Option<&Source> {
        let stays =
            |member: &Member| member.is_attached(Duration::ZERO) && member.moves().next().is_none();
        match &self.pool {
            Some(pool) => self.members.iter().all(stays).then_some(pool),
            None => self.members.first().map(|first| &first.own),
        }
    }

    /// Returns the most of a member that may be in use: as much again for each move within the last
    /// lease, because its new master does not know the leases of the old one.
    pub(crate) fn in_use_max(&self, now: Duration, member: usize) -> u128 {
        let member = &self.members[member];
        let since = member.own.since(now);
        let moves = member.moves().filter(|at| *at >= since).count();
        let moves = if self.shards > 1 { moves } else { 0 };
        let capacity = member.own.capacity_max(now, Duration::ZERO);
        u128::from(capacity.as_micros()) * (1 + moves as u128)
    }

    /// Returns the most of the pool that may be in use or lent by a snapshot whose leases may last
    /// longer by `held_up`. None while leases last that a member brought along.
    pub(crate) fn pool_capacity_max(&self, now: Duration, held_up: Duration) -> Option<Capacity> {
        let pool = self.pool.as_ref()?;
        let since = pool.since(now.saturating_sub(held_up));
        let mut moves = self.members.iter().flat_map(Member::moves);
        let moved = moves.any(|at| at >= since);
        (!moved).then(|| pool.capacity_max(now, held_up))
    }
}

// === impl Member ===

impl Member {
    fn new(scope: &str, in_force: &[(Duration, &LimitsFile)]) -> Self {
        let tenant = scope.split_once('/').map_or(scope, |(_, name)| name);
        let mut weight = NonZeroU32::MIN;
        let mut attached: Vec<(Duration, bool)> = Vec::new();
        for (at, file) in in_force {
            let group = file.group.as_ref().filter(|group| group.is_pool);
            let mut members = group.into_iter().flat_map(|group| &group.attached);
            let found = members.find(|(name, _)| name == tenant);
            weight = found
                .and_then(|(_, weight)| NonZeroU32::new(*weight))
                .unwrap_or(weight);
            if attached
                .last()
                .is_none_or(|(_, last)| *last != found.is_some())
            {
                attached.push((*at, found.is_some()));
            }
        }
        Self {
            own: Source::new(scope, in_force),
            weight,
            attached,
        }
    }

    /// Returns whether it is in the pool.
    pub(crate) fn is_attached(&self, now: Duration) -> bool {
        latest(&self.attached, now).copied().unwrap_or_default()
    }

    fn moves(&self) -> impl Iterator<Item = Duration> {
        self.attached.iter().skip(1).map(|(at, _)| *at)
    }
}

// === impl Source ===

impl Source {
    fn new(scope: &str, in_force: &[(Duration, &LimitsFile)]) -> Self {
        let limits = in_force.iter();
        let limits = limits.map(|(at, file)| (*at, file.limit(scope).clone()));
        let unit = in_force[0].1.unit;
        Self {
            id: ResourceId::new(scope, unit).expect("a valid id"),
            limits: limits.collect(),
        }
    }

    /// Returns the limit in force.
    pub(crate) fn limit(&self, now: Duration) -> &Limit {
        latest(&self.limits, now).expect("one is in force from the start")
    }

    /// Returns the capacity that clients divide between them when nothing else happens.
    pub(crate) fn divided(&self, now: Duration) -> f64 {
        let Limit {
            capacity, reserve, ..
        } = self.limit(now);
        capacity.saturating_sub(reserve.of(*capacity)).as_f64()
    }

    /// Returns the largest capacity in force within the last lease and `longer`: the most that may be
    /// in use.
    pub(crate) fn capacity_max(&self, now: Duration, longer: Duration) -> Capacity {
        let since = self.since(now.saturating_sub(longer));
        let ends = self.limits.iter().skip(1).map(|(at, _)| *at);
        let in_force = self.limits.iter().zip(ends.chain([Duration::MAX]));
        let in_force = in_force.filter(|((at, _), end)| *at <= now && *end >= since);
        let capacities = in_force.map(|((_, limit), _)| limit.capacity);
        capacities.max().unwrap_or_default()
    }

    /// Returns the time one lease before `now`.
    fn since(&self, now: Duration) -> Duration {
        now.saturating_sub(self.limits[0].1.lease)
    }
}

// === free functions ===

/// Returns the last of the entries that is not after `now`.
fn latest<T>(entries: &[(Duration, T)], now: Duration) -> Option<&T> {
    let entries = entries.iter().take_while(|(at, _)| *at <= now);
    entries.last().map(|(_, value)| value)
}
