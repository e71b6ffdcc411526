//! Workers of a process: how they interrupt each other, and what a process is without one of them.

use tollgate_core::lease::{Run, Unit};

use super::*;
use crate::WorkerTally;
use crate::limits::ScopeLimits;
use crate::scenario::{Bulky, Trap};

/// Limits on a unit of all scopes.
#[derive(Debug)]
struct UnitLimits(Unit, Limit);

impl LimitSource for UnitLimits {
    fn limits_of(&self, scope: &std::sync::Arc<str>) -> ScopeLimits {
        ScopeLimits::own(scope, [(self.0, self.1.clone())])
    }
}

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

fn tally(simulation: &Simulation) -> WorkerTally {
    let client = simulation.clients().next();
    client.expect("a process").tally()
}

#[test]
fn workers_interrupt_each_other_where_a_scenario_wants_it() {
    let alone = inspected(workers(300.0), limits(&[200]));
    assert_eq!(
        (tally(&alone).interleaved, tally(&alone).lost_writes),
        (0, 0)
    );
    let mut scenario = workers(300.0);
    scenario.envoys[0].interleaving = Share(0.25);
    let together = [(); 2].map(|()| inspected(scenario.clone(), limits(&[200])));
    let tally = tally(&together[0]);
    assert!(tally.interleaved > 0 && tally.lost_writes > 0, "{tally:?}");
    assert_eq!(together[0].digest(), together[1].digest());
    let admitted = together[0].clients().next().expect("one").admitted_total();
    assert!((5_500..=6_300).contains(&admitted), "{admitted}");
}

#[test]
fn a_process_goes_on_without_a_worker_that_is_lost() {
    let mut scenario = workers(300.0);
    scenario.events = (5..25)
        .map(|second| EventSpec {
            trap: Some(Trap::default()),
            ..at(second)
        })
        .collect();
    let simulation = inspected(scenario, limits(&[200]));
    let tally = tally(&simulation);
    assert!(
        tally.traps > tally.traps_within && tally.traps_within > 0,
        "{tally:?}"
    );
    let client = simulation.clients().next().expect("one");
    assert_eq!(client.has().as_f64(), 200.0);
    assert!(client.admitted_total() > 5_000, "{tally:?}");
}

#[test]
fn a_process_that_starts_again_may_keep_its_id() {
    for keeps_id in [true, false] {
        let mut scenario = workers(100.0);
        scenario.envoys[0].keeps_id = keeps_id;
        scenario.events = vec![EventSpec {
            kill: Some(Kill::default()),
            ..at(10)
        }];
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
    let tally = tally(&inspected(scenario, limits(&[200])));
    assert!(tally.left > 0 && tally.went > 0, "{tally:?}");
}

#[test]
fn bulky_bodies_are_paid_as_well() {
    let limit = |unit| {
        let limit = Limit::new(Capacity::from_whole(100_000));
        vec![Box::new(UnitLimits(unit, limit)) as Box<dyn LimitSource>]
    };
    let mut scenario = workers(200.0);
    scenario.demand[0].bytes = [1000, 0];
    let even = inspected(scenario.clone(), limit(Unit::RequestBytes));
    scenario.demand[0].bulky = Some(Bulky {
        chance: Share(0.1),
        until: Span::from_secs(15),
    });
    let bulky = inspected(scenario, limit(Unit::RequestBytes));
    for simulation in [&even, &bulky] {
        let client = simulation.clients().next().expect("one");
        let bytes = client.admitted_total();
        assert!((2_500_000..=3_300_000).contains(&bytes), "{bytes}");
    }
    let largest = |simulation: &Simulation| simulation.clients().next().map(|one| one.largest());
    assert_eq!([&even, &bulky].map(largest), [Some(1000), Some(20_000)]);
}
