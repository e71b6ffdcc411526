//! Rules whose cost is compared: one with a header as its key, with each condition, and with each key that takes work.

use serde_json::{Value, json};
use tollgate_tests::filter::TENANT_HEADER;

/// The rules with their names; the first is what the others are compared with. Each condition holds.
pub(crate) fn rules() -> Vec<(&'static str, Value)> {
    let header = json!({"header": TENANT_HEADER});
    let mut rules = vec![("key `header`", rule(&header))];
    for (name, condition) in [
        ("`path`", json!({"path": "/api/v1/orders"})),
        ("`path_under`", json!({"path_under": "/api"})),
        ("`path_regex`", json!({"path_regex": "/api/v[0-9]+/.*"})),
        ("`source_in`", json!({"source_in": "10.0.0.0/8"})),
        (
            "`headers`, one of two",
            json!({"headers": {"x-kind": ["batch", "web"]}}),
        ),
    ] {
        let mut rule = rule(&header);
        rule["when"] = condition;
        rules.push((name, rule));
    }
    rules.extend([
        ("key `cookie`", rule(&json!({"cookie": "session"}))),
        ("key `bearer`, hashed", rule(&json!({"bearer": true}))),
        (
            "key `unverified_claim`",
            rule(&json!({"unverified_claim": "sub"})),
        ),
        (
            "key `header` with `regex`",
            rule(&json!({"header": "x-email", "regex": "@(.*)$"})),
        ),
    ]);
    let mut planned = rule(&header);
    planned["plan"] = json!({"header": "x-tier"});
    rules.push(("`plan`", planned));
    rules
}

fn rule(key: &Value) -> Value {
    json!({"name": "tenant", "key": key})
}
