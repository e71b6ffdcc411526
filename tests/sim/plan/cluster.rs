//! Fleets below one coordinator, alone or with shards.

use std::time::Duration;

use serde_json::json;
use tollgate_core::limit::{Algorithm, Limit, Part, SafeCapacity};
use tollgate_core::quota::{Calendar, CalendarUnit, Quota, QuotaPeriod, Quotas};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::random::Random;
use tollgate_sim::scenario::{Amount, CoordinatorSpec, EventSpec, NoLease, Settles, Share, Span};

use super::parts::{self, Client, Draft, ProcessSettings, ms};
use super::{Plan, Work};
use crate::limits::{GROUP, GroupLimit, LimitsFile, set_capacity};

/// End of the time in which faults happen.
const FAULTS_END: Duration = Duration::from_secs(20);
/// Start of the faults of fleets with quotas, and the end of these fleets, after that of the third minute.
const QUOTA_FAULTS_FROM: Duration = Duration::from_secs(45);
const QUOTA_DURATION: Span = Span::from_secs(181);
/// The longest absence of a coordinator or a connection.
const AWAY_MAX: u64 = 15_000;
/// Names of the members of the pool.
const TENANTS: [&str; 2] = ["acme", "umbrella"];
const COORDINATOR: &str = "coordinator";

/// Change of the limits by an operator.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The capacity of the first resource.
    Capacity(u64),
    /// The capacity of the pool.
    PoolCapacity(u64),
    /// The second member is detached, or attached again.
    Move,
}

/// Pool and its second member.
struct Pooled {
    limit: Limit,
    second: Limit,
    weights: [u32; 2],
}

/// Parts of a fleet.
struct Cluster {
    limit: Limit,
    pooled: Option<Pooled>,
    shards: u16,
    keeps_ids: bool,
    priorities: Vec<u8>,
    demands: Vec<u64>,
    events: Vec<EventSpec>,
    changes: Vec<(Span, Change)>,
}

// === impl Plan ===

impl Plan {
    /// Returns the plan of `seed` where requests are counted.
    pub(crate) fn of_requests(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let draft = Cluster::new(&mut random, seed, 1);
        draft.finish(&mut random, seed, Work::Requests)
    }

    /// Returns the plan of `seed` where other units than requests are counted, or requests wait.
    pub(crate) fn of_other_units(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let more = &mut Random::new(seed.rotate_left(16));
        let work = parts::work(more);
        let mut draft = Cluster::new(&mut random, seed, work.members());
        for _ in 0..more.between(0, 3) {
            let at = parts::time(more, FAULTS_END);
            let process = more.between(0, draft.demands.len() as u64 - 1) as usize;
            draft.events.push(parts::trap(at, process));
        }
        draft.scale(work.usual());
        draft.finish(&mut random, seed, work)
    }

    /// Returns the plan of `seed` where a limit has a quota of a minute, and faults go on from before the end of the
    /// first one. The last minute is without.
    pub(crate) fn of_quotas(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let more = &mut Random::new(seed.rotate_left(24));
        let mut draft = Cluster::new(&mut random, seed, 1);
        (draft.pooled, draft.changes) = (None, Vec::new());
        let per_second = more.between(1, 2 * draft.limit.capacity.as_f64() as u64);
        let quota = Quota {
            amount: Tokens::from_whole(30 * per_second),
            period: QuotaPeriod::Calendar(Calendar::utc(CalendarUnit::Minute)),
        };
        draft.limit = Limit {
            algorithm: Algorithm::FairShare,
            safe: SafeCapacity::Fixed(Capacity::ZERO),
            // A request waits no longer for its token than until it gives up.
            burst: draft.limit.burst.max(Tokens::from_whole(100)),
            quotas: Quotas::new(vec![quota]),
            ..draft.limit
        };
        let mut plan = draft.finish(&mut random, seed, Work::Requests);
        let scenario = &mut plan.scenario;
        for envoy in &mut scenario.envoys {
            envoy.no_lease = NoLease::Pessimistic;
            // Each request waits for its token.
            envoy.first_lease_wait = Span::from_secs(1);
            envoy.gives_up = Share(0.0);
        }
        if more.chance(40) {
            let (cost, takes) = (more.between(2, 5) as u32, more.between(0, 4000));
            for demand in &mut scenario.demand {
                demand.cost = Some(cost);
                demand.takes = Span::from_millis(takes);
                demand.settles = Some(Settles {
                    median: Amount(f64::from(cost) / 2.0),
                    spread: Amount(0.5),
                    most: cost,
                    aborted: Share(0.1),
                });
            }
        }
        for event in &mut scenario.events {
            event.at = Span(event.at.0 + QUOTA_FAULTS_FROM);
        }
        scenario.network.calm_from = Span(scenario.network.calm_from.0 + QUOTA_FAULTS_FROM);
        scenario.duration = QUOTA_DURATION;
        plan
    }

    /// Returns the plan of `seed` where shares depend on what processes use. Priorities mean nothing to such
    /// algorithms.
    pub(crate) fn of_usage(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let more = &mut Random::new(seed.rotate_left(8));
        let mut draft = Cluster::new(&mut random, seed, 1);
        let algorithm = more.pick(&[Algorithm::UsageShare, Algorithm::MaxRate]);
        draft.limit.algorithm = algorithm;
        if let Some(pooled) = &mut draft.pooled {
            pooled.second.algorithm = algorithm;
        }
        draft.finish(&mut random, seed, Work::Requests)
    }
}

// === impl Cluster ===

impl Cluster {
    /// Returns the parts of a fleet where so many `members` share each limit.
    fn new(random: &mut Random, seed: u64, members: u64) -> Self {
        let capacity = random.between(10, 600);
        let processes = random.between(1, 5) as usize;
        let demands = (0..processes).map(|_| parts::rate(random, capacity));
        let demands = demands.collect();
        let mut limit = parts::limit(random, capacity);
        let scopes = members as usize;
        let (mut events, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..random.between(0, 12) {
            let at = parts::time(random, FAULTS_END);
            let process = random.between(0, processes as u64 - 1) as usize;
            events.push(match random.between(0, 6) {
                0 => parts::crash(at, COORDINATOR, random.between(1, AWAY_MAX)),
                1 => parts::restart(at, process),
                2 | 3 => parts::cut_off(random, at, process, AWAY_MAX),
                4 => {
                    changes.push((at, Change::Capacity(random.between(0, 600))));
                    continue;
                }
                _ => parts::demand_change(at, process, (parts::rate(random, capacity), scopes)),
            });
        }
        let more = &mut Random::new(!seed);
        let priorities = (0..processes).map(|_| parts::priority(more)).collect();
        if more.chance(20) {
            limit.algorithm = Algorithm::ProportionalShare;
        }
        if more.chance(20) {
            limit.reserve = Part::try_from_f64(0.1).expect("a part");
        }
        let pooled = more.chance(35);
        let pooled = pooled.then(|| Pooled::new(more, &limit, &mut changes));
        // Every second seed is of a coordinator that is alone.
        let mut shards = 1;
        if seed % 2 == 1 {
            let cluster = &mut Random::new(seed.rotate_left(32));
            shards += cluster.between(0, 2) as u16;
            changes_of_masters(cluster, shards, &mut events);
        }
        let keeps_ids = seed % 3 == 2;
        if keeps_ids {
            let more = &mut Random::new(seed.rotate_left(48));
            events.extend(parts::crash_loops(more, processes as u64, FAULTS_END));
        }
        Self {
            limit,
            pooled,
            shards,
            keeps_ids,
            priorities,
            demands,
            events,
            changes,
        }
    }

    /// Multiplies all capacities by `times`.
    fn scale(&mut self, times: u64) {
        let pooled = self.pooled.iter_mut();
        let limits = pooled.flat_map(|pooled| [&mut pooled.limit, &mut pooled.second]);
        for limit in limits.chain([&mut self.limit]) {
            parts::scale(limit, times);
        }
        for (_, change) in &mut self.changes {
            if let Change::Capacity(capacity) | Change::PoolCapacity(capacity) = change {
                *capacity *= times;
            }
        }
    }

    fn finish(mut self, random: &mut Random, seed: u64, work: Work) -> Plan {
        let settings = ProcessSettings::new(random, &self.limit, work);
        let network = parts::network(random, FAULTS_END);
        let scopes = self.scopes(work);
        let clients = self.demands.iter().zip(&self.priorities).enumerate();
        let clients = clients.map(|(envoy, (rate, priority))| Client {
            coordinator: COORDINATOR.to_owned(),
            scopes: scopes[envoy % scopes.len()].clone(),
            rate: *rate,
            priority: *priority,
        });
        let clients = clients.collect();
        let limits = self.limits_over_time(work);
        Draft {
            name: format!("Seed {seed}"),
            seed,
            // A coordinator that crashes at the end of the faults returns 15 s later, and then learns.
            duration: FAULTS_END
                + ms(AWAY_MAX)
                + self.limit.learning
                + self.limit.lease
                + parts::SETTLING,
            settings,
            network,
            keeps_ids: self.keeps_ids,
            coordinators: vec![CoordinatorSpec {
                name: COORDINATOR.to_owned(),
                shards: self.shards,
                ..CoordinatorSpec::default()
            }],
            clients,
            events: self.events,
            resources: match &limits[0].tenants[..] {
                [] => vec![format!("group/{GROUP}")],
                tenants => tenants.iter().map(|(name, _)| tenant(name)).collect(),
            },
            limits,
        }
        .finish()
    }

    /// Returns the scopes that requests are for, by the resource that they use.
    fn scopes(&self, work: Work) -> Vec<Vec<String>> {
        let members = 0..work.members();
        match (&self.pooled, work.members()) {
            (None, 1) => vec![vec![tenant(TENANTS[0])]],
            (Some(_), 1) => TENANTS.map(|name| vec![tenant(name)]).to_vec(),
            (None, _) => vec![members.map(|k| tenant(&format!("t{k}"))).collect()],
            (Some(_), _) => {
                let of = |name| {
                    members
                        .clone()
                        .map(move |k| format!("namespace/{name}/{k}"))
                };
                TENANTS.map(|name| of(name).collect()).to_vec()
            }
        }
    }

    /// Returns the limits from the start and after each change, and adds an event for each of these.
    fn limits_over_time(&mut self, work: Work) -> Vec<LimitsFile> {
        let mut first = LimitsFile::of_all(&self.limit, TENANTS[0], work);
        if let Some(pooled) = &self.pooled {
            let attached = TENANTS.map(str::to_owned).into_iter().zip(pooled.weights);
            first.tenants = vec![
                (TENANTS[0], self.limit.clone()),
                (TENANTS[1], pooled.second.clone()),
            ];
            first.group = Some(GroupLimit {
                limit: pooled.limit.clone(),
                is_pool: true,
                attached: attached.collect(),
            });
        }
        let changes = std::mem::take(&mut self.changes);
        let mut events = Vec::new();
        let apply = |file: &mut LimitsFile, change| self.apply(file, change);
        let files = parts::limits_over_time(first, changes, &mut events, apply);
        self.events.append(&mut events);
        files
    }

    fn apply(&self, file: &mut LimitsFile, change: Change) {
        let tenant = file.tenants.first_mut().map(|(_, limit)| limit);
        let group = file.group.as_mut();
        match change {
            Change::Capacity(capacity) => {
                let limit = tenant.or_else(|| group.map(|group| &mut group.limit));
                let limit = limit.expect("a limit");
                set_capacity(limit, Capacity::from_whole(capacity));
            }
            Change::PoolCapacity(capacity) => {
                let limit = &mut group.expect("a pool").limit;
                set_capacity(limit, Capacity::from_whole(capacity));
            }
            Change::Move => {
                let (attached, pooled) = (&mut group.expect("a pool").attached, &self.pooled);
                let weight = pooled.as_ref().map_or(1, |pooled| pooled.weights[1]);
                if attached.len() == 1 {
                    attached.push((TENANTS[1].to_owned(), weight));
                } else {
                    attached.truncate(1);
                }
            }
        }
    }
}

// === impl Pooled ===

impl Pooled {
    /// Returns a pool with the times of `limit`, and adds what becomes of it to `changes`.
    fn new(random: &mut Random, limit: &Limit, changes: &mut Vec<(Span, Change)>) -> Self {
        let mut like = |most: u64| Limit {
            capacity: Capacity::from_whole(random.between(10, most)),
            safe: SafeCapacity::Client,
            ..limit.clone()
        };
        let (pool, second) = (like(800), like(600));
        for _ in 0..random.between(0, 3) {
            let at = parts::time(random, FAULTS_END);
            let capacity = random.between(0, 800);
            let change = random.pick(&[Change::Move, Change::PoolCapacity(capacity)]);
            changes.push((at, change));
        }
        let mut weight = || 1 + random.between(0, 2) as u32;
        Self {
            limit: pool,
            second,
            weights: [weight(), weight()],
        }
    }
}

// === free functions ===

fn tenant(name: &str) -> String {
    format!("tenant/{name}")
}

/// Adds masters that hand over, and some that are cut off from the election.
fn changes_of_masters(random: &mut Random, shards: u16, events: &mut Vec<EventSpec>) {
    for _ in 0..random.between(1, 4) {
        let at = parts::time(random, FAULTS_END);
        let shard = random.between(0, 2) as u16 % shards;
        let gap = Span::from_millis(random.between(0, 2000));
        let lease = random.between(1000, 5000);
        let lasts = lease + random.between(0, 10_000);
        let hand_over = json!({"coordinator": COORDINATOR, "shard": shard, "for": gap});
        let lost = json!({
            "coordinator": COORDINATOR,
            "shard": shard,
            // The keep-alive that was answered last was sent some time ago; and a margin.
            "term": Span::from_millis(random.between(0, lease * 9 / 10)),
            "elected_after": Span::from_millis(lease),
            "asleep": Span::from_millis(random.pick(&[0, 1]) * random.between(0, lasts)),
            "for": Span::from_millis(lasts),
        });
        events.push(if random.chance(50) {
            parts::event(at, "hand_over", hand_over)
        } else {
            parts::event(at, "lose_term", lost)
        });
    }
}
