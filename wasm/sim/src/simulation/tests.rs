use std::cell::Cell;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, SafeCapacity};
use tollgate_core::units::Tokens;

use super::reached::Case;
use super::*;
use crate::defect::Defect;
use crate::limits::{FixedLimits, ScopeLimits};
use crate::observer::{RequestEvent, RequestOutcome, SentMessage};
use crate::scenario::{Amount, Arrivals, EventSpec, Program, Span};

mod ideal;
mod nudges;

/// Returns a scenario of so many Envoys that want `each` of one scope, with some fields as users
/// write them.
fn fleet(count: u32, each: f64, more: Value) -> Scenario {
    let mut scenario = json!({
        "duration": "30s", "seed": 1, "measure_from": "5s", "envoys": [{"count": count}],
        "demand": [{"scope": "tenant/acme", "each": each, "arrivals": "even"}],
    });
    if let (Some(scenario), Value::Object(mut more)) = (scenario.as_object_mut(), more) {
        scenario.append(&mut more);
    }
    written(scenario)
}

/// Returns a part of a scenario from how users write it.
fn written<T: DeserializeOwned>(text: Value) -> T {
    serde_json::from_value(text).unwrap()
}

/// Returns a limit on tenants.
fn tenants(limit: Limit) -> Vec<Box<dyn LimitSource>> {
    vec![Box::new(FixedLimits::new([("tenant/".to_owned(), limit)]))]
}

/// Returns the limit of so much per second.
fn limit(rate: f64) -> Limit {
    Limit::new(Capacity::try_from_f64(rate).unwrap())
}

/// Returns the finished run of a scenario with a limit on tenants.
fn run(scenario: Scenario, rate: f64) -> Simulation {
    let mut simulation = Simulation::new(scenario, tenants(limit(rate))).unwrap();
    while simulation.step() {}
    assert!(simulation.is_over());
    simulation
}

/// Counts the decisions and messages that it hears of.
#[derive(Clone, Default)]
struct Counter(Rc<Cell<[u64; 4]>>);

impl Counter {
    fn count(&self, place: usize) {
        let mut counts = self.0.get();
        counts[place] += 1;
        self.0.set(counts);
    }
}

impl Observer for Counter {
    fn request(&mut self, event: &RequestEvent) {
        self.count(match event.outcome {
            RequestOutcome::Admitted => 0,
            RequestOutcome::Refused => 1,
            RequestOutcome::Waits => 2,
        });
    }

    fn message(&mut self, _: &SentMessage<'_>) {
        self.count(3);
    }
}

#[test]
fn an_observer_hears_of_each_request_and_message() {
    let envoys = json!([{"count": 5, "max_wait": "500ms"}]);
    let scenario = fleet(5, 110.0, json!({"envoys": envoys}));
    let mut run = Simulation::new(scenario, tenants(limit(500.0))).unwrap();
    let counter = Counter::default();
    run.observe(Box::new(counter.clone()));
    while run.step() {}
    let [admitted, refused, waited, messages] = counter.0.get();
    let figures = run.figures();
    assert_eq!([admitted, refused], [figures.admitted, figures.refused]);
    assert!(waited > refused && refused > 0, "{waited}, {refused}");
    assert_eq!(messages, figures.messages);
    let levels = run.levels();
    assert_eq!(levels.len(), 1);
    assert_eq!((levels[0].resources, levels[0].leases), (1, 5));
}

#[test]
fn a_capacity_of_each_envoy_is_no_bound_on_all() {
    for (algorithm, want) in [(Algorithm::Static, 200.0), (Algorithm::None, 220.0)] {
        let limit = Limit {
            algorithm,
            ..limit(50.0)
        };
        let scenario = fleet(4, 55.0, json!({}));
        let mut run = Simulation::new(scenario, tenants(limit)).unwrap();
        while run.step() {}
        let has = run.samples().last().unwrap().scopes[0].has.unwrap();
        assert!((has / want - 1.0).abs() < 0.1, "{algorithm:?}: {has}");
        assert_eq!(run.violations(), []);
        assert_eq!(run.figures().over_capacity, 0, "{algorithm:?}");
    }
}

#[test]
fn weights_of_mishaps_may_be_large() {
    let mishaps = json!({"every": "1s", "spike": u32::MAX, "spike_adds": 1, "elect": 1});
    let run = run(fleet(2, 10.0, json!({"mishaps": mishaps})), 100.0);
    assert_eq!(run.marks().len(), 31, "{:?}", run.marks());
}

#[test]
fn a_cut_off_coordinator_lends_safe_capacity_beside_the_capacity() {
    let scenario = fleet(
        0,
        100.0,
        json!({
            "duration": "60s",
            "coordinators": [{"name": "root"}, {"name": "leaf", "parent": "root"}],
            "envoys": [{"count": 2}, {"name": "below", "count": 2, "coordinator": "leaf"}],
            "events": [{"at": "20s", "cut":
                {"coordinator": "root", "envoys": {"group": "envoy"}, "for": "25s"}}],
        }),
    );
    let limit = Limit {
        safe: SafeCapacity::Fixed(Capacity::from_whole(5)),
        ..limit(200.0)
    };
    let mut simulation = Simulation::new(scenario, tenants(limit)).unwrap();
    simulation.run_until(Duration::from_secs(40));
    let clients = simulation.samples().last().unwrap().clients.iter();
    let has: Vec<f64> = clients.map(|client| client.has.unwrap()).collect();
    assert_eq!(has[2..], [5.0, 5.0], "{has:?}");
    assert!(has[0] + has[1] > 198.0, "{has:?}");
    while simulation.step() {}
    let has = simulation.samples().last().unwrap().has;
    assert!((198.0..=200.0).contains(&has), "{has}");
    assert_eq!(simulation.violations(), []);
    assert_eq!(simulation.figures().over_capacity, 0);
}

#[test]
fn a_cut_with_all_below_leaves_these_connected() {
    for with_below in [true, false] {
        let cut = json!({"coordinator": "leaf", "with_below": with_below, "for": "15s"});
        let more = json!({
            "coordinators": [{"name": "root"}, {"name": "leaf", "parent": "root"}],
            "envoys": [{"count": 2, "coordinator": "leaf"}],
            "events": [{"at": "10s", "cut": cut}],
        });
        let mut simulation = Simulation::new(fleet(2, 100.0, more), tenants(limit(150.0))).unwrap();
        let answered = [18, 19].map(|seconds| {
            simulation.run_until(Duration::from_secs(seconds));
            simulation.reached().of(Case::Answered)
        });
        assert_eq!(answered[1] > answered[0], with_below);
    }
}

#[test]
fn an_onlooker_can_make_things_happen() {
    let scenario = fleet(4, 100.0, json!({}));
    let mut simulation = Simulation::new(scenario, tenants(limit(200.0))).unwrap();
    simulation.run_until(Duration::from_secs(10));
    let kill: EventSpec = written(json!({"kill": {"for": "5s"}}));
    simulation.happen(kill).unwrap();
    for (seconds, envoys) in [(12, 0), (20, 4)] {
        simulation.run_until(Duration::from_secs(seconds));
        assert_eq!(simulation.samples().last().unwrap().envoys, envoys);
    }
    assert_eq!(simulation.marks()[0].at, 10.0);
    let stop = json!({"stop": {"coordinator": "rot", "for": "5s"}});
    let errors = simulation.happen(written(stop)).unwrap_err();
    assert!(
        errors[0].rule.contains("is none of coordinator"),
        "{errors:?}"
    );
}

#[test]
fn a_group_is_scaled_out_and_in_and_its_requests_go_to_those_that_run() {
    let scale = |at: &str, to: u32| {
        let how = json!({"group": "envoy", "to": to, "drain": "3s"});
        json!({"at": at, "scale": how})
    };
    let demand = json!([{"scope": "tenant/acme", "total": 100, "routing": "round_robin"}]);
    let events = json!([scale("10s", 5), scale("20s", 1)]);
    let run = run(
        fleet(2, 0.0, json!({"demand": demand, "events": events})),
        500.0,
    );
    let samples = |second: usize| &run.samples()[second - 1];
    let envoys = [9, 11, 22, 24, 29].map(|second| samples(second).envoys);
    assert_eq!(envoys, [2, 5, 5, 1, 1]);
    let wants = |second: usize| samples(second).clients.iter().map(|client| client.wants);
    assert!(wants(15).all(|wants| (wants - 20.0).abs() < 1e-6));
    // Those that drain are asked for nothing any more.
    assert_eq!(wants(22).collect::<Vec<_>>(), [100.0, 0.0, 0.0, 0.0, 0.0]);
    let limit = &run.limit_figures()[0];
    assert!(limit.asked > 2000, "{limit:?}");
    assert_eq!(limit.admitted, limit.asked, "{limit:?}");
}
