use std::cell::Cell;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_core::lease::Unit;
use tollgate_core::limit::{Algorithm, Limit};

use super::*;
use crate::limits::{FixedLimits, ScopeLimits};
use crate::observer::{RequestEvent, RequestOutcome, SentMessage};
use crate::scenario::{
    Amount, Arrivals, CoordinatorSpec, DemandSpec, EnvoyGroup, EventSpec, OnOff, Program, Routing,
    Share, Span,
};

mod algorithms;
mod groups;
mod ideal;
mod masters;
mod nudges;
mod pods;
mod units;
mod workers;

/// Returns a scenario of so many Envoys that want `each` of one scope.
fn fleet(count: u32, each: f64) -> Scenario {
    Scenario {
        duration: Span::from_secs(30),
        seed: 1,
        measure_from: Span::from_secs(5),
        envoys: vec![EnvoyGroup {
            count,
            ..EnvoyGroup::default()
        }],
        demand: vec![DemandSpec {
            scope: Some("tenant/acme".to_owned()),
            each: Some(Program::Constant(Amount(each))),
            arrivals: Arrivals::Even,
            ..DemandSpec::default()
        }],
        ..Scenario::default()
    }
}

/// Returns a limit on tenants.
fn tenants(limit: Limit) -> Box<dyn LimitSource> {
    Box::new(FixedLimits::new([("tenant/".to_owned(), limit)]))
}

/// Returns a limit on tenants, and others for events.
fn limits(capacities: &[u64]) -> Vec<Box<dyn LimitSource>> {
    let limits = capacities.iter();
    let limits = limits.map(|capacity| tenants(Limit::new(Capacity::from_whole(*capacity))));
    limits.collect()
}

/// Limit on one unit of all scopes.
#[derive(Debug)]
struct UnitLimits(Unit, u64);

impl LimitSource for UnitLimits {
    fn limits_of(&self, scope: &Arc<str>) -> ScopeLimits {
        let limit = Limit::new(Capacity::from_whole(self.1));
        ScopeLimits::own(scope, [(self.0, limit)])
    }
}

/// Returns the finished run of a scenario with a limit on tenants, and others for events.
fn run(scenario: Scenario, capacities: &[u64]) -> Simulation {
    let mut simulation = Simulation::new(scenario, limits(capacities)).unwrap();
    while simulation.step() {}
    assert!(simulation.is_over());
    simulation
}

/// Returns a part of a scenario from how users write it.
fn written<T: DeserializeOwned>(text: Value) -> T {
    serde_json::from_value(text).unwrap()
}

/// Returns an event at a time in seconds.
fn event(at: u64, change: &str, how: Value) -> EventSpec {
    written(json!({"at": format!("{at}s"), change: how}))
}

fn crash(at: u64, lasts: &str) -> EventSpec {
    event(
        at,
        "crash",
        json!({"coordinator": "coordinator", "for": lasts}),
    )
}

/// Returns coordinators called so, each below the one before.
fn chain(names: &[&str]) -> Vec<CoordinatorSpec> {
    let mut parent = None;
    let below = |name: &&str| CoordinatorSpec {
        name: (*name).to_owned(),
        parent: parent.replace((*name).to_owned()),
        ..CoordinatorSpec::default()
    };
    names.iter().map(below).collect()
}

/// Returns the seconds of `run` in which the leases were `holds`.
fn seconds(run: &Simulation, holds: impl Fn(f64) -> bool) -> Vec<u64> {
    let samples = run.samples().iter();
    let found = samples.filter(|sample| holds(sample.has));
    found.map(|sample| sample.at as u64).collect()
}

#[test]
fn a_fleet_shares_what_it_wants_too_much_of() {
    let run = run(fleet(5, 110.0), &[500]);
    let figures = run.figures();
    assert_eq!(run.violations(), []);
    // They draw for a second, for it may be a burst.
    assert!(figures.first_lease.unwrap() < 1.5, "{figures:?}");
    assert!(figures.of_capacity > 0.99, "{figures:?}");
    assert_eq!(figures.over_capacity, 0, "{figures:?}");
    assert!((1.0..=1.1).contains(&figures.most_admitted), "{figures:?}");
    // The burst of a second is spent within ten.
    let admitted: f64 = run.samples().iter().skip(15).map(|s| s.admitted).sum();
    let mean = admitted / 15.0;
    assert!((495.0..=502.0).contains(&mean), "{mean}");
    let last = run.samples().last().unwrap();
    assert_eq!(last.clients.len(), 5);
    let fair = |client: &crate::sample::ClientSample| (client.has.unwrap() - 100.0).abs() < 0.1;
    assert!(last.clients.iter().all(fair), "{last:?}");
}

#[test]
fn a_request_of_five_tokens_counts_as_five() {
    let mut scenario = fleet(5, 22.0);
    scenario.demand[0].cost = Some(5);
    let run = run(scenario, &[500]);
    assert_eq!(run.violations(), []);
    let last = run.samples().last().unwrap();
    assert!((last.wants - 550.0).abs() < 1e-6, "{last:?}");
    let fair = |client: &crate::sample::ClientSample| (client.has.unwrap() - 100.0).abs() < 1.0;
    assert!(last.clients.iter().all(fair), "{last:?}");
    let admitted: f64 = run.samples().iter().skip(15).map(|s| s.admitted).sum();
    let mean = admitted / 15.0;
    assert!((490.0..=507.0).contains(&mean), "{mean}");
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
    let mut scenario = fleet(5, 110.0);
    scenario.envoys[0].max_wait = Span::from_millis(500);
    let mut run = Simulation::new(scenario, limits(&[500])).unwrap();
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
    assert_eq!(levels[0].messages, figures.messages);
    assert_eq!(levels[0].refreshes, figures.refreshes);
    assert_eq!((levels[0].resources, levels[0].leases), (1, 5));
}

#[test]
fn a_capacity_of_each_envoy_is_no_bound_on_all() {
    for (algorithm, want) in [(Algorithm::Static, 200.0), (Algorithm::None, 220.0)] {
        let mut limit = Limit::new(Capacity::from_whole(50));
        limit.algorithm = algorithm;
        let mut run = Simulation::new(fleet(4, 55.0), vec![tenants(limit)]).unwrap();
        while run.step() {}
        let has = run.samples().last().unwrap().scopes[0].has.unwrap();
        assert!((has / want - 1.0).abs() < 0.1, "{algorithm:?}: {has}");
        assert_eq!(run.violations(), []);
        assert_eq!(run.figures().over_capacity, 0, "{algorithm:?}");
    }
}

#[test]
fn a_scope_without_a_limit_has_no_sum_of_leases() {
    let mut scenario = fleet(3, 10.0);
    scenario.demand.push(DemandSpec {
        scope: Some("route/free".to_owned()),
        each: Some(Program::Constant(Amount(10.0))),
        ..DemandSpec::default()
    });
    let run = run(scenario, &[100]);
    assert_eq!(run.unlimited_scopes(), ["route/free"]);
    let last = run.samples().last().unwrap();
    let [limited, free] = [last.scopes[0], last.scopes[1]];
    assert!(limited.has.is_some() && limited.capacity == Some(100.0));
    assert_eq!((free.has, free.capacity), (None, None));
    assert!(free.admitted > 20.0 && last.has <= 100.0, "{last:?}");
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let course = |seed| {
        let mut scenario = fleet(3, 30.0);
        scenario.demand.push(DemandSpec {
            each: None,
            total: Some(Program::OnOff(OnOff {
                rate: Amount(60.0),
                on: Span::from_secs(3),
                off: Span::from_secs(3),
                at: Span::default(),
            })),
            routing: Routing::Sticky,
            ..scenario.demand[0].clone()
        });
        scenario.seed = seed;
        scenario.network.loss = Share(0.1);
        scenario.network.duplication = Share(0.1);
        scenario.demand[0].arrivals = Arrivals::Poisson;
        let run = run(scenario, &[100]);
        assert!(run.figures().messages_lost > 0 && run.figures().nudges > 0);
        (run.digest(), run.events(), format!("{:?}", run.figures()))
    };
    assert_eq!(course(1), course(1));
    assert_ne!(course(1), course(2));
}

#[test]
fn leases_that_are_handed_over_are_not_lost_and_those_of_a_crash_are_learned() {
    let with = |event| Scenario {
        events: vec![event],
        ..fleet(4, 100.0)
    };
    let how = json!({"coordinator": "coordinator", "for": "1s"});
    for event in [event(10, "hand_over", how), crash(10, "2s")] {
        let run = run(with(event), &[200]);
        assert_eq!(run.figures().leases_lost, 0, "{:?}", run.marks());
        assert!(run.figures().of_capacity > 0.99, "{:?}", run.figures());
        assert_eq!(run.marks().len(), 2, "{:?}", run.marks());
    }
    // Leases of ten seconds do not last fifteen.
    let run = run(with(crash(10, "15s")), &[200]);
    assert_eq!(run.figures().leases_lost, 4);
    let gone = seconds(&run, |has| has == 0.0);
    assert!(gone.contains(&21) && !gone.contains(&18), "{gone:?}");
    assert_eq!(run.violations(), []);
}

#[test]
fn a_clock_that_is_far_too_slow_breaks_a_law_and_is_seen() {
    let scenario = |drift_ppm| {
        let mut scenario = fleet(2, 100.0);
        scenario.envoys[0].drift_ppm = drift_ppm;
        let how = json!({"envoys": {"count": 1}, "for": "25s"});
        scenario.events = vec![event(5, "cut", how)];
        scenario
    };
    let broken = |seed, drift_ppm| {
        let mut scenario = scenario(drift_ppm);
        scenario.seed = seed;
        let run = run(scenario, &[100]);
        let broken = run.violations().first();
        assert!(run.violations().len() <= 1, "{:?}", run.violations());
        broken.map(|broken| (broken.text.clone(), run.figures().over_capacity))
    };
    let found = (0..20).find_map(|seed| broken(seed, 400_000));
    let (text, samples) = found.unwrap();
    assert!(text.starts_with("law 1: the leases of tenant/acme sum to "));
    assert!(samples > 1, "{samples}");
    for seed in 0..20 {
        assert_eq!(broken(seed, 100), None, "seed {seed}");
    }
}

#[test]
fn lowered_limits_hold_after_one_lease() {
    let mut scenario = fleet(4, 100.0);
    scenario.events = vec![event(15, "limits", json!(1))];
    let run = run(scenario, &[300, 80]);
    assert_eq!(run.violations(), []);
    let over = seconds(&run, |has| has > 80.5);
    assert!(over.contains(&14) && !over.contains(&26), "{over:?}");
}

#[test]
fn demand_that_stops_for_a_while_comes_back() {
    let mut scenario = fleet(2, 50.0);
    let how = json!({"times": 0, "for": "10s"});
    scenario.events = vec![event(10, "demand", how)];
    let run = run(scenario, &[200]);
    let wants = |second: usize| run.samples()[second - 1].wants;
    assert_eq!([wants(9), wants(15), wants(25)], [100.0, 0.0, 100.0]);
}

#[test]
fn weights_of_mishaps_may_be_large() {
    let mut scenario = fleet(2, 10.0);
    let mishaps = json!({"every": "1s", "spike": u32::MAX, "spike_adds": 1, "elect": 1});
    scenario.mishaps = written(mishaps);
    let run = run(scenario, &[100]);
    assert_eq!(run.marks().len(), 31, "{:?}", run.marks());
}

#[test]
fn a_deploy_replaces_every_envoy() {
    let mut scenario = fleet(6, 20.0);
    let how = json!({"batch": 2, "every": "4s", "for": "1s"});
    scenario.events = vec![event(10, "deploy", how)];
    let run = run(scenario, &[300]);
    assert!(run.envoys.iter().all(|envoy| envoy.incarnation == 1));
    let envoys = run.samples().iter().map(|sample| sample.envoys);
    assert_eq!(envoys.min(), Some(4));
    assert_eq!(run.samples().last().unwrap().envoys, 6);
    assert!(run.figures().of_attainable > 0.95, "{:?}", run.figures());
}

#[test]
fn a_cut_off_coordinator_lends_safe_capacity_beside_the_capacity() {
    let mut scenario = fleet(2, 100.0);
    scenario.duration = Span::from_secs(60);
    scenario.coordinators = chain(&["root", "leaf"]);
    let below = json!({"name": "below", "count": 2, "coordinator": "leaf"});
    scenario.envoys.push(written(below));
    let how = json!({"coordinator": "root", "envoys": {"group": "envoy"}, "for": "25s"});
    scenario.events = vec![event(20, "cut", how)];
    let mut limit = Limit::new(Capacity::from_whole(200));
    limit.safe = tollgate_core::limit::SafeCapacity::Fixed(Capacity::from_whole(5));
    let mut simulation = Simulation::new(scenario, vec![tenants(limit)]).unwrap();
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
fn what_stands_still_answers_later() {
    let mut scenario = fleet(3, 100.0);
    let how = json!({"coordinator": "coordinator", "for": "4s"});
    scenario.events = vec![event(10, "stop", how)];
    let run = run(scenario, &[200]);
    assert_eq!(run.figures().leases_lost, 0);
    assert_eq!(run.violations(), []);
    assert!(run.figures().of_capacity > 0.99, "{:?}", run.figures());
}

#[test]
fn envoys_that_stand_still_go_on() {
    let mut scenario = fleet(3, 100.0);
    let how = json!({"envoys": {}, "for": "1s"});
    scenario.events = vec![event(10, "stop", how)];
    let run = run(scenario, &[200]);
    assert!(run.figures().of_capacity > 0.9, "{:?}", run.figures());
}

#[test]
fn an_onlooker_can_make_things_happen() {
    let mut simulation = Simulation::new(fleet(4, 100.0), limits(&[200])).unwrap();
    simulation.run_until(Duration::from_secs(10));
    let kill = event(0, "kill", json!({"for": "5s"}));
    simulation.happen(kill).unwrap();
    simulation.run_until(Duration::from_secs(12));
    assert_eq!(simulation.samples().last().unwrap().envoys, 0);
    simulation.run_until(Duration::from_secs(20));
    assert_eq!(simulation.samples().last().unwrap().envoys, 4);
    assert_eq!(simulation.marks()[0].at, 10.0);
    let errors = simulation.happen(EventSpec::default()).unwrap_err();
    assert!(errors[0].rule.contains("0 changes"), "{errors:?}");
}

#[test]
fn a_scenario_that_breaks_rules_is_refused_with_all_of_them() {
    let mut scenario = fleet(1, 1.0);
    scenario.demand[0].total = Some(Program::Constant(Amount(1.0)));
    scenario.envoys[0].coordinator = Some("rot".to_owned());
    scenario.events = written(json!([{"at": "1s"}, {"at": "99s"}]));
    let errors = Simulation::new(scenario, Vec::new()).unwrap_err();
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    let want = [
        "envoys[0].coordinator",
        "demand[0]",
        "events[0]",
        "events[1]",
        "events[1].at",
    ];
    assert_eq!(fields, want);
    assert!(
        errors[0].rule.contains("\"rot\" is none of coordinator"),
        "{errors:?}"
    );
}
