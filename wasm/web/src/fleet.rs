//! Fleet of the playground: its simulation, which follows the settings.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, Part, SafeCapacity};
use tollgate_core::units::Capacity;
use tollgate_sim::limits::{LimitSource, ScopeLimits};
use tollgate_sim::scenario::{
    Amount, Arrivals, DemandSpec, EnvoyGroup, NetworkSpec, Program, Scenario, Selection, Span,
};
use tollgate_sim::simulation::Simulation;
use tollgate_sim::simulation::live::{CoordinatorStatus, EnvoyStatus};

use crate::history::{History, Point, STEP};
use crate::settings::{NAMES, Settings};

/// The one scope that has demand.
const SCOPE: &str = "tenant/acme";
/// End of the simulation, a year after its start.
const END: Span = Span::from_secs(365 * 24 * 60 * 60);
/// Time between two samples of the simulation, which keeps them all; the history takes its own.
const SAMPLE: Span = Span::from_secs(24 * 60 * 60);
/// Points of the history over which requests are counted.
const COUNTED_OVER: usize = 4;

/// Simulated fleet, and its last minute.
#[derive(Debug)]
pub(crate) struct Fleet {
    simulation: Simulation,
    limit: Rc<RefCell<Limit>>,
    history: History,
    /// Requests of each Envoy that went on and that were refused, at the last points.
    counts: Vec<Vec<[u64; 2]>>,
    next_point: Duration,
}

/// Requests per second of one Envoy, over the last second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
}

/// The limit on the scope, which changes while the simulation runs.
#[derive(Debug)]
struct LiveLimit(Rc<RefCell<Limit>>);

// === impl LiveLimit ===

impl LimitSource for LiveLimit {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let limit = self.0.borrow().clone();
        ScopeLimits::own(scope, [(Unit::Requests, limit)])
    }
}

// === impl Fleet ===

impl Fleet {
    /// Returns the fleet of `settings` at its start.
    pub(crate) fn new(settings: &Settings) -> Self {
        let limit = Rc::new(RefCell::new(limit(settings)));
        let source = Box::new(LiveLimit(limit.clone()));
        let simulation = Simulation::new(scenario(settings), vec![source]);
        let simulation = simulation.expect("the scenario keeps all rules");
        let mut fleet = Self {
            simulation,
            limit,
            history: History::default(),
            counts: Vec::new(),
            next_point: Duration::ZERO,
        };
        for (envoy, chosen) in settings.envoys.iter().enumerate() {
            fleet.cut(envoy, chosen.is_cut);
        }
        if settings.is_stopped {
            fleet.simulation.stop_coordinator(0);
        }
        fleet
    }

    /// Lets so much time pass.
    pub(crate) fn advance(&mut self, time: Duration, settings: &Settings) {
        let until = self.simulation.elapsed().saturating_add(time);
        while self.next_point <= until {
            self.simulation.run_until(self.next_point);
            self.note(settings);
            self.next_point += STEP;
        }
        self.simulation.run_until(until);
    }

    /// Puts the limit of `settings` into force.
    pub(crate) fn change_limit(&mut self, settings: &Settings) {
        let limit = limit(settings);
        if *self.limit.borrow() != limit {
            self.limit.replace(limit);
            self.simulation.apply_limits(0);
        }
    }

    pub(crate) fn set_demand(&mut self, envoy: usize, rate: f64) {
        self.simulation.set_demand(envoy, rate);
    }

    pub(crate) fn cut(&mut self, envoy: usize, is_cut: bool) {
        if is_cut {
            self.simulation.cut_off(envoy)
        } else {
            self.simulation.connect(envoy)
        }
    }

    pub(crate) fn stop_coordinator(&mut self, is_stopped: bool) {
        if is_stopped {
            self.simulation.stop_coordinator(0)
        } else {
            self.simulation.start_coordinator(0)
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.simulation.elapsed()
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn envoy(&self, envoy: usize) -> EnvoyStatus {
        let status = self.simulation.envoy_status(envoy, SCOPE);
        status.unwrap_or_default()
    }

    pub(crate) fn coordinator(&self) -> CoordinatorStatus {
        let status = self.simulation.coordinator_status(0);
        status.unwrap_or(CoordinatorStatus::Down)
    }

    /// Returns the requests of an Envoy in the last second.
    pub(crate) fn outcome(&self, envoy: usize) -> Outcome {
        let of = |counts: &Vec<[u64; 2]>| counts.get(envoy).copied().unwrap_or_default();
        let (Some(first), Some(last)) = (self.counts.first(), self.counts.last()) else {
            return Outcome::default();
        };
        let (before, now) = (of(first), of(last));
        let passed = STEP.as_secs_f64() * (self.counts.len() - 1).max(1) as f64;
        let rate = |i: usize| now[i].saturating_sub(before[i]) as f64 / passed;
        Outcome {
            admitted: rate(0),
            refused: rate(1),
        }
    }

    /// Adds the present to the history.
    fn note(&mut self, settings: &Settings) {
        let count = settings.envoys.len();
        let envoys: Vec<_> = (0..count).map(|envoy| self.envoy(envoy)).collect();
        let requests = envoys.iter().map(|envoy| [envoy.admitted, envoy.refused]);
        self.counts.push(requests.collect());
        if self.counts.len() > COUNTED_OVER + 1 {
            self.counts.remove(0);
        }
        let fallback = |envoy: &EnvoyStatus| match envoy.lease_left {
            Some(_) => 0.0,
            None => drawable(envoy.rate.min(envoy.wants)),
        };
        let admitted = (0..count).map(|envoy| self.outcome(envoy).admitted);
        self.history.push(Point {
            at: self.elapsed().as_secs_f64(),
            capacity: settings.capacity,
            admitted: admitted.sum(),
            leases: envoys.iter().map(|envoy| drawable(envoy.has)).collect(),
            fallbacks: envoys.iter().map(fallback).collect(),
        });
    }
}

// === free functions ===

/// Returns a rate that can be drawn: an unlimited one cannot.
fn drawable(rate: f64) -> f64 {
    if rate < Capacity::MAX.as_f64() {
        rate
    } else {
        0.0
    }
}

fn scenario(settings: &Settings) -> Scenario {
    let named = settings.envoys.iter().zip(NAMES);
    let group = |name: &str| EnvoyGroup {
        name: name.to_owned(),
        safe: Amount(settings.safe_in_force()),
        // They do not start at the same moment, so their refreshes are spread.
        start_over: Span::from_millis(400),
        ..EnvoyGroup::default()
    };
    let demand = |name: &str, rate: f64| DemandSpec {
        scope: Some(SCOPE.to_owned()),
        envoys: Selection {
            group: Some(name.to_owned()),
            count: None,
        },
        each: Some(Program::Constant(Amount(rate))),
        arrivals: Arrivals::Even,
        ..DemandSpec::default()
    };
    Scenario {
        name: "playground".to_owned(),
        description: String::new(),
        duration: END,
        seed: 1,
        sample: SAMPLE,
        measure_from: Span::default(),
        envoys: named.clone().map(|(_, name)| group(name)).collect(),
        coordinators: Vec::new(),
        network: NetworkSpec::default(),
        nudges: true,
        demand: named
            .map(|(envoy, name)| demand(name, envoy.demand))
            .collect(),
        events: Vec::new(),
        mishaps: None,
    }
}

fn limit(settings: &Settings) -> Limit {
    let capacity = |rate| Capacity::try_from_f64(rate).unwrap_or(Capacity::ZERO);
    Limit {
        algorithm: settings.algorithm,
        safe: SafeCapacity::Fixed(capacity(settings.safe_in_force())),
        headroom: Part::try_from_f64(settings.headroom).unwrap_or(Part::HALF),
        ..Limit::new(capacity(settings.capacity))
    }
}

#[cfg(test)]
mod tests;
