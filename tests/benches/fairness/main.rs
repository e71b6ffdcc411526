//! Fairness of waiting as figures: `just bench-fairness [gap|delay] [SEEDS]`.
//!
//! `gap` measures how far two waiting tenants of a group get apart, beside the bound and the best
//! that any order could promise. `delay` measures how long requests wait for a capacity that is
//! divided between Envoys, beside one bucket and beside fixed parts of it. Both run real engines and
//! a real lease server in virtual time, so the figures do not depend on the machine.

#![allow(clippy::print_stdout, reason = "a report for people")]

mod delay;
mod gap;

use std::time::Duration;

use tollgate_sim::limits::LimitSource;
use tollgate_sim::observer::Observer;
use tollgate_sim::scenario::{Amount, DemandSpec, EnvoyGroup, NetworkSpec, Scenario, Span};
use tollgate_sim::simulation::Simulation;

/// Capacity of everything that is measured here, in tokens per second.
const CAPACITY: u64 = 1000;
/// The longest wait: none is refused.
const MAX_WAIT: Span = Span::from_secs(3600);

fn main() {
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let wants = |name: &str| named.first().is_none_or(|named| named == name);
    let seeds = named.get(1).and_then(|seeds| seeds.parse().ok());
    if wants("gap") {
        gap::print(seeds.unwrap_or(20));
    }
    if wants("delay") {
        delay::print(seeds.unwrap_or(1));
    }
}

/// Returns a scenario in which requests wait.
fn scenario(
    seed: u64,
    duration: Duration,
    envoys: Vec<EnvoyGroup>,
    demand: Vec<DemandSpec>,
) -> Scenario {
    Scenario {
        name: String::new(),
        description: String::new(),
        duration: Span(duration),
        seed,
        sample: Span(duration),
        measure_from: Span::default(),
        envoys,
        coordinators: Vec::new(),
        network: NetworkSpec::default(),
        nudges: false,
        demand,
        events: Vec::new(),
        mishaps: None,
    }
}

fn envoys(name: &str, count: u32, workers: u32) -> EnvoyGroup {
    EnvoyGroup {
        name: name.to_owned(),
        count,
        workers,
        max_wait: MAX_WAIT,
        max_scopes: 16,
        safe: Amount(0.0),
        ..EnvoyGroup::default()
    }
}

/// Plays a scenario to its end.
fn play(scenario: Scenario, limits: Box<dyn LimitSource>, observer: Box<dyn Observer>) {
    let simulation = Simulation::new(scenario, vec![limits]);
    let mut simulation = simulation.expect("the scenario breaks no rule");
    simulation.observe(observer);
    while simulation.step() {}
}
