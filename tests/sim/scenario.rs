//! What one seed makes: the limit, the processes, the network and the faults.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::client::{Mode, Policy};
use tollgate_core::lease::Priority;
use tollgate_core::limit::{Algorithm, Limit, Part, Safe};
use tollgate_core::units::{Capacity, Tokens};

use crate::network::Quality;
use crate::random::Random;

/// Until when faults happen.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(20);
/// The least time in which everything settles after the last fault, besides one lease and learning:
/// the longest back-off, half a second of demand, and refreshes.
pub(crate) const SETTLING: Duration = Duration::from_secs(10);

/// Everything about a run that is fixed before it starts.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// Of the only resource, or of the pool's first member.
    pub(crate) limit: Limit,
    /// Whether there is a pool: then every second process is of a second member.
    pub(crate) pooled: Option<Pooled>,
    pub(crate) policy: Policy,
    /// How important each process's demand is.
    pub(crate) priorities: Vec<Priority>,
    pub(crate) workers: u32,
    /// What each process is asked for, per second.
    pub(crate) demands: Vec<u64>,
    pub(crate) network: Quality,
    /// In the order of their times.
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// A pool and its second member.
#[derive(Debug)]
pub(crate) struct Pooled {
    pub(crate) limit: Limit,
    pub(crate) second: Limit,
    pub(crate) weights: [NonZeroU32; 2],
}

/// Something that goes wrong, or changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The coordinator dies and returns without its books after a time.
    CoordinatorCrash(Duration),
    /// A process dies and a new one starts at once in its place.
    ProcessRestart(usize),
    /// A process is cut off: what it sends, what it is sent, or both are lost.
    Cut {
        process: usize,
        sends: bool,
        receives: bool,
        lasts: Duration,
    },
    /// What a process is asked for changes.
    Demand { process: usize, rate: u64 },
    /// The operator changes the capacity of the first resource.
    Capacity(Capacity),
    /// The operator changes the capacity of the pool.
    PoolCapacity(Capacity),
    /// The operator detaches the second member, or attaches it again.
    Move,
}

impl Scenario {
    /// `random` makes limit, demand and faults, and `more` what came later (pools, priorities,
    /// algorithms), so that a seed keeps the course for which it is known.
    pub(crate) fn new(random: &mut Random, more: &mut Random) -> Self {
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
        faults.sort_by_key(|(at, _)| *at);
        Self {
            pooled,
            priorities,
            policy: policy(random, &limit),
            limit,
            workers: random.between(1, 4) as u32,
            demands,
            network: Quality::new(random),
            faults,
        }
    }

    /// How long the run lasts.
    pub(crate) fn duration(&self) -> Duration {
        // A coordinator that crashes at the end of the faults returns 15 s later, and then learns.
        FAULTS_END + Duration::from_secs(15) + self.limit.learning + self.limit.lease + SETTLING
    }
}

fn limit(random: &mut Random, capacity: u64) -> Limit {
    let mut limit = Limit::new(Capacity::from_whole(capacity));
    limit.burst = Tokens::from_whole(random.between(1, 2 * capacity));
    limit.lease = Duration::from_millis(random.between(1000, 6000));
    limit.learning = limit.lease;
    limit.refresh = limit.lease / random.between(3, 10) as u32;
    limit.min_refresh = Duration::from_millis(random.between(20, 100));
    limit.headroom = random.pick(&[Part::NONE, Part::HALF, Part::ALL]);
    if random.chance(50) {
        limit.safe = Safe::Fixed(Capacity::from_whole(random.between(0, capacity.min(20))));
    }
    limit
}

/// Most demand is of one priority.
fn priority(random: &mut Random) -> Priority {
    Priority::nearest(random.pick(&[0, 0, 0, 0, 7, 15]))
}

/// A pool with the times of `limit`, and what becomes of it.
fn pooled(random: &mut Random, limit: &Limit, faults: &mut Vec<(Duration, Fault)>) -> Pooled {
    let mut like = |most: u64| Limit {
        capacity: Capacity::from_whole(random.between(10, most)),
        safe: Safe::Client,
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

fn policy(random: &mut Random, limit: &Limit) -> Policy {
    Policy {
        mode: random.pick(&[Mode::Safe, Mode::Safe, Mode::Optimistic, Mode::Pessimistic]),
        safe: Capacity::from_whole(random.between(1, 20)),
        cold_start_wait: Duration::from_millis(random.pick(&[0, 50])),
        call_timeout: (limit.lease / 4).min(Duration::from_millis(random.between(100, 1000))),
        idle_after: Duration::from_secs(random.between(1, 10)),
        ..Policy::default()
    }
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
