use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::scenario::{Amount, ScopeSpread};

/// Returns a scenario of so many Envoys, each of which is asked for so many scopes.
fn scenario(envoys: u32, scopes: u32, sample: Span) -> Scenario {
    Scenario {
        duration: Span::from_secs(10),
        sample,
        envoys: vec![EnvoyGroup {
            count: envoys,
            ..EnvoyGroup::default()
        }],
        demand: vec![DemandSpec {
            scopes: Some(ScopeSpread {
                prefix: "tenant/t".to_owned(),
                count: scopes,
                zipf: Amount(0.0),
            }),
            each: Some(Program::Constant(Amount(1.0))),
            ..DemandSpec::default()
        }],
        ..Scenario::default()
    }
}

#[test]
fn what_does_not_fit_into_memory_is_refused() {
    let (short, second) = (Span::from_millis(10), Span::from_secs(1));
    let large = "windows of 1000 samples for 1000000 scopes, in all 1000000000";
    let rows = [
        (scenario(1, 1_000_000, second), None),
        (scenario(1, 20_000, short), None),
        (scenario(1, 1_000_000, short), Some(("sample", large))),
        (scenario(1_000_000, 20, second), None),
        (
            scenario(1_000_000, 21, second),
            Some(("demand", "know 21000000 scopes, more than 20000000")),
        ),
        // They know no more than max_scopes, 10 000 each.
        (scenario(2000, 1_000_000, second), None),
        (
            scenario(2001, 1_000_000, second),
            Some(("demand", "know 20010000 scopes")),
        ),
        (
            scenario(u32::MAX, 1, second),
            Some(("envoys", "4294967295 Envoys are not between")),
        ),
    ];
    for (scenario, want) in rows {
        let errors = scenario.check(0);
        match want {
            None => assert_eq!(errors, []),
            Some((field, rule)) => {
                let error = errors.iter().find(|error| error.rule.contains(rule));
                let found = error.map(|error| error.field.as_str());
                assert_eq!(found, Some(field), "{rule}: {errors:?}");
            }
        }
    }
}

#[test]
fn only_envoys_that_are_asked_count() {
    let mut scenario = scenario(1_000_000, 1_000_000, Span::from_secs(1));
    assert!(!scenario.check(0).is_empty());
    scenario.demand[0].envoys.count = Some(3);
    assert_eq!(scenario.check(0), []);
    scenario.envoys[0].name = "many".to_owned();
    scenario.envoys.push(EnvoyGroup::default());
    scenario.demand[0].envoys.count = None;
    scenario.demand[0].envoys.group = Some("envoy".to_owned());
    scenario.envoys[0].count = 999_999;
    assert_eq!(scenario.check(0), []);
}

/// Returns the errors of a scenario with an event, and with two Envoys near in eu and two far in asia.
fn errors_of(event: EventSpec) -> Vec<ScenarioError> {
    let mut scenario = scenario(2, 1, Span::from_secs(1));
    scenario.envoys[0].name = "near".to_owned();
    scenario.envoys[0].region = "eu".to_owned();
    let far = json!({"name": "far", "region": "asia", "count": 2});
    scenario.envoys.push(written(far));
    scenario.events = vec![event];
    scenario.check(0)
}

/// Returns a part of a scenario from how users write it.
fn written<T: DeserializeOwned>(text: Value) -> T {
    serde_json::from_value(text).unwrap()
}

/// Asserts the first error of a scenario with each event, by its field and rule.
#[track_caller]
fn assert_errors(rows: impl IntoIterator<Item = (Value, &'static str, &'static str)>) {
    for (event, field, rule) in rows {
        let errors = errors_of(written(event));
        if rule.is_empty() {
            assert_eq!(errors, []);
            continue;
        }
        assert_eq!(errors[0].field, format!("events[0].{field}"), "{errors:?}");
        assert!(errors[0].rule.contains(rule), "{errors:?}");
    }
}

#[test]
fn envoys_that_events_choose_have_to_be_there() {
    let kill = |envoys: Value| json!({"kill": {"envoys": envoys}});
    let (count, group) = ("kill.envoys.count", "kill.envoys.group");
    let misspelt = kill(json!({"count": 1, "group": "fra"}));
    assert_errors([
        (kill(json!({"count": 4})), "", ""),
        (kill(json!({"count": 5})), count, "5 is more than the 4"),
        (
            kill(json!({"count": 3, "group": "far"})),
            count,
            "3 is more than the 2",
        ),
        (kill(json!({"count": 0})), count, "chooses no Envoy"),
        (misspelt, group, "\"fra\" is none of near, far"),
    ]);
}

#[test]
fn regions_and_batches_of_events_have_to_fit() {
    let cut = |cut: Value| json!({"cut": cut});
    let deploy = |deploy: Value| json!({"deploy": deploy});
    let of_one = json!({"batch": 2, "every": "1s", "envoys": {"count": 1, "group": "far"}});
    assert_errors([
        (cut(json!({"region": "asia"})), "", ""),
        (
            cut(json!({"region": "asai"})),
            "cut.region",
            "\"asai\" is none of asia, eu",
        ),
        (
            cut(json!({})),
            "cut",
            "needs a region, a coordinator or envoys",
        ),
        (deploy(json!({"batch": 4, "every": "1s"})), "", ""),
        (
            deploy(json!({"batch": 5, "every": "1s"})),
            "deploy.batch",
            "5 is more than the 4 Envoys",
        ),
        (
            deploy(of_one),
            "deploy.batch",
            "2 is more than the 1 Envoys",
        ),
    ]);
}

#[test]
fn steps_are_not_shorter_than_a_millisecond() {
    let mut of = scenario(1, 1, Span::from_secs(1));
    let each = json!({"walk": {"from": 1, "by": 0.1, "every": "1us"}});
    of.demand[0].each = written(each);
    of.demand.push(of.demand[0].clone());
    let each = json!({"on_off": {"rate": 1, "on": "1us", "off": "1us", "at": "1us"}});
    of.demand[1].each = written(each);
    of.envoys[0].tick = written(json!("1us"));
    of.mishaps = written(json!({"every": "1us", "spike": 1}));
    let errors = of.check(0);
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    let want = [
        "envoys[0].tick",
        "demand[0].each.walk.every",
        "demand[1].each.on_off.on",
        "demand[1].each.on_off.off",
        "mishaps.every",
    ];
    assert_eq!(fields, want);
    assert_eq!(errors[0].rule, "1µs is shorter than 1ms");
}

#[test]
fn routing_retries_and_bursts_have_their_rules() {
    let in_turn = |requests| {
        Routing::InTurn(InTurn {
            requests,
            pause: Span::default(),
        })
    };
    let rows = [
        (true, Routing::Sticky, 3, Arrivals::Bursts(1), vec![]),
        (false, Routing::Random, 0, Arrivals::Bursts(7), vec![]),
        (false, Routing::Sticky, 0, Arrivals::Even, vec!["routing"]),
        (false, Routing::Random, 3, Arrivals::Even, vec!["retries"]),
        (
            true,
            in_turn(0),
            0,
            Arrivals::Bursts(0),
            vec!["arrivals.bursts", "routing.in_turn.requests"],
        ),
    ];
    for (is_total, routing, retries, arrivals, want) in rows {
        let mut of = scenario(1, 1, Span::from_secs(1));
        let demand = &mut of.demand[0];
        if is_total {
            demand.total = demand.each.take();
        }
        (demand.routing, demand.retries, demand.arrivals) = (routing, retries, arrivals);
        let errors = of.check(0);
        let fields = errors
            .iter()
            .map(|error| error.field.replace("demand[0].", ""));
        assert_eq!(fields.collect::<Vec<_>>(), want, "{errors:?}");
    }
}

#[test]
fn a_group_that_is_scaled_has_to_be_there() {
    let scale = |group: &str, to: u32| json!({"scale": {"group": group, "to": to}});
    assert_errors([
        (scale("far", 9), "", ""),
        (scale("far", 0), "", ""),
        (
            scale("fra", 9),
            "scale.group",
            "\"fra\" is none of near, far",
        ),
    ]);
    let mut of = scenario(2, 1, Span::from_secs(1));
    of.events = written(json!([scale("envoy", 9), scale("envoy", 3)]));
    assert_eq!(of.envoy_count(), 9);
    of.events = written(json!([scale("envoy", u32::MAX)]));
    assert_eq!(of.check(0)[0].field, "envoys");
}

#[test]
fn a_scenario_says_what_it_costs() {
    let mut of = scenario(100, 1, Span::from_secs(1));
    // 100 Envoys with one request and 50 ticks a second, for ten seconds.
    assert_eq!(of.expected_events(), 51_000.0);
    of.events = written(json!([{"at": "5s", "demand": {"set": 1000}}]));
    assert_eq!(of.expected_events(), 551_000.0);
}

#[test]
fn settings_of_processes_have_bounds() {
    let second = Span::from_secs(1);
    let mut scenario = scenario(1, 1, second);
    scenario.envoys[0].priority = 16;
    scenario.envoys[0].resolution = Span::default();
    scenario.envoys[0].idle_after = Span::default();
    let errors = scenario.check(1);
    let rows = [
        ("envoys[0].idle_after", "must be longer than zero"),
        ("envoys[0].resolution", "0ns is shorter than 1ms"),
        ("envoys[0].priority", "16 is not between 0 and 15"),
    ];
    let found = errors.iter().map(|error| (&*error.field, &*error.rule));
    assert!(found.eq(rows), "{errors:?}");
}
