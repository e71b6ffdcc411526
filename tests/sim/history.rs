//! Limits in force over the time of a run, which events change.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;
use tollgate_sim::limits::{LimitSource, PoolOfUnit, UnitLimit};
use tollgate_sim::scenario::{Change, Scenario};

/// Limits of the resources that processes share, over time. All times are since the start.
pub(crate) struct History {
    pub(crate) members: Vec<Member>,
    pub(crate) pool: Option<Source>,
    shards: u16,
}

/// Resource and its membership in the pool.
pub(crate) struct Member {
    pub(crate) own: Source,
    /// Pool that it is in, from each time on.
    pools: Vec<(Duration, Option<PoolOfUnit>)>,
}

/// Limits of a resource or a pool, with the times at which they came into force.
pub(crate) struct Source {
    pub(crate) id: ResourceId,
    limits: Vec<(Duration, Limit)>,
}

// === impl History ===

impl History {
    /// Returns the history of `scopes` under `limits`, which the scenario's events put into force.
    pub(crate) fn new(
        scenario: &Scenario,
        limits: &[Rc<dyn LimitSource>],
        unit: Unit,
        scopes: &[String],
    ) -> Self {
        let changes = scenario
            .events
            .iter()
            .filter_map(|event| match event.change {
                Change::Limits(number) => Some((event.at.0, number)),
                _ => None,
            });
        let in_force = [(Duration::ZERO, 0)].into_iter().chain(changes);
        let in_force = in_force.map(|(at, number)| (at, &limits[number]));
        let in_force: Vec<_> = in_force.collect();
        let members = scopes.iter().map(|scope| {
            let of_unit = in_force.iter().map(|(at, source)| {
                let UnitLimit { limit, pool, .. } = limit_of(&***source, scope, unit);
                ((*at, limit), (*at, pool))
            });
            let (limits, pools) = of_unit.unzip();
            let id = ResourceId::new(scope, unit).expect("a valid id");
            let own = Source { id, limits };
            Member { own, pools }
        });
        let members: Vec<Member> = members.collect();
        // The first member stays.
        let pools = members[0].pools.iter();
        let pools = pools.filter_map(|(at, pool)| Some((*at, pool.as_ref()?)));
        let limits: Vec<_> = pools
            .clone()
            .map(|(at, pool)| (at, pool.limit.clone()))
            .collect();
        let first = { pools }.next();
        Self {
            pool: first.map(|(_, pool)| Source {
                id: pool.id.clone(),
                limits,
            }),
            members,
            shards: scenario.coordinators[0].shards,
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
    /// Returns whether it is in the pool.
    pub(crate) fn is_attached(&self, now: Duration) -> bool {
        latest(&self.pools, now).is_some()
    }

    /// Returns its weight there.
    pub(crate) fn weight(&self, now: Duration) -> NonZeroU32 {
        let pool = latest(&self.pools, now).as_ref();
        pool.map_or(NonZeroU32::MIN, |pool| pool.weight)
    }

    /// Returns the times at which it came or went.
    fn moves(&self) -> impl Iterator<Item = Duration> {
        let pairs = self.pools.iter().zip(self.pools.iter().skip(1));
        let moves = pairs.filter(|((_, before), (_, after))| before.is_some() != after.is_some());
        moves.map(|(_, (at, _))| *at)
    }
}

// === impl Source ===

impl Source {
    /// Returns the limit in force.
    pub(crate) fn limit(&self, now: Duration) -> &Limit {
        latest(&self.limits, now)
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

/// Returns the limit of one unit of a scope.
pub(crate) fn limit_of(source: &dyn LimitSource, scope: &str, unit: Unit) -> UnitLimit {
    let mut units = source.limits_of(&scope.into()).units.into_iter();
    units.find(|limit| limit.unit == unit).expect("a limit")
}

/// Returns the last of the entries that is not after `now`.
fn latest<T>(entries: &[(Duration, T)], now: Duration) -> &T {
    let entries = entries.iter().take_while(|(at, _)| *at <= now);
    &entries.last().expect("one from the start").1
}
