use serde_json::{Value, json};

use super::*;

/// Returns the errors of a scenario: two Envoys near in eu that are asked for one scope, and two far in
/// asia, with some fields as users write them.
fn errors_of(more: Value) -> Vec<ScenarioError> {
    let mut scenario = json!({
        "duration": "10s",
        "envoys": [
            {"name": "near", "region": "eu", "count": 2},
            {"name": "far", "region": "asia", "count": 2},
        ],
        "demand": [{"scope": "tenant/t", "each": 1}],
    });
    if let (Some(scenario), Value::Object(mut more)) = (scenario.as_object_mut(), more) {
        scenario.append(&mut more);
    }
    let scenario: Scenario = serde_json::from_value(scenario).unwrap();
    scenario.check(0)
}

/// Asserts the fields and rules of all errors, each row's with some fields.
#[track_caller]
fn assert_errors<const N: usize>(rows: [(Value, &[(&str, &str)]); N]) {
    for (more, want) in rows {
        let text = more.to_string();
        let errors = errors_of(more);
        let fields: Vec<_> = errors.iter().map(|error| &*error.field).collect();
        let wanted: Vec<_> = want.iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, wanted, "{text}: {errors:?}");
        for (error, (_, rule)) in errors.iter().zip(want) {
            assert!(error.rule.contains(rule), "{text}: {error}");
        }
    }
}

#[test]
fn what_does_not_fit_into_memory_is_refused() {
    let fleet = |envoys: u32, scopes: u32, chosen: Value| {
        json!({
            "envoys": [{"count": envoys}],
            "demand": [
                {"scopes": {"prefix": "tenant/t", "count": scopes}, "each": 1, "envoys": chosen},
            ],
        })
    };
    let many = |scopes| fleet(1_000_000, scopes, json!({}));
    assert_errors([
        (many(20), &[]),
        (
            many(21),
            &[("demand", "know 21000000 scopes, more than 20000000")],
        ),
        // They know no more than max_scopes, 10 000 each.
        (fleet(2000, 1_000_000, json!({})), &[]),
        (
            fleet(2001, 1_000_000, json!({})),
            &[("demand", "know 20010000")],
        ),
        (fleet(1_000_000, 1_000_000, json!({"count": 3})), &[]),
        (
            fleet(u32::MAX, 1, json!({})),
            &[
                ("envoys", "4294967295 Envoys are not between"),
                ("demand", "know"),
            ],
        ),
        (json!({"sample": "1us"}), &[("sample", "10000000 samples")]),
    ]);
}

#[test]
fn what_events_name_has_to_be_there() {
    let events = |event: Value| json!({"events": [event]});
    let kill = |envoys: Value| events(json!({"kill": {"envoys": envoys}}));
    let cut = |cut: Value| events(json!({"cut": cut}));
    let deploy = |batch: u32, envoys: Value| {
        events(json!({"deploy": {"batch": batch, "every": "1s", "envoys": envoys}}))
    };
    let scale = |group: &str, to: u32| events(json!({"scale": {"group": group, "to": to}}));
    let (count, group) = ("events[0].kill.envoys.count", "events[0].kill.envoys.group");
    assert_errors([
        (kill(json!({"count": 4})), &[]),
        (
            kill(json!({"count": 5})),
            &[(count, "5 is more than the 4")],
        ),
        (
            kill(json!({"count": 3, "group": "far"})),
            &[(count, "3 is more than the 2")],
        ),
        (kill(json!({"count": 0})), &[(count, "chooses no Envoy")]),
        (
            kill(json!({"count": 1, "group": "fra"})),
            &[(group, "\"fra\" is none of near, far")],
        ),
        (cut(json!({"region": "asia"})), &[]),
        (
            cut(json!({"region": "asai"})),
            &[("events[0].cut.region", "\"asai\" is none of asia, eu")],
        ),
        (
            cut(json!({})),
            &[("events[0].cut", "needs a region, a coordinator or envoys")],
        ),
        (deploy(4, json!({})), &[]),
        (
            deploy(5, json!({})),
            &[("events[0].deploy.batch", "5 is more than the 4 Envoys")],
        ),
        (
            deploy(2, json!({"count": 1, "group": "far"})),
            &[("events[0].deploy.batch", "2 is more than the 1 Envoys")],
        ),
        (scale("far", 0), &[]),
        (
            scale("fra", 9),
            &[("events[0].scale.group", "\"fra\" is none of near, far")],
        ),
        (scale("far", u32::MAX), &[("envoys", "are not between")]),
    ]);
}

#[test]
fn settings_and_steps_have_bounds() {
    let short = json!({
        "envoys": [{"tick": "1us", "idle_after": "0", "resolution": "0", "priority": 16}],
        "demand": [
            {"scope": "tenant/t", "each": {"walk": {"from": 1, "by": 0.1, "every": "1us"}}},
            {"scope": "tenant/t", "each":
                {"on_off": {"rate": 1, "on": "1us", "off": "1us", "at": "1us"}}},
        ],
        "mishaps": {"every": "1us", "spike": 1},
    });
    assert_errors([(
        short,
        &[
            ("envoys[0].tick", "1µs is shorter than 1ms"),
            ("envoys[0].idle_after", "must be longer than zero"),
            ("envoys[0].resolution", "0ns is shorter than 1ms"),
            ("envoys[0].priority", "16 is not between 0 and 15"),
            ("demand[0].each.walk.every", ""),
            ("demand[1].each.on_off.on", ""),
            ("demand[1].each.on_off.off", ""),
            ("mishaps.every", ""),
        ],
    )]);
}

#[test]
fn demand_and_envoys_have_their_rules() {
    let demand = |demand: Value| json!({"demand": [demand]});
    let of = |program: &str, routing: Value, retries: u32, arrivals: Value| {
        demand(json!({
            "scope": "tenant/t", program: 1, "routing": routing, "retries": retries,
            "arrivals": arrivals,
        }))
    };
    let no_turn = json!({"in_turn": {"requests": 0}});
    assert_errors([
        (of("total", json!("sticky"), 3, json!({"bursts": 1})), &[]),
        (of("each", json!("random"), 0, json!({"bursts": 7})), &[]),
        (
            of("each", json!("sticky"), 0, json!("even")),
            &[("demand[0].routing", "")],
        ),
        (
            of("each", json!("random"), 3, json!("even")),
            &[("demand[0].retries", "")],
        ),
        (
            of("total", no_turn, 0, json!({"bursts": 0})),
            &[
                ("demand[0].arrivals.bursts", ""),
                ("demand[0].routing.in_turn.requests", ""),
            ],
        ),
        (
            demand(json!({"scope": "tenant/t", "each": 1, "total": 1})),
            &[("demand[0]", "needs either each or total")],
        ),
        (
            json!({"envoys": [{"coordinator": "rot"}], "coordinators": [{"name": "root"}]}),
            &[("envoys[0].coordinator", "\"rot\" is none of root")],
        ),
    ]);
}

#[test]
fn a_scenario_says_what_it_costs() {
    let scenario = json!({
        "duration": "10s", "envoys": [{"count": 100}],
        "demand": [
            {"scope": "tenant/t", "each": 1, "envoys": {"count": 10}},
            {"scope": "tenant/t", "total": {"ramp": {"from": 10, "to": 100, "over": "1s"}}},
        ],
    });
    let scenario: Scenario = serde_json::from_value(scenario).unwrap();
    // 110 requests a second, and 50 ticks of each Envoy, for ten seconds.
    assert_eq!(scenario.expected_events(), 51_100.0);
}
