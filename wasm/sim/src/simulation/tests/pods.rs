//! Pods that come and go, and callers that come again.

use tollgate_core::units::Tokens;

use super::*;
use crate::defect::Defect;
use crate::figures::LimitFigures;
use crate::scenario::Routing;

/// Returns a scenario of so many Envoys to which `total` requests per second are sent in turn.
fn routed(count: u32, total: Program) -> Scenario {
    let mut scenario = fleet(count, 0.0);
    scenario.measure_from = Span::default();
    scenario.demand[0].each = None;
    scenario.demand[0].total = Some(total);
    scenario.demand[0].routing = Routing::RoundRobin;
    scenario
}

/// Returns the finished run with a limit on tenants, and the figures of that.
fn play(scenario: Scenario, rate: f64, burst: u64) -> (Simulation, LimitFigures) {
    play_with(scenario, rate, burst, None)
}

/// The same with a planted defect.
fn play_with(
    scenario: Scenario,
    rate: f64,
    burst: u64,
    defect: Option<Defect>,
) -> (Simulation, LimitFigures) {
    let limit = Limit {
        burst: Tokens::from_whole(burst),
        ..Limit::new(Capacity::try_from_f64(rate).unwrap())
    };
    let mut simulation = Simulation::new(scenario, vec![tenants(limit)]).unwrap();
    if defect.is_some() {
        simulation.inspect(defect);
    }
    while simulation.step() {}
    assert!(simulation.violations().is_empty());
    let limits = simulation.limit_figures();
    assert_eq!(limits.len(), 1, "{limits:?}");
    (simulation, limits[0].clone())
}

#[test]
fn a_group_is_scaled_out_and_in_and_its_requests_go_to_those_that_run() {
    let mut scenario = routed(2, Program::Constant(Amount(100.0)));
    let back = json!({"group": "envoy", "to": 1, "drain": "3s"});
    scenario.events = vec![
        event(10, "scale", json!({"group": "envoy", "to": 5})),
        event(20, "scale", back),
    ];
    let (run, limit) = play(scenario, 500.0, 500);
    let samples = |second: usize| &run.samples()[second - 1];
    let envoys = [9, 11, 22, 24, 29].map(|second| samples(second).envoys);
    assert_eq!(envoys, [2, 5, 5, 1, 1]);
    let wants = |second: usize| samples(second).clients.iter().map(|client| client.wants);
    assert!(wants(15).all(|wants| (wants - 20.0).abs() < 1e-6));
    // Those that drain are asked for nothing any more.
    assert_eq!(wants(22).collect::<Vec<_>>(), [100.0, 0.0, 0.0, 0.0, 0.0]);
    // A few came before the first Envoy ran.
    assert!(limit.asked >= 2990, "{limit:?}");
    assert_eq!(limit.admitted, limit.asked, "{limit:?}");
}

#[test]
fn a_coordinator_that_crashes_brings_no_token_back() {
    let crashes = |defect| {
        let mut scenario = routed(3, Program::Constant(Amount(1.0)));
        scenario.duration = Span::from_secs(120);
        scenario.events = [20, 50, 80].map(|at| crash(at, "2s")).into();
        play_with(scenario, 0.01, 10, defect).1
    };
    let kept = crashes(None);
    assert_eq!(kept.beyond_rest, 0.0, "{kept:?}");
    assert!(kept.admitted >= kept.ideal, "{kept:?}");
    let lost = crashes(Some(Defect::ForgottenBuckets));
    assert!(lost.beyond_rest >= 9.0, "{lost:?}");
}

#[test]
fn a_pod_that_drains_gives_its_leases_back() {
    let killed = |drain: &str| {
        let mut scenario = routed(2, Program::Constant(Amount(100.0)));
        let how = json!({"envoys": {"count": 1}, "drain": drain, "for": "30s"});
        scenario.events = vec![event(10, "kill", how)];
        play(scenario, 100.0, 100).0
    };
    let has = |run: &Simulation, second: usize| {
        let clients = run.samples()[second - 1].clients.iter();
        clients
            .map(|client| client.has.unwrap())
            .fold(0.0, f64::max)
    };
    let (drained, dead) = (killed("4s"), killed("0s"));
    assert!(has(&drained, 13) > 95.0, "{}", has(&drained, 13));
    assert!(has(&dead, 13) < 60.0, "{}", has(&dead, 13));
    assert_eq!(drained.samples()[12].envoys, 2);
    assert_eq!(drained.samples()[15].envoys, 1);
    assert_eq!(dead.samples()[12].envoys, 1);
    assert_eq!(drained.marks()[0].text, "1 Envoy drain");
}

#[test]
fn callers_that_come_again_after_the_time_named_all_pass_in_the_end() {
    let on = written(json!({"spike": {"from": 0, "to": 30, "at": "1s", "for": "1s"}}));
    let mut scenario = routed(1, on);
    scenario.demand[0].retries = 1000;
    let (run, limit) = play(scenario, 2.0, 10);
    assert_eq!((limit.asked, limit.ideal), (30, 30), "{limit:?}");
    assert!(limit.admitted >= 29, "{limit:?}");
    assert!((0.4..=1.1).contains(&limit.longest_pause), "{limit:?}");
    let figures = run.figures();
    assert!(
        figures.refused > 20 && figures.beyond_rest < 0.5,
        "{figures:?}"
    );
}

#[test]
fn excess_without_a_lease_is_told_from_other_excess() {
    let mut scenario = routed(3, Program::Constant(Amount(300.0)));
    scenario.events = vec![crash(5, "100s")];
    scenario.envoys[0].safe = Amount(20.0);
    // Leases end after 10 s; then each of three Envoys has 20.
    let (_, limit) = play(scenario, 40.0, 40);
    assert!(limit.beyond > 100.0, "{limit:?}");
    assert!(limit.beyond_safe > 0.8 * limit.beyond, "{limit:?}");
    assert!(limit.beyond_rest < 20.0, "{limit:?}");
}
