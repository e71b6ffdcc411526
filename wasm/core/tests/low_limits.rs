//! Low limits over several processes: the part of the requests that one bucket for the whole fleet
//! would admit that the fleet does admit, and that it admits no more than the limit.
//!
//! Requests come by chance at random processes. Messages take no time, and the coordinator's nudges
//! arrive at once. `cargo test -p tollgate-core --test low_limits -- --nocapture` prints the table of
//! `docs/benchmarks.md`.

#![cfg(not(target_family = "wasm"))]

use core::time::Duration;

use tollgate_core::bucket::TokenBucket;
use tollgate_core::client::{DrawResult, LeaseMessage, Policy, ScopeState};
use tollgate_core::lease::{ClientId, ClientRun, Epoch, Origin, ResourceId, Unit, UnitAnswer};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Instant, MICRO, Tokens};

#[path = "laws/random.rs"]
#[expect(dead_code, reason = "the laws use the rest")]
mod random;

use random::Random;

const START: Instant = Instant::from_nanos(5_000_000_000);
const STEP: Duration = Duration::from_millis(1);
const STEPS_PER_MINUTE: u64 = 60_000;
const MINUTES: u64 = 4;
const SEEDS: u64 = 8;
const BOUNDS: Bounds = Bounds {
    max_resources: 1,
    max_clients_per_resource: 10,
    max_leases: 10,
};

/// A limit, the processes that share it, and how much more is asked for.
struct Case {
    per_minute: u64,
    burst: u64,
    processes: usize,
    load_percent: u64,
    /// The least part that the fleet must admit of what one bucket would.
    least_percent: u64,
}

/// Tokens that were admitted.
#[derive(Default)]
struct Admitted {
    fleet: u64,
    ideal: u64,
}

struct Fleet<'a> {
    case: &'a Case,
    random: Random,
    now: Instant,
    limit: Limit,
    resource: ResourceId,
    policy: Policy,
    node: LeaseServer,
    ideal: TokenBucket,
    processes: Vec<Process>,
    admitted: Admitted,
    /// Micro-tokens that were admitted, less the bursts of first leases.
    charged: i128,
    /// The least that `charged` has ever been ahead of what the limit earned.
    least_ahead: i128,
}

struct Process {
    run: ClientRun,
    state: ScopeState,
    /// Requests that are held for the first answer.
    held: u64,
    leased: bool,
}

// === impl Case ===

impl Case {
    fn limit(&self) -> Limit {
        let mut limit = Limit::new(Capacity::from_micros(self.per_minute * MICRO / 60));
        limit.burst = Tokens::from_whole(self.burst);
        limit
    }

    fn run(&self) -> Admitted {
        let mut sum = Admitted::default();
        for seed in 0..SEEDS {
            let mut fleet = Fleet::new(self, seed);
            for _ in 0..MINUTES * STEPS_PER_MINUTE {
                fleet.step();
            }
            sum.fleet += fleet.admitted.fleet;
            sum.ideal += fleet.admitted.ideal;
        }
        sum
    }
}

// === impl Fleet ===

impl<'a> Fleet<'a> {
    fn new(case: &'a Case, seed: u64) -> Self {
        let (limit, policy) = (case.limit(), Policy::default());
        let process = |i| Process {
            run: ClientRun::only(ClientId::new(&format!("node-{i}/1")).expect("a good id")),
            state: ScopeState::new(START, &policy),
            held: 0,
            leased: false,
        };
        Self {
            random: Random::new(seed),
            now: START,
            resource: ResourceId::new("tenant/acme", Unit::Requests).expect("a good id"),
            node: LeaseServer::new(START, Epoch(1), BOUNDS, Start::Fresh),
            ideal: TokenBucket::new(START, limit.capacity.as_rate(), limit.burst),
            processes: (0..case.processes).map(process).collect(),
            admitted: Admitted::default(),
            charged: 0,
            least_ahead: 0,
            case,
            limit,
            policy,
        }
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(STEP);
        let asked = self.case.per_minute * self.case.load_percent;
        if self.random.below(100 * STEPS_PER_MINUTE) < asked {
            let i = self.random.below(self.case.processes as u64) as usize;
            let ideal = self.ideal.take(self.now, Tokens::ONE);
            self.admitted.ideal += u64::from(ideal.is_ok());
            self.processes[i].state.requests.count(self.now, 1);
            self.processes[i].held += 1;
        }
        if self.node.poll_timeout().is_some_and(|at| at <= self.now) {
            self.node.handle_timeout(self.now);
        }
        for i in 0..self.processes.len() {
            self.draw(i);
            self.refresh(i);
            self.draw(i);
        }
        self.deliver_nudges();
        self.check();
    }

    fn draw(&mut self, i: usize) {
        let process = &mut self.processes[i];
        let limiter = &mut process.state.requests;
        for _ in 0..process.held {
            let draw = limiter.draw(self.now, &self.policy, Tokens::ONE, 1);
            process.held -= u64::from(!matches!(draw, DrawResult::Pending { .. }));
            if draw == DrawResult::Tokens(Tokens::ONE) {
                self.admitted.fleet += 1;
                self.charged += i128::from(MICRO);
            }
        }
    }

    fn refresh(&mut self, i: usize) {
        let (now, policy) = (self.now, &self.policy);
        let process = &mut self.processes[i];
        for (unit, message) in process.state.ask(now, policy) {
            let LeaseMessage::Refresh(request) = message else {
                let LeaseMessage::Release { sequence } = message else {
                    continue;
                };
                let (run, id) = (&process.run, &self.resource);
                self.node.handle_release(run, id, sequence);
                continue;
            };
            let terms = Terms::of(&self.limit);
            let (run, id) = (&process.run, &self.resource);
            let answer = self.node.handle_refresh(now, run, id, &request, &terms);
            let answer = UnitAnswer {
                unit,
                sequence: request.sequence,
                answer: answer.expect("an answer"),
            };
            let origin = Origin::alone(Epoch(1));
            process.state.handle_answer(now, policy, origin, &answer);
            let limiter = &process.state.requests;
            if !process.leased && limiter.lease_expiry().is_some() {
                process.leased = true;
                self.charged -= i128::from(limiter.flow(now, policy).1.as_micros());
            }
        }
    }

    fn deliver_nudges(&mut self) {
        while let Some(nudge) = self.node.poll_nudge() {
            let mut processes = self.processes.iter_mut();
            if let Some(process) = processes.find(|process| process.run.id == nudge.client) {
                process.state.nudge(self.now, Unit::Requests);
            }
        }
    }

    /// In any window the fleet admits no more than the burst, a token for each process, and what the
    /// limit earns. The burst of a process's first lease is not earned.
    fn check(&mut self) {
        let nanos = u128::from(self.now.as_nanos() - START.as_nanos());
        let earned = u128::from(self.limit.capacity.as_micros()) * nanos / 1_000_000_000;
        let ahead = self.charged - earned as i128;
        let burst = self.limit.burst.as_micros() + (MICRO + 1) * self.processes.len() as u64;
        let over = ahead - self.least_ahead - i128::from(burst);
        assert!(over <= 0, "{over} micro-tokens over at {:?}", self.now);
        self.least_ahead = self.least_ahead.min(ahead);
    }
}

#[test]
fn low_limits_are_used_and_never_exceeded() {
    // Per minute, burst, processes, load and the least part in percent.
    let rows = [
        (7, 7, 3, 70, 50),
        (7, 7, 3, 400, 50),
        (45, 45, 4, 90, 50),
        (300, 300, 5, 80, 80),
        (300, 300, 5, 120, 80),
        (1200, 5, 3, 90, 60),
    ];
    let mut low = Vec::new();
    println!("limit per minute | burst | processes | load | admitted of one bucket's");
    for (per_minute, burst, processes, load_percent, least_percent) in rows {
        let case = Case {
            per_minute,
            burst,
            processes,
            load_percent,
            least_percent,
        };
        let Admitted { fleet, ideal } = case.run();
        let part = fleet as f64 / ideal as f64;
        let load = load_percent as f64 / 100.0;
        println!("{per_minute} | {burst} | {processes} | {load} | {part:.2}");
        if fleet * 100 < ideal * case.least_percent {
            low.push((per_minute, load_percent, fleet, ideal));
        }
    }
    assert!(low.is_empty(), "too few were admitted: {low:?}");
}
