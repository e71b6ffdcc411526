//! Workers of a process: how they interrupt each other, and what a process is without one of them.

use tollgate_core::lease::Run;

use super::*;
use crate::simulation::reached::Case;

/// Returns a fleet of one Envoy with four workers.
fn workers(each: f64) -> Scenario {
    let mut scenario = fleet(1, each);
    scenario.envoys[0].workers = 4;
    scenario.envoys[0].resolution = Span::from_millis(10);
    scenario
}

fn inspected(scenario: Scenario, limits: Vec<Box<dyn LimitSource>>) -> Simulation {
    let mut simulation = Simulation::new(scenario, limits).unwrap();
    simulation.inspect(None);
    while simulation.step() {
        for client in simulation.touched_clients() {
            assert_eq!(client.broken(), None);
            client.check_counts().unwrap();
        }
    }
    simulation
}

/// Returns how often the workers of the first process reached each case.
fn reached<const N: usize>(simulation: &Simulation, cases: [Case; N]) -> [u64; N] {
    let client = simulation.clients().next().expect("a process");
    cases.map(|case| client.tally().of(case))
}

#[test]
fn workers_interrupt_each_other_where_a_scenario_wants_it() {
    let alone = inspected(workers(300.0), limits(&[200]));
    let cases = [Case::Interleaved, Case::WriteLost];
    assert_eq!(reached(&alone, cases), [0, 0]);
    let mut scenario = workers(300.0);
    scenario.envoys[0].interleaving = Share(0.25);
    let together = [(); 2].map(|()| inspected(scenario.clone(), limits(&[200])));
    let counts = reached(&together[0], cases);
    assert!(!counts.contains(&0), "{counts:?}");
    assert_eq!(together[0].digest(), together[1].digest());
    let admitted = together[0].clients().next().expect("one").admitted_total();
    assert!((5_500..=6_300).contains(&admitted), "{admitted}");
}

#[test]
fn a_process_goes_on_without_a_worker_that_is_lost() {
    let mut scenario = workers(300.0);
    scenario.events = (5..25).map(|at| event(at, "trap", json!({}))).collect();
    let simulation = inspected(scenario, limits(&[200]));
    let [all, within] = reached(&simulation, [Case::Trapped, Case::TrappedWithin]);
    assert!(all > within && within > 0, "{all} {within}");
    let client = simulation.clients().next().expect("one");
    assert_eq!(client.has().as_f64(), 200.0);
    assert!(client.admitted_total() > 5_000);
}

#[test]
fn a_process_that_starts_again_may_keep_its_id() {
    for keeps_id in [true, false] {
        let mut scenario = workers(100.0);
        scenario.envoys[0].keeps_id = keeps_id;
        scenario.events = vec![event(10, "kill", json!({}))];
        let mut simulation = Simulation::new(scenario, limits(&[200])).unwrap();
        simulation.inspect(None);
        let mut runs = Vec::new();
        for seconds in [9, 30] {
            simulation.run_until(Duration::from_secs(seconds));
            let client = simulation.clients().next().expect("one");
            assert!(client.has() > Capacity::ZERO);
            runs.push(client.run().clone());
        }
        assert_eq!(runs[0].id == runs[1].id, keeps_id);
        assert!(runs[0].run != runs[1].run);
        let first = matches!(runs[0].run, Run::Incarnation(number) if number.get() == 1);
        assert_eq!(first, keeps_id);
    }
}

#[test]
fn callers_give_up_where_a_scenario_wants_it() {
    let mut scenario = workers(300.0);
    scenario.envoys[0].max_wait = Span::from_secs(5);
    scenario.envoys[0].gives_up = Share(0.02);
    let run = inspected(scenario, limits(&[200]));
    let counts = reached(&run, [Case::Left, Case::WentOn]);
    assert!(!counts.contains(&0), "{counts:?}");
}

#[test]
fn bulky_bodies_are_paid_as_well() {
    let limit =
        || -> Vec<Box<dyn LimitSource>> { vec![Box::new(UnitLimits(Unit::RequestBytes, 100_000))] };
    let mut scenario = workers(200.0);
    scenario.demand[0].bytes = [1000, 0];
    let even = inspected(scenario.clone(), limit());
    let bulky = json!({"chance": 0.1, "until": "15s"});
    scenario.demand[0].bulky = written(bulky);
    let bulky = inspected(scenario, limit());
    for simulation in [&even, &bulky] {
        let client = simulation.clients().next().expect("one");
        let bytes = client.admitted_total();
        assert!((2_500_000..=3_300_000).contains(&bytes), "{bytes}");
    }
    let largest = |simulation: &Simulation| simulation.clients().next().map(|one| one.largest());
    assert_eq!([&even, &bulky].map(largest), [Some(1000), Some(20_000)]);
}
