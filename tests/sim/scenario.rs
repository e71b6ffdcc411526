//! Scenario of one seed: the limit, the processes, the network and the faults.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use tollgate_core::client::{Mode, Policy};
use tollgate_core::lease::{Priority, Unit};
use tollgate_core::limit::{Algorithm, Limit, Part, SafeCapacity};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::network::Quality;
use tollgate_sim::random::Random;

use crate::coordinators::CutOff;
use crate::network::faulty;
use crate::process::Work;

/// End of the time in which faults happen.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(20);
/// The least time in which everything settles after the last fault, besides one lease and learning:
/// the longest back-off, half a second of demand, and refreshes.
pub(crate) const SETTLING: Duration = Duration::from_secs(10);

/// Fixed properties of a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// Limit of the only resource, or of the pool's first member.
    pub(crate) limit: Limit,
    /// Pool, if there is one: then every second process is of a second member.
    pub(crate) pooled: Option<Pooled>,
    pub(crate) policy: Policy,
    /// Priority of each process's demand.
    pub(crate) priorities: Vec<Priority>,
    pub(crate) work: Work,
    pub(crate) workers: u32,
    /// Share of accesses to shared data at which another worker runs, in percent.
    pub(crate) interleaving: u64,
    /// Demand of each process, per second.
    pub(crate) demands: Vec<u64>,
    pub(crate) network: Quality,
    /// Number of shards into which the scopes are divided.
    pub(crate) shards: NonZeroU16,
    /// Faults in the order of their times.
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// Whether a restarted process has the id of the one before, some of whose requests come late.
    pub(crate) keeps_ids: bool,
}

/// A pool and its second member.
#[derive(Debug)]
pub(crate) struct Pooled {
    pub(crate) limit: Limit,
    pub(crate) second: Limit,
    pub(crate) weights: [NonZeroU32; 2],
}

/// Fault, or change of the demand or the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The coordinator dies and returns after a time, without a snapshot.
    CoordinatorCrash(Duration),
    /// The master of a shard hands a snapshot over, and after a time the next one has it.
    HandOver { shard: usize, gap: Duration },
    /// The master of a shard goes on without knowing whether it is one.
    CutOff { shard: usize, how: CutOff },
    /// A process dies and a new one starts at once in its place.
    ProcessRestart(usize),
    /// A process is cut off: its messages, those to it, or both are lost.
    Cut {
        process: usize,
        sends: bool,
        receives: bool,
        lasts: Duration,
    },
    /// A worker of a process traps.
    Trap(usize),
    /// The demand of a process changes.
    Demand { process: usize, rate: u64 },
    /// The operator changes the capacity of the first resource.
    Capacity(Capacity),
    /// The operator changes the capacity of the pool.
    PoolCapacity(Capacity),
    /// The operator detaches the second member, or attaches it again.
    Move,
}

impl Scenario {
    /// Creates the scenario of `seed`. Later features draw from generators of their own (pools,
    /// priorities, algorithms; then clusters), so that a seed keeps the course for which it is
    /// known.
    pub(crate) fn new(random: &mut Random, seed: u64) -> Self {
        let more = &mut Random::new(!seed);
        let cluster = &mut Random::new(seed.rotate_left(32));
        let capacity = random.between(10, 600);
        let processes = random.between(1, 5) as usize;
        let demand = |random: &mut Random| random.pick(&[0, 1, 5, 20, 80, 300, capacity]);
        let demands = (0..processes).map(|_| demand(random)).collect();
        let mut limit = limit(random, capacity);
        let mut faults = Vec::new();
        for _ in 0..random.between(0, 12) {
            let at = Duration::from_millis(random.between(0, FAULTS_END.as_millis() as u64));
            let process = random.between(0, processes as u64 - 1) as usize;
            let fault = match random.between(0, 6) {
                0 => Fault::CoordinatorCrash(Duration::from_millis(random.between(1, 15_000))),
                1 => Fault::ProcessRestart(process),
                2 | 3 => cut(random, process),
                4 => Fault::Capacity(Capacity::from_whole(random.between(0, 600))),
                _ => Fault::Demand {
                    process,
                    rate: demand(random),
                },
            };
            faults.push((at, fault));
        }
        let priorities = (0..processes).map(|_| priority(more)).collect();
        if more.chance(20) {
            limit.algorithm = Algorithm::ProportionalShare;
        }
        if more.chance(20) {
            limit.reserve = Part::try_from_f64(0.1).expect("a part");
        }
        let pooled = more.chance(35).then(|| pooled(more, &limit, &mut faults));
        // Every second seed is of a coordinator that is alone.
        let mut shards = NonZeroU16::MIN;
        if seed % 2 == 1 {
            shards = shards.saturating_add(cluster.between(0, 2) as u16);
            changes_of_masters(cluster, &mut faults);
        }
        let keeps_ids = seed % 3 == 2;
        if keeps_ids {
            let more = &mut Random::new(seed.rotate_left(48));
            let restarts = crash_loops(more, processes as u64, FAULTS_END);
            faults.extend(restarts.map(|(at, process)| (at, Fault::ProcessRestart(process))));
        }
        faults.sort_by_key(|(at, _)| *at);
        Self {
            keeps_ids,
            pooled,
            shards,
            priorities,
            policy: policy(random, &limit),
            limit,
            work: Work::Requests,
            workers: random.between(1, 4) as u32,
            interleaving: interleaving(random),
            demands,
            network: faulty(random),
            faults,
        }
    }

    /// Creates the scenario of `seed` where other units than requests are counted, or requests
    /// wait.
    pub(crate) fn of_other_units(random: &mut Random, seed: u64) -> Self {
        let more = &mut Random::new(seed.rotate_left(16));
        let mut scenario = Self::new(random, seed);
        scenario.work = work(more);
        for _ in 0..more.between(0, 3) {
            let at = Duration::from_millis(more.between(0, FAULTS_END.as_millis() as u64));
            let process = more.between(0, scenario.demands.len() as u64 - 1) as usize;
            scenario.faults.push((at, Fault::Trap(process)));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario.policy.safe_concurrency = scenario.policy.safe;
        scenario.policy.max_debt = Duration::from_millis(more.pick(&[200, 1000, 10_000]));
        scenario.scale(scenario.work.usual());
        scenario
    }

    /// Creates the scenario of `seed` where shares depend on what processes use. Priorities mean
    /// nothing to such algorithms.
    pub(crate) fn of_usage(random: &mut Random, seed: u64) -> Self {
        let more = &mut Random::new(seed.rotate_left(8));
        let mut scenario = Self::new(random, seed);
        let algorithm = more.pick(&[Algorithm::UsageShare, Algorithm::MaxRate]);
        scenario.limit.algorithm = algorithm;
        if let Some(pooled) = &mut scenario.pooled {
            pooled.second.algorithm = algorithm;
        }
        scenario
    }

    /// Multiplies all capacities by `times`.
    fn scale(&mut self, times: u64) {
        let more = |capacity: Capacity| Capacity::from_micros(capacity.as_micros() * times);
        let limits = self.pooled.iter_mut();
        let limits = limits.flat_map(|pooled| [&mut pooled.limit, &mut pooled.second]);
        for limit in limits.chain([&mut self.limit]) {
            limit.capacity = more(limit.capacity);
            limit.burst = Tokens::from_micros(limit.burst.as_micros() * times);
            if let SafeCapacity::Fixed(safe) = &mut limit.safe {
                *safe = more(*safe);
            }
        }
        for (_, fault) in &mut self.faults {
            if let Fault::Capacity(capacity) | Fault::PoolCapacity(capacity) = fault {
                *capacity = more(*capacity);
            }
        }
        self.policy.safe_bytes = more(self.policy.safe);
        self.policy.safe = safe_requests(self.work, self.policy.safe);
    }

    /// Returns the length of the run.
    pub(crate) fn duration(&self) -> Duration {
        // A coordinator that crashes at the end of the faults returns 15 s later, and then learns.
        FAULTS_END + Duration::from_secs(15) + self.limit.learning + self.limit.lease + SETTLING
    }
}

pub(crate) fn limit(random: &mut Random, capacity: u64) -> Limit {
    let mut limit = Limit::new(Capacity::from_whole(capacity));
    limit.burst = Tokens::from_whole(random.between(1, 2 * capacity));
    limit.lease = Duration::from_millis(random.between(1000, 6000));
    limit.learning = limit.lease;
    limit.refresh = limit.lease / random.between(3, 10) as u32;
    limit.min_refresh = Duration::from_millis(random.between(20, 100));
    limit.headroom = random.pick(&[Part::NONE, Part::HALF, Part::ALL]);
    if random.chance(50) {
        limit.safe = SafeCapacity::Fixed(Capacity::from_whole(random.between(0, capacity.min(20))));
    }
    limit
}

/// Returns work that is not requests refused beyond the limit.
pub(crate) fn work(random: &mut Random) -> Work {
    let ms = Duration::from_millis;
    let unit = random.pick(&[Unit::RequestBytes, Unit::ResponseBytes]);
    let waiting = Work::Waiting {
        max_wait: ms(random.pick(&[20, 500, 5000])),
        members: random.pick(&[1, 1, 1, 2, 4]),
    };
    let bytes = Work::Bytes { unit, usual: 1000 };
    let takes = ms(random.pick(&[20, 200, 1500]));
    random.pick(&[waiting, bytes, Work::InFlight { takes }])
}

/// Returns a random priority; most demand is of one priority.
pub(crate) fn priority(random: &mut Random) -> Priority {
    Priority::nearest(random.pick(&[0, 0, 0, 0, 7, 15]))
}

/// A pool with the times of `limit`, and what becomes of it.
fn pooled(random: &mut Random, limit: &Limit, faults: &mut Vec<(Duration, Fault)>) -> Pooled {
    let mut like = |most: u64| Limit {
        capacity: Capacity::from_whole(random.between(10, most)),
        safe: SafeCapacity::Client,
        ..limit.clone()
    };
    let (pool, second) = (like(800), like(600));
    for _ in 0..random.between(0, 3) {
        let at = Duration::from_millis(random.between(0, FAULTS_END.as_millis() as u64));
        let capacity = Capacity::from_whole(random.between(0, 800));
        let fault = random.pick(&[Fault::Move, Fault::PoolCapacity(capacity)]);
        faults.push((at, fault));
    }
    let mut weight = || NonZeroU32::MIN.saturating_add(random.between(0, 2) as u32);
    Pooled {
        limit: pool,
        second,
        weights: [weight(), weight()],
    }
}

/// Masters that hand over, and some that are cut off from the election.
fn changes_of_masters(random: &mut Random, faults: &mut Vec<(Duration, Fault)>) {
    let ms = Duration::from_millis;
    for _ in 0..random.between(1, 4) {
        let at = ms(random.between(0, FAULTS_END.as_millis() as u64));
        let shard = random.between(0, 2) as usize;
        let gap = ms(random.between(0, 2000));
        let lease = random.between(1000, 5000);
        let lasts = lease + random.between(0, 10_000);
        let how = CutOff {
            // The keep-alive that was answered last was sent some time ago; and a margin.
            term: ms(random.between(0, lease * 9 / 10)),
            lease: ms(lease),
            asleep: ms(random.pick(&[0, 1]) * random.between(0, lasts)),
            lasts: ms(lasts),
        };
        let hand_over = Fault::HandOver { shard, gap };
        let fault = random.pick(&[hand_over, Fault::CutOff { shard, how }]);
        faults.push((at, fault));
    }
}

pub(crate) fn policy(random: &mut Random, limit: &Limit) -> Policy {
    let mode = random.pick(&[Mode::Safe, Mode::Safe, Mode::Optimistic, Mode::Pessimistic]);
    Policy {
        no_lease: mode,
        safe: Capacity::from_whole(random.between(1, 20)),
        first_lease_wait: Duration::from_millis(random.pick(&[0, 50])),
        call_timeout: (limit.lease / 4).min(Duration::from_millis(random.between(100, 1000))),
        idle_after: Duration::from_secs(random.between(1, 10)),
        ..Policy::default()
    }
}

/// Returns the safe capacity of requests: where other units are counted, requests have no limit,
/// and are not to get one when the coordinators are away.
pub(crate) fn safe_requests(work: Work, safe: Capacity) -> Capacity {
    match work {
        Work::Requests | Work::Waiting { .. } => safe,
        Work::Bytes { .. } | Work::InFlight { .. } => Capacity::UNLIMITED,
    }
}

/// How often another worker runs at an access to shared data, in percent.
pub(crate) fn interleaving(random: &mut Random) -> u64 {
    random.pick(&[0, 1, 5, 25])
}

/// Processes that die soon after they have started, several times: when, until `end`, and which.
pub(crate) fn crash_loops(
    random: &mut Random,
    processes: u64,
    end: Duration,
) -> impl Iterator<Item = (Duration, usize)> + use<> {
    let mut restarts = Vec::new();
    for _ in 0..random.between(1, 4) {
        let process = random.between(0, processes - 1) as usize;
        let mut at = random.between(0, end.as_millis() as u64);
        for _ in 0..random.between(1, 6) {
            restarts.push((Duration::from_millis(at), process));
            at += random.between(20, 1500);
        }
    }
    restarts.into_iter().filter(move |(at, _)| *at < end)
}

/// After how long a request of a process that may start again under its id comes once more, if it
/// does: something on its way has kept it.
pub(crate) fn stray(random: &mut Random) -> Option<Duration> {
    let late = Duration::from_millis(random.between(50, 3000));
    random.chance(10).then_some(late)
}

fn cut(random: &mut Random, process: usize) -> Fault {
    let way = random.between(1, 3);
    Fault::Cut {
        process,
        sends: way & 1 != 0,
        receives: way & 2 != 0,
        lasts: Duration::from_millis(random.between(50, 15_000)),
    }
}
