//! Service gap: how many tokens more one tenant of a group gets than another that waits meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;
use tollgate_sim::limits::{LimitSource, ScopeLimits};
use tollgate_sim::observer::{Observer, RequestEvent, RequestOutcome};
use tollgate_sim::scenario::{Amount, DemandSpec, OnOff, Program, Span};

use crate::{CAPACITY, envoys, play, scenario};

const GROUP: &str = "group/gold";
/// Length of a run.
const DURATION: Duration = Duration::from_secs(8);
/// Time after which windows may begin: then there are leases, and both tenants wait.
const SETTLED: Duration = Duration::from_secs(2);
/// Offered part of the capacity, of each tenant: the queue does not fill up in the time.
const OFFERED: f64 = 0.7;

/// One row: costs of the requests of two tenants, all equally often in tokens, and the fleet.
struct Case {
    costs: [&'static [u32]; 2],
    envoys: u32,
    workers: u32,
    bursts: bool,
}

const CASES: [Case; 12] = [
    case([&[1], &[1]], 1, 1),
    case([&[5], &[5]], 1, 1),
    case([&[3], &[7]], 1, 1),
    case([&[1], &[100]], 1, 1),
    case([&[40], &[60]], 1, 1),
    case([&[1, 2, 5, 9], &[1, 2, 5, 9]], 1, 1),
    case([&[1, 10, 100], &[7, 90]], 1, 1),
    Case {
        bursts: true,
        ..case([&[1, 10, 100], &[7, 90]], 1, 1)
    },
    case([&[3], &[7]], 1, 2),
    case([&[3], &[7]], 1, 4),
    case([&[3], &[7]], 2, 1),
    case([&[1, 10, 100], &[7, 90]], 2, 4),
];

/// Limits of a group that all tenants share, divided between Envoys.
struct GroupLimits;

/// Leads of tenants over others, each the greatest over all windows that end now.
#[derive(Default)]
struct Leads {
    /// Of one tenant over another that waits.
    current: BTreeMap<(u32, u32), u64>,
    greatest: u64,
}

/// Measured gaps of one run.
#[derive(Default)]
struct Gaps {
    /// Requests that wait, by queue and scope.
    waiting: BTreeMap<(u32, u32), BTreeMap<u32, u32>>,
    /// Leads in each queue.
    queues: BTreeMap<(u32, u32), Leads>,
    /// Leads in all queues together, while the other waits in each.
    fleet: Leads,
    refused: u64,
    windows: u64,
}

/// The largest gaps of all runs.
#[derive(Clone, Copy, Default)]
struct Greatest {
    queue: u64,
    fleet: u64,
    requests: u64,
    refused: u64,
}

struct GapObserver {
    gaps: Rc<RefCell<Gaps>>,
    queues: usize,
}

// === free functions ===

/// Measures all cases with so many seeds, and prints a row of each.
pub(crate) fn print(seeds: u64) {
    println!("Service gap between two tenants that wait, {seeds} seeds of {DURATION:?} each");
    println!(
        "| costs | Envoys × workers | gap in one queue | no order can do better than | bound | gap of the fleet | bound × queues | requests | refused |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in &CASES {
        let mut greatest = Greatest::default();
        for seed in 0..seeds {
            case.run(seed, &mut greatest);
        }
        let queues = u64::from(case.envoys * case.workers);
        println!(
            "| {}{} | {} × {} | {} | {} | {} | {} | {} | {} | {} |",
            case.name(),
            if case.bursts { ", in bursts" } else { "" },
            case.envoys,
            case.workers,
            greatest.queue,
            case.least(),
            case.bound(),
            greatest.fleet,
            case.bound() * queues,
            greatest.requests,
            greatest.refused,
        );
    }
}

const fn case(costs: [&'static [u32]; 2], envoys: u32, workers: u32) -> Case {
    Case {
        costs,
        envoys,
        workers,
        bursts: false,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

// === impl Case ===

impl Case {
    fn name(&self) -> String {
        let of = |costs: &[u32]| {
            let costs: Vec<_> = costs.iter().map(u32::to_string).collect();
            costs.join(", ")
        };
        format!("{} and {}", of(self.costs[0]), of(self.costs[1]))
    }

    fn greatest_costs(&self) -> [u64; 2] {
        self.costs
            .map(|costs| u64::from(costs.iter().copied().max().unwrap_or(0)))
    }

    fn bound(&self) -> u64 {
        self.greatest_costs().iter().sum()
    }

    /// Returns the gap that every order has, if all requests have the greatest costs.
    fn least(&self) -> u64 {
        let [a, b] = self.greatest_costs();
        a + b - gcd(a, b)
    }

    fn demand(&self) -> Vec<DemandSpec> {
        let mut demand = Vec::new();
        for (tenant, costs) in self.costs.iter().enumerate() {
            let tokens = CAPACITY as f64 * OFFERED / costs.len() as f64;
            demand.extend(costs.iter().map(|cost| {
                let rate = tokens / f64::from(*cost);
                DemandSpec {
                    scope: Some(format!("tenant/t{tenant}")),
                    total: Some(self.program(rate, tenant as u64)),
                    cost: Some(*cost),
                    ..DemandSpec::default()
                }
            }));
        }
        demand
    }

    fn program(&self, rate: f64, tenant: u64) -> Program {
        if self.bursts {
            // At different times, so that each comes back while the other waits.
            Program::OnOff(OnOff {
                rate: Amount(2.0 * rate),
                on: Span::from_millis(400 + 100 * tenant),
                off: Span::from_millis(500),
                at: Span::default(),
            })
        } else {
            Program::Constant(Amount(rate))
        }
    }

    fn run(&self, seed: u64, greatest: &mut Greatest) {
        let mut fleet = envoys("envoy", self.envoys, self.workers);
        // A tenant's own scope has no limit. While it has no answer, after a pause, that must not be
        // what its requests wait for.
        fleet.safe = Amount(1e6);
        let gaps = Rc::new(RefCell::new(Gaps::default()));
        let observer = GapObserver {
            gaps: gaps.clone(),
            queues: (self.envoys * self.workers) as usize,
        };
        let scenario = scenario(seed, DURATION, vec![fleet], self.demand());
        play(scenario, Box::new(GroupLimits), Box::new(observer));
        let gaps = gaps.borrow();
        greatest.refused += gaps.refused;
        let queues = gaps.queues.values().map(|leads| leads.greatest);
        greatest.queue = greatest.queue.max(queues.max().unwrap_or(0));
        greatest.fleet = greatest.fleet.max(gaps.fleet.greatest);
        greatest.requests += gaps.windows;
    }
}

// === impl GroupLimits ===

impl LimitSource for GroupLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let group: Arc<str> = GROUP.into();
        if *scope == group {
            // With a burst of a second: each Envoy's part is more than any request costs.
            let limit = Limit::new(Capacity::from_whole(CAPACITY));
            return ScopeLimits::own(scope, [(Unit::Requests, limit)]);
        }
        ScopeLimits {
            canonical: group.clone(),
            home: scope.clone(),
            units: Vec::new(),
            limited: vec![Unit::Requests],
        }
    }
}

// === impl GapObserver ===

impl Observer for GapObserver {
    fn request(&mut self, event: &RequestEvent) {
        let gaps = &mut *self.gaps.borrow_mut();
        let queue = (event.envoy, event.worker);
        let waiting = gaps.waiting.entry(queue).or_default();
        let count = waiting.entry(event.scope).or_default();
        match event.outcome {
            RequestOutcome::Waits => *count += 1,
            _ => *count -= u32::from(event.waited.is_some()),
        }
        // Before the first lease, a request is refused that costs more than the burst without one.
        if event.at < SETTLED {
            return;
        }
        match event.outcome {
            RequestOutcome::Waits => return,
            RequestOutcome::Refused => {
                gaps.refused += 1;
                return;
            }
            RequestOutcome::Admitted => {}
        }
        gaps.windows += 1;
        let waits = |counts: &BTreeMap<u32, u32>, scope| counts.get(&scope).is_some_and(|n| *n > 0);
        let here = &gaps.waiting[&queue];
        let served = (event.scope, u64::from(event.cost));
        let leads = gaps.queues.entry(queue).or_default();
        leads.count(served, |scope| waits(here, scope));
        let all = &gaps.waiting;
        let everywhere =
            |scope| all.len() == self.queues && all.values().all(|counts| waits(counts, scope));
        gaps.fleet.count(served, everywhere);
    }
}

// === impl Leads ===

impl Leads {
    /// Counts a request that went on, of `scope` and with so many tokens. A window goes on while the
    /// one that gets less waits.
    fn count(&mut self, (scope, cost): (u32, u64), waits: impl Fn(u32) -> bool) {
        for ((_, other), lead) in &mut self.current {
            if *other == scope {
                *lead = lead.saturating_sub(cost);
            }
        }
        self.current.retain(|(_, other), _| waits(*other));
        let other = 1 - scope;
        if waits(other) {
            let lead = self.current.entry((scope, other)).or_default();
            *lead += cost;
            self.greatest = self.greatest.max(*lead);
        }
    }
}
