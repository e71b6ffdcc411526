//! Nudges: their gain for a fleet, and the ends of their streams.

use super::*;

/// Returns a scenario in which two of four Envoys want much less for a while, twice.
fn moving(more: Value) -> Scenario {
    let less = json!({"envoys": {"group": "one"}, "times": 0.1, "for": "5s"});
    let mut scenario = json!({
        "sample": "100ms", "measure_from": "6s",
        "envoys": [{"name": "one", "count": 2}, {"name": "other", "count": 2}],
        "events": [{"at": "10s", "demand": less}, {"at": "20s", "demand": less}],
    });
    if let (Some(scenario), Value::Object(mut more)) = (scenario.as_object_mut(), more) {
        scenario.append(&mut more);
    }
    fleet(4, 60.0, scenario)
}

/// Returns the same with a coordinator for each half of the Envoys, below a root that gets a new master.
fn tree() -> Scenario {
    let mut scenario = moving(json!({"coordinators": [
        {"name": "root"},
        {"name": "one", "parent": "root"},
        {"name": "other", "parent": "root"},
    ]}));
    for group in &mut scenario.envoys {
        group.coordinator = Some(group.name.clone());
    }
    let crash = json!({"coordinator": "root", "for": "100ms", "followed": true});
    let crash = json!({"at": "1s", "crash": crash});
    scenario.events.insert(0, written(crash));
    scenario
}

#[test]
fn a_fleet_with_nudges_is_fair_again_sooner_also_in_a_tree() {
    for scenario in [moving(json!({})), tree()] {
        let [with, without] = [true, false].map(|nudges| {
            let scenario = Scenario {
                nudges,
                ..scenario.clone()
            };
            let run = run(scenario, 160.0);
            assert_eq!(run.violations(), []);
            run.figures()
        });
        assert!(with.nudges > 0 && without.nudges == 0, "{with:?}");
        let [soon, late] = [&with, &without].map(|figures| figures.time_to_fair.unwrap());
        assert!(2.0 * soon < late, "{soon} {late}");
    }
}

#[test]
fn streams_end_with_the_coordinator_and_open_again() {
    let nudges = |hand_over: Option<EventSpec>| {
        let mut scenario = moving(json!({}));
        scenario.events.extend(hand_over);
        let mut run = Simulation::new(scenario, tenants(limit(160.0))).unwrap();
        [9_900, 10_800, 19_900, 30_000].map(|elapsed| {
            run.run_until(Duration::from_millis(elapsed));
            run.figures().nudges
        })
    };
    let [before, after, ..] = nudges(None);
    assert!(after > before, "{before} {after}");
    let how = json!({"coordinator": "coordinator", "for": "50ms"});
    let hand_over = written(json!({"at": "9900ms", "hand_over": how}));
    let [before, after, later, end] = nudges(Some(hand_over));
    assert_eq!(
        after, before,
        "an Envoy waits a second before it opens another stream"
    );
    assert!(end > later, "{later} {end}");
}
