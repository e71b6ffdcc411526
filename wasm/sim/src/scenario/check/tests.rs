use super::*;
use crate::scenario::{Amount, ScopeSpread};

/// Returns a scenario of so many Envoys, each of which is asked for so many scopes.
fn scenario(envoys: u32, scopes: u32, sample: Span) -> Scenario {
    Scenario {
        name: String::new(),
        description: String::new(),
        duration: Span::from_secs(10),
        seed: 0,
        sample,
        measure_from: Span::default(),
        envoys: vec![EnvoyGroup {
            count: envoys,
            ..EnvoyGroup::default()
        }],
        coordinators: Vec::new(),
        network: Default::default(),
        demand: vec![DemandSpec {
            scopes: Some(ScopeSpread {
                prefix: "tenant/t".to_owned(),
                count: scopes,
                zipf: Amount(0.0),
            }),
            each: Some(Program::Constant(Amount(1.0))),
            ..DemandSpec::default()
        }],
        events: Vec::new(),
        mishaps: None,
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
