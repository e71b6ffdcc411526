use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;

use super::*;
use crate::limits::FixedLimits;
use crate::scenario::{Amount, DemandSpec, EnvoyGroup, Program, Scenario, Span};

const ACME: &str = "tenant/acme";

/// Returns two Envoys that want 80 each of a capacity of 100, ten seconds after the start.
fn running() -> Simulation {
    let scenario = Scenario {
        duration: Span::from_secs(1000),
        seed: 1,
        envoys: vec![EnvoyGroup {
            count: 2,
            ..EnvoyGroup::default()
        }],
        demand: vec![DemandSpec {
            scope: Some(ACME.to_owned()),
            each: Some(Program::Constant(Amount(80.0))),
            ..DemandSpec::default()
        }],
        ..Scenario::default()
    };
    let limit = Limit::new(Capacity::from_whole(100));
    let limits = FixedLimits::new([("tenant/".to_owned(), limit)]);
    let mut simulation = Simulation::new(scenario, vec![Box::new(limits)]).unwrap();
    pass(&mut simulation, 10);
    simulation
}

fn pass(simulation: &mut Simulation, seconds: u64) {
    simulation.run_until(simulation.elapsed() + Duration::from_secs(seconds));
}

fn status(simulation: &Simulation, envoy: usize) -> EnvoyStatus {
    simulation.envoy_status(envoy, ACME).unwrap()
}

#[test]
fn a_demand_that_falls_leaves_the_capacity_to_others() {
    let mut simulation = running();
    let before = status(&simulation, 1);
    assert!((45.0..=50.0).contains(&before.has), "{before:?}");
    simulation.set_demand(0, 0.0);
    pass(&mut simulation, 30);
    let after = status(&simulation, 1);
    assert!(after.has >= 80.0 && after.rate == after.has, "{after:?}");
    assert!(after.admitted > before.admitted && before.refused > 0);
    assert_eq!(status(&simulation, 0).wants, 0.0);
    simulation.set_demand(0, f64::NAN);
    simulation.set_demand(7, 1.0);
    assert_eq!(status(&simulation, 0).wants, 0.0);
    assert!(simulation.violations().is_empty());
}

#[test]
fn an_envoy_that_is_cut_off_uses_its_lease_and_then_its_safe_capacity() {
    let mut simulation = running();
    simulation.cut_off(1);
    pass(&mut simulation, 5);
    let during = status(&simulation, 1);
    let left = during.lease_left.unwrap();
    assert!(
        left < Duration::from_secs(6) && during.has > 0.0,
        "{during:?}"
    );
    assert!(during.rate == during.has && during.fallback == 10.0);
    pass(&mut simulation, 10);
    let after = status(&simulation, 1);
    let want = (None, 0.0, 10.0);
    assert_eq!((after.lease_left, after.has, after.rate), want);
    simulation.connect(1);
    pass(&mut simulation, 20);
    assert!(status(&simulation, 1).has >= 45.0);
    assert!(simulation.violations().is_empty());
}

#[test]
fn a_coordinator_that_starts_again_learns_and_then_lends() {
    let mut simulation = running();
    let state = |simulation: &Simulation| simulation.coordinator_status(0).unwrap();
    assert_eq!(state(&simulation), CoordinatorStatus::Lending);
    simulation.stop_coordinator(0);
    assert_eq!(state(&simulation), CoordinatorStatus::Down);
    pass(&mut simulation, 3);
    simulation.start_coordinator(0);
    pass(&mut simulation, 3);
    assert!(matches!(state(&simulation), CoordinatorStatus::Learning(_)));
    pass(&mut simulation, 20);
    assert_eq!(state(&simulation), CoordinatorStatus::Lending);
    simulation.apply_limits(0);
    assert_eq!(simulation.coordinator_status(1), None);
    assert!(simulation.violations().is_empty());
}
