//! Property that has the final cost of a request.

use super::*;

#[test]
fn a_final_cost_is_in_dynamic_metadata_and_nowhere_else() {
    let json = named(r#""final_cost": {"metadata": ["tollgate", "cost"]}"#);
    let (config, unknown) = parse(&json).unwrap();
    assert!(unknown.is_empty());
    let path = ["metadata", "filter_metadata", "tollgate", "cost"];
    let path = path.map(str::to_owned).to_vec();
    assert_eq!(config.rules[0].final_cost, Some(path));
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
