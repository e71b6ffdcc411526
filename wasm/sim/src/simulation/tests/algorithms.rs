//! All algorithms on one fleet.

use super::*;

/// Returns the figures of a fleet of which two Envoys want little, though enough for a lease, two more than an equal part, and
/// one far more, with `algorithm` in place of the limit's.
fn figures(algorithm: Algorithm) -> Figures {
    let mut scenario = fleet(0, 0.0);
    let shape = scenario.demand.remove(0);
    scenario.envoys.clear();
    for (name, count, each) in [
        ("small", 2, 25.0),
        ("middle", 2, 50.0),
        ("large", 1, 1000.0),
    ] {
        let group = json!({"name": name, "count": count});
        scenario.envoys.push(written(group));
        scenario.demand.push(DemandSpec {
            envoys: written(json!({"group": name})),
            each: Some(Program::Constant(Amount(each))),
            ..shape.clone()
        });
    }
    let run = Simulation::with_algorithm(scenario, limits(&[200]), Some(algorithm));
    let mut run = run.unwrap();
    while run.step() {}
    assert_eq!(run.violations(), []);
    run.figures()
}

#[test]
fn max_min_is_the_measure_of_fairness() {
    let fair = figures(Algorithm::FairShare);
    assert_eq!((fair.over_capacity, fair.unfair_at_end), (0, 0), "{fair:?}");
    assert!(fair.fairness > Some(0.999), "{fair:?}");
    assert!(fair.longest_time_to_fair <= Some(1.0), "{fair:?}");
    for algorithm in [
        Algorithm::ProportionalShare,
        Algorithm::UsageShare,
        Algorithm::MaxRate,
    ] {
        let figures = figures(algorithm);
        assert_eq!(figures.contended, 25, "{algorithm:?}");
        assert_eq!(figures.over_capacity, 0, "{algorithm:?}: {figures:?}");
        assert!(
            figures.fairness < fair.fairness,
            "{algorithm:?}: {figures:?}"
        );
    }
}

#[test]
fn what_a_capacity_of_each_envoy_exceeds_is_shown() {
    let own = figures(Algorithm::Static);
    // Four have the 150 that they want, the fifth all of the 200.
    assert!((own.worst - 1.75).abs() < 0.01, "{own:?}");
    assert_eq!(own.over_capacity, 25, "{own:?}");
    // Four have their shares, the fifth four times its 50.
    assert!((own.fairness.unwrap() - 0.64).abs() < 0.01, "{own:?}");
    assert_eq!(own.unfair_at_end, 1, "{own:?}");
}
