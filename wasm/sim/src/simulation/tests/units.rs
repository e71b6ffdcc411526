//! Ideal limits of other units than requests.

use super::*;
use crate::figures::LimitFigures;

/// Returns the figures of the limit, to which so many requests per second come at each of `envoys`.
fn play(envoys: u32, each: f64, limit: (Unit, u64)) -> LimitFigures {
    play_long(envoys, each, limit, 500)
}

/// The same with requests that take so many milliseconds.
fn play_long(envoys: u32, each: f64, (unit, most): (Unit, u64), takes: u64) -> LimitFigures {
    let mut scenario = fleet(envoys, each);
    scenario.measure_from = Span::default();
    scenario.demand[0].arrivals = Arrivals::Poisson;
    scenario.demand[0].takes = Span::from_millis(takes);
    scenario.demand[0].bytes = [0, 50_000];
    let limits = Box::new(UnitLimits(unit, most));
    let mut run = Simulation::new(scenario, vec![limits]).unwrap();
    assert_eq!(run.unlimited_scopes(), Vec::<&str>::new());
    while run.step() {}
    let limits = run.limit_figures();
    assert_eq!(
        (limits.len(), limits[0].unit),
        (1, unit.name()),
        "{limits:?}"
    );
    limits[0].clone()
}

#[test]
fn a_count_of_requests_in_flight_stands_beside_permits() {
    let limit = play(1, 20.0, (Unit::Concurrency, 5));
    assert!(
        (0.95..=1.05).contains(&limit.of_ideal.unwrap()),
        "{limit:?}"
    );
    // Twice as many come as there is room for.
    assert!(limit.ideal * 4 < limit.asked * 3, "{limit:?}");
}

/// Requests of half a second each, through each Envoy.
#[test]
fn a_permit_is_wherever_it_is_needed() {
    for (envoys, max, rate) in [
        (2, 3, 12.0),
        (5, 3, 12.0),
        (5, 20, 12.0),
        (40, 5, 12.0),
        (40, 20, 12.0),
        (5, 100, 160.0),
        (40, 200, 320.0),
    ] {
        let limit = play(envoys, rate / f64::from(envoys), (Unit::Concurrency, max));
        assert_eq!(limit.beyond, 0.0, "{envoys} Envoys: {limit:?}");
        assert!(
            limit.of_ideal.unwrap() >= 0.99,
            "{envoys} Envoys: {limit:?}"
        );
    }
}

/// A lease of ten seconds ends meanwhile, and shares change.
#[test]
fn requests_that_outlast_their_lease_stay_counted() {
    for (envoys, max, rate) in [(2, 5, 2.0), (5, 5, 3.0), (10, 20, 20.0)] {
        let each = rate / f64::from(envoys);
        let limit = play_long(envoys, each, (Unit::Concurrency, max), 14_000);
        assert_eq!(limit.beyond, 0.0, "{envoys} Envoys: {limit:?}");
        assert!(limit.admitted * 10 >= limit.ideal * 9, "{limit:?}");
    }
}

#[test]
fn bytes_that_come_late_explain_what_passes_beyond() {
    let limit = play(1, 40.0, (Unit::ResponseBytes, 1_000_000));
    assert!((0.9..=1.1).contains(&limit.of_ideal.unwrap()), "{limit:?}");
    assert!(limit.beyond > 0.0 && limit.beyond_safe == 0.0, "{limit:?}");
    assert!(limit.beyond_late >= 0.5 * limit.beyond, "{limit:?}");
    assert_eq!(limit.beyond, limit.beyond_late + limit.beyond_rest);
}
