//! Property that has the final cost of a request.

use tollgate_core::units::Tokens;
use tollgate_engine::Estimate;

use super::*;
use crate::final_cost::{FinalCost, FreeStatuses};

#[test]
fn a_final_cost_is_in_dynamic_metadata_and_nowhere_else() {
    let json = named(r#""final_cost": {"metadata": ["tollgate", "cost"]}"#);
    let (config, unknown) = parse(&json).unwrap();
    assert!(unknown.is_empty());
    let path = ["metadata", "filter_metadata", "tollgate", "cost"];
    let path = path.map(str::to_owned).to_vec();
    let cost = FinalCost {
        free: None,
        property: Some(path),
        on_abort: None,
    };
    assert_eq!(config.rules[0].final_cost, Some(cost));
    let estimate = config.engine.rules[0].final_cost;
    assert_eq!(estimate, Some(Estimate::Request));
    refused(&[
        (
            named(r#""final_cost": {"header": "x"}"#),
            "scopes[0].final_cost is {\"header\":\"x\"}: must be {\"metadata\"",
        ),
        (
            named(r#""final_cost": {"metadata": ["ns"]}"#),
            "scopes[0].final_cost.metadata is [\"ns\"]: must be a list of 2 to 8",
        ),
        (
            named(r#""final_cost": "x-cost""#),
            "scopes[0].final_cost is \"x-cost\": must be an object",
        ),
    ]);
}

#[test]
fn a_final_cost_may_have_an_estimate_and_a_fate_of_requests_that_are_aborted() {
    let read = |fields: &str| {
        let json = named(&format!(
            r#""final_cost": {{"metadata": ["tollgate", "cost"]{fields}}}"#
        ));
        let (config, unknown) = parse(&json).unwrap();
        assert!(unknown.is_empty());
        let on_abort = config.rules[0].final_cost.as_ref().unwrap().on_abort;
        (config.engine.rules[0].final_cost.unwrap(), on_abort)
    };
    let tokens = Tokens::from_whole(500);
    assert_eq!(
        read(r#", "estimate": 500, "on_abort": "estimate""#),
        (Estimate::Tokens(tokens), None)
    );
    assert_eq!(
        read(r#", "estimate": "usual", "on_abort": "nothing""#),
        (Estimate::Usual, Some(Tokens::ZERO))
    );
    let refused_as = |fields: &str, rule: &'static str| {
        let json = named(&format!(r#""final_cost": {{"only": [401], {fields}}}"#));
        refused(&[(json, rule)]);
    };
    let rule = "must be a whole number from 1 to 1000000000";
    for (value, rule) in [
        ("0", rule),
        ("1e10", rule),
        ("1.5", rule),
        ("\"most\"", "or \"usual\""),
        ("true", "or \"usual\""),
    ] {
        refused_as(&format!("\"estimate\": {value}"), rule);
    }
    refused_as(
        r#""on_abort": "all""#,
        "scopes[0].final_cost.on_abort is \"all\": must be \"estimate\" or \"nothing\"",
    );
}

#[test]
fn a_final_cost_may_depend_on_the_status() {
    let free = |fields: &str| {
        let json = named(&format!(r#""final_cost": {{{fields}}}"#));
        let (config, unknown) = parse(&json).unwrap();
        assert!(unknown.is_empty());
        config.rules[0].final_cost.clone().unwrap().free.unwrap()
    };
    let unauthorized = FreeStatuses::AllBut(vec![401..=401, 403..=403]);
    assert_eq!(free(r#""only": [401, 403]"#), unauthorized);
    let broken = FreeStatuses::Only(vec![500..=599, 404..=404]);
    assert_eq!(free(r#""not": ["5xx", 404]"#), broken);
    let rule = "must be a list of 1 to 32 statuses from 100 to 599, or classes such as \"5xx\"";
    let wrong = [
        "401",
        "[]",
        "[99]",
        "[600]",
        "[\"6xx\"]",
        "[\"5x\"]",
        "[\"+5xx\"]",
        "[\"401\"]",
        "[40.5]",
        "[\"é\"]",
    ];
    for list in wrong {
        let json = named(&format!(r#""final_cost": {{"only": {list}}}"#));
        refused(&[(json, rule)]);
    }
    refused(&[(
        named(r#""final_cost": {"only": [401], "not": [200]}"#),
        "must be an object with one of only and not",
    )]);
}
