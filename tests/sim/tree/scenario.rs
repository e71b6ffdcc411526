//! Scenario of a run in a tree.

use std::time::Duration;

use tollgate_core::client::Policy;
use tollgate_core::lease::Priority;
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::network::Quality;
use tollgate_sim::random::Random;

use crate::network::faulty;
use crate::process::Work;
use crate::scenario::{
    SETTLING, crash_loops, interleaving, limit, policy, priority, safe_requests, work,
};

/// End of the time in which faults begin.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(15);
/// The longest absence of a coordinator or a connection.
const AWAY_MAX: Duration = Duration::from_secs(8);

/// Fixed properties of a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// Limit of the root.
    pub(crate) limit: Limit,
    /// The coordinators: the root, then each after its parent.
    pub(crate) coordinators: Vec<CoordinatorSpec>,
    pub(crate) policy: Policy,
    pub(crate) work: Work,
    pub(crate) workers: u32,
    /// Share of accesses to shared data at which another worker runs, in percent.
    pub(crate) interleaving: u64,
    /// Coordinator, demand per second and priority of each process.
    pub(crate) processes: Vec<(usize, u64, Priority)>,
    pub(crate) network: Quality,
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// Whether a restarted process has the id of the one before, some of whose requests come late.
    pub(crate) keeps_ids: bool,
}

/// Position of a coordinator in the tree, and its configuration.
#[derive(Clone, Debug)]
pub(crate) struct CoordinatorSpec {
    pub(crate) parent: Option<usize>,
    /// Number of coordinators above.
    pub(crate) level: u32,
    /// Its own limit.
    pub(crate) limit: Limit,
    /// Time after which it takes a call to its parent for lost.
    pub(crate) call_timeout: Duration,
}

/// Fault, or change of the demand or the capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A coordinator dies and returns without a snapshot.
    Crash { coordinator: usize, down: Duration },
    /// A coordinator hands a snapshot over to the next one, which has it after a time.
    HandOver { coordinator: usize, gap: Duration },
    /// A coordinator is cut off from its parent: its messages, those to it, or both are lost.
    CutCoordinator { coordinator: usize, cut: Cut },
    /// A process is cut off from its coordinator.
    CutProcess { process: usize, cut: Cut },
    /// A process dies and a new one starts at once in its place.
    ProcessRestart(usize),
    /// A worker of a process traps.
    Trap(usize),
    /// The demand of a process changes.
    Demand { process: usize, rate: u64 },
    /// The operator changes the capacity at the root.
    Capacity(Capacity),
}

/// Directions that are cut, and the length of the cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
    pub(crate) lasts: Duration,
}

// === impl Scenario ===

impl Scenario {
    pub(crate) fn new(random: &mut Random, seed: u64) -> Self {
        let capacity = random.between(20, 600);
        let mut limit = limit(random, capacity);
        let work = match random.chance(40) {
            true => Work::Requests,
            false => work(random),
        };
        let mut policy = policy(random, &limit);
        let scale = work.usual();
        policy.safe_concurrency = policy.safe;
        policy.safe_bytes = times(policy.safe, scale);
        policy.safe = safe_requests(work, policy.safe);
        limit.capacity = times(limit.capacity, scale);
        limit.burst = Tokens::from_micros(limit.burst.as_micros() * scale);
        if let SafeCapacity::Fixed(safe) = &mut limit.safe {
            *safe = times(*safe, scale);
        }
        let coordinators = coordinators(random, &limit, scale);
        let processes = processes(random, &coordinators, capacity);
        let mut faults = faults(random, &coordinators, processes.len(), scale);
        let keeps_ids = seed.is_multiple_of(3);
        if keeps_ids {
            let more = &mut Random::new(seed.rotate_left(48));
            let restarts = crash_loops(more, processes.len() as u64, FAULTS_END);
            faults.extend(restarts.map(|(at, process)| (at, Fault::ProcessRestart(process))));
            faults.sort_by_key(|(at, _)| *at);
        }
        Self {
            limit,
            coordinators,
            policy,
            work,
            workers: random.between(1, 4) as u32,
            interleaving: interleaving(random),
            processes,
            network: faulty(random),
            faults,
            keeps_ids,
        }
    }

    /// Returns the time beyond its expiry for which a lease may be in the lease table because of
    /// snapshot transfers: leases do not age during those.
    pub(crate) fn held_up(&self) -> Duration {
        let gaps = self.faults.iter().map(|(_, fault)| match fault {
            Fault::HandOver { gap, .. } => *gap,
            _ => Duration::ZERO,
        });
        gaps.sum()
    }

    /// Returns the length of the run: until all is back and has learned, at each level, and
    /// settled.
    pub(crate) fn duration(&self) -> Duration {
        FAULTS_END + AWAY_MAX + 2 * self.limit.lease + SETTLING
    }
}

// === free functions ===

fn times(capacity: Capacity, scale: u64) -> Capacity {
    Capacity::from_micros(capacity.as_micros() * scale)
}

/// Returns a root with one or two levels of coordinators below it.
fn coordinators(random: &mut Random, limit: &Limit, scale: u64) -> Vec<CoordinatorSpec> {
    let mut coordinators = vec![CoordinatorSpec {
        parent: None,
        level: 0,
        limit: limit.clone(),
        call_timeout: Duration::ZERO,
    }];
    let levels = random.between(1, 2) as u32;
    for level in 1..=levels {
        let above = 0..coordinators.len();
        let above: Vec<usize> = above
            .filter(|i| coordinators[*i].level == level - 1)
            .collect();
        for parent in above {
            for _ in 0..random.between(1, 3 - u64::from(level - 1)) {
                let mut own = limit.clone();
                own.capacity = match random.chance(15) {
                    true => Capacity::from_whole(random.between(20, 600) * scale),
                    false => Capacity::UNLIMITED,
                };
                if own.capacity.is_unlimited() {
                    own.burst = Limit::new(own.capacity).burst;
                }
                let safe = Capacity::from_whole(random.between(0, 15) * scale);
                own.safe = random.pick(&[SafeCapacity::Client, SafeCapacity::Fixed(safe)]);
                coordinators.push(CoordinatorSpec {
                    parent: Some(parent),
                    level,
                    limit: own,
                    call_timeout: Duration::from_millis(random.pick(&[100, 300, 1000])),
                });
            }
        }
    }
    coordinators
}

/// Returns processes that ask leaves, and some that ask coordinators in the middle, or the root.
fn processes(
    random: &mut Random,
    coordinators: &[CoordinatorSpec],
    capacity: u64,
) -> Vec<(usize, u64, Priority)> {
    let mut processes = Vec::new();
    // Limits of their own know no bands.
    let plain = coordinators
        .iter()
        .skip(1)
        .all(|p| p.limit.capacity.is_unlimited());
    let banded = plain && random.chance(30);
    for at in 0..coordinators.len() {
        let leaf = !coordinators
            .iter()
            .any(|coordinator| coordinator.parent == Some(at));
        let count = match leaf {
            true => random.between(1, 2),
            false => random.between(0, 3) / 3,
        };
        for _ in 0..count {
            let demand = demand(random, capacity);
            let priority = match banded {
                true => priority(random),
                false => Priority::LOWEST,
            };
            processes.push((at, demand, priority));
        }
    }
    processes
}

fn demand(random: &mut Random, capacity: u64) -> u64 {
    random.pick(&[0, 1, 5, 20, 80, 300, capacity])
}

fn faults(
    random: &mut Random,
    coordinators: &[CoordinatorSpec],
    processes: usize,
    scale: u64,
) -> Vec<(Duration, Fault)> {
    let ms = Duration::from_millis;
    let away = AWAY_MAX.as_millis() as u64;
    let mut faults = Vec::new();
    for _ in 0..random.between(0, 14) {
        let at = ms(random.between(0, FAULTS_END.as_millis() as u64));
        let coordinator = random.between(0, coordinators.len() as u64 - 1) as usize;
        let process = random.between(0, processes as u64 - 1) as usize;
        let fault = match random.between(0, 10) {
            0 | 1 => Fault::Crash {
                coordinator,
                down: ms(random.between(1, away)),
            },
            2 => Fault::HandOver {
                coordinator,
                gap: ms(random.between(0, 2000)),
            },
            3..=5 => Fault::CutCoordinator {
                coordinator,
                cut: cut(random, away),
            },
            6 => Fault::CutProcess {
                process,
                cut: cut(random, away),
            },
            7 => Fault::ProcessRestart(process),
            8 => Fault::Trap(process),
            9 => Fault::Capacity(Capacity::from_whole(random.between(0, 600) * scale)),
            _ => Fault::Demand {
                process,
                rate: demand(random, 600),
            },
        };
        faults.push((at, fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn cut(random: &mut Random, away: u64) -> Cut {
    let way = random.between(1, 3);
    Cut {
        sends: way & 1 != 0,
        receives: way & 2 != 0,
        lasts: Duration::from_millis(random.between(50, away)),
    }
}
