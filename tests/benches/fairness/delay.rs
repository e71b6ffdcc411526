//! Delay of a capacity that is divided: how long requests wait for leases, beside one bucket.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::{Capacity, Tokens};
use tollgate_sim::limits::FixedLimits;
use tollgate_sim::observer::{Observer, RequestEvent, RequestOutcome};
use tollgate_sim::random::Random;
use tollgate_sim::scenario::{Amount, DemandSpec, OnOff, Program, Selection, Span};

use crate::{CAPACITY, envoys, play, scenario};

const DURATION: Duration = Duration::from_secs(50);
/// Time after which requests count.
const MEASURED_FROM: Duration = Duration::from_secs(10);
/// Burst of the whole fleet, in tokens.
const BURST: u64 = 50;
const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
const HEADROOMS: [Part; 3] = [Part::NONE, Part::HALF, Part::ALL];

/// Arrivals at each Envoy.
#[derive(Clone, Copy)]
enum Traffic {
    Poisson,
    /// A quarter of the time four times as much, in periods of so many milliseconds.
    Bursts(u64),
}

/// Fleet of one block of rows.
#[derive(Clone, Copy)]
struct Fleet {
    envoys: u32,
    workers: u32,
}

/// Request that went on: its arrival, its Envoy, and its wait, in seconds.
#[derive(Clone, Copy)]
struct Served {
    arrival: f64,
    envoy: u32,
    waited: f64,
}

struct WaitObserver(Rc<RefCell<Vec<Served>>>);

/// Ideal bucket with a queue in the order of arrival.
struct IdealBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: f64,
}

const FLEETS: [Fleet; 4] = [fleet(1, 1), fleet(1, 4), fleet(4, 1), fleet(16, 1)];

// === free functions ===

/// Measures all fleets with so many seeds, and prints a row of each load.
pub(crate) fn print(seeds: u64) {
    println!(
        "Waiting times in ms, mean / p99; {CAPACITY} requests per second, burst {BURST}, {seeds} seeds of {:?} each",
        DURATION - MEASURED_FROM
    );
    let traffics = [
        ("Poisson", Traffic::Poisson),
        ("bursts of 0.1 s", Traffic::Bursts(400)),
    ];
    for (name, traffic) in traffics {
        println!("\n{name}");
        println!(
            "| Envoys × workers | load | one bucket | fixed parts | leases, headroom 0 | 0.5 | 1 |"
        );
        println!("|---|---|---|---|---|---|---|");
        for fleet in FLEETS {
            for load in LOADS {
                row(fleet, traffic, load, seeds);
            }
        }
    }
}

const fn fleet(envoys: u32, workers: u32) -> Fleet {
    Fleet { envoys, workers }
}

fn row(fleet: Fleet, traffic: Traffic, load: f64, seeds: u64) {
    let mut cells = Vec::new();
    for headroom in HEADROOMS {
        let (mut one, mut parts, mut leases) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..seeds {
            let served = fleet.run(traffic, load, headroom, seed);
            one.extend(ideal(&served, 1));
            parts.extend(ideal(&served, fleet.envoys));
            leases.extend(served.iter().filter_map(measured));
        }
        if cells.is_empty() {
            cells.extend([summary(one), summary(parts)]);
        }
        cells.push(summary(leases));
    }
    println!(
        "| {} × {} | {load} | {} |",
        fleet.envoys,
        fleet.workers,
        cells.join(" | ")
    );
}

/// Returns the waits of the same arrivals at `parts` buckets, each with its part of rate and burst.
fn ideal(served: &[Served], parts: u32) -> Vec<f64> {
    let mut buckets: Vec<_> = (0..parts).map(|_| IdealBucket::new(parts)).collect();
    let counted = served.iter().filter_map(|request| {
        let bucket = &mut buckets[(request.envoy % parts) as usize];
        let waited = bucket.serve(request.arrival);
        measured(&Served { waited, ..*request })
    });
    counted.collect()
}

/// Returns the wait of a request, if it counts.
fn measured(request: &Served) -> Option<f64> {
    (request.arrival >= MEASURED_FROM.as_secs_f64()).then_some(request.waited)
}

/// Returns the mean and the 99th percentile, in milliseconds.
fn summary(mut waits: Vec<f64>) -> String {
    waits.sort_by(f64::total_cmp);
    let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0);
    format!("{:.1} / {:.0}", mean * 1e3, p99 * 1e3)
}

// === impl Fleet ===

impl Fleet {
    fn run(self, traffic: Traffic, load: f64, headroom: Part, seed: u64) -> Vec<Served> {
        let groups = (0..self.envoys).map(|i| envoys(&format!("e{i}"), 1, self.workers));
        let mut random = Random::new(seed);
        let each = CAPACITY as f64 * load / f64::from(self.envoys);
        let demand = (0..self.envoys).map(|i| DemandSpec {
            scope: Some("tenant/acme".to_owned()),
            envoys: Selection {
                group: Some(format!("e{i}")),
                ..Selection::default()
            },
            total: Some(traffic.program(each, &mut random)),
            ..DemandSpec::default()
        });
        let served = Rc::new(RefCell::new(Vec::new()));
        let scenario = scenario(seed, DURATION, groups.collect(), demand.collect());
        let mut limit = Limit::new(Capacity::from_whole(CAPACITY));
        limit.burst = Tokens::from_whole(BURST);
        limit.headroom = headroom;
        let limits = FixedLimits::new([("tenant/".to_owned(), limit)]);
        let observer = WaitObserver(served.clone());
        play(scenario, Box::new(limits), Box::new(observer));
        let mut served = served.take();
        served.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
        served
    }
}

// === impl Traffic ===

impl Traffic {
    fn program(self, rate: f64, random: &mut Random) -> Program {
        match self {
            Self::Poisson => Program::Constant(Amount(rate)),
            Self::Bursts(period_ms) => Program::OnOff(OnOff {
                rate: Amount(4.0 * rate),
                on: Span::from_millis(period_ms / 4),
                off: Span::from_millis(period_ms / 4 * 3),
                at: Span::from_millis(random.between(0, period_ms - 1)),
            }),
        }
    }
}

// === impl WaitObserver ===

impl Observer for WaitObserver {
    fn request(&mut self, event: &RequestEvent) {
        match event.outcome {
            RequestOutcome::Waits => return,
            RequestOutcome::Refused => panic!("a request was refused: {event:?}"),
            RequestOutcome::Admitted => {}
        }
        let waited = event.waited.unwrap_or_default();
        self.0.borrow_mut().push(Served {
            arrival: event.at.saturating_sub(waited).as_secs_f64(),
            envoy: event.envoy,
            waited: waited.as_secs_f64(),
        });
    }
}

// === impl IdealBucket ===

impl IdealBucket {
    fn new(parts: u32) -> Self {
        let burst = (BURST as f64 / f64::from(parts)).max(1.0);
        Self {
            rate: CAPACITY as f64 / f64::from(parts),
            burst,
            tokens: burst,
            at: 0.0,
        }
    }

    /// Serves a request that arrives then, and returns its wait.
    fn serve(&mut self, arrival: f64) -> f64 {
        let start = arrival.max(self.at);
        let earned = (start - self.at) * self.rate;
        self.tokens = (self.tokens + earned).min(self.burst);
        let missing = (1.0 - self.tokens).max(0.0);
        self.at = start + missing / self.rate;
        self.tokens = (self.tokens + missing - 1.0).max(0.0);
        self.at - arrival
    }
}
