//! Conditions of rules.

use super::*;

#[test]
fn wrong_conditions_are_refused_by_field_value_and_rule() {
    refused(&[
        (
            named(r#""when": []"#),
            "scopes[0].when is []: must be an object",
        ),
        (
            named(r#""when": {"path_prefix": "v1"}"#),
            "when.path_prefix is \"v1\": must be a path",
        ),
        (
            named(r#""when": {"path_prefix": []}"#),
            "when.path_prefix is []: must be a text or a list",
        ),
        (
            named(r#""when": {"methods": ["get"]}"#),
            "when.methods is \"get\": must be a method in capitals",
        ),
        (
            named(r#""when": {"headers": {"x": 1}}"#),
            "when.headers.x is 1: must be true, false, the header's value",
        ),
        (
            named(r#""when": {"not": {"headers": {"a b": true}}}"#),
            "when.not.headers is",
        ),
    ]);
}

#[test]
fn what_a_condition_cannot_say_is_refused() {
    refused(&[
        (
            named(r#""when": {"headers": {":path": "/x"}}"#),
            "when.headers is \":path\": must be no header :path, which has the query in it",
        ),
        (
            named(r#""when": {"headers": {"x": {"suffix": "y"}}}"#),
            "when.headers.x is {\"suffix\":\"y\"}: must be",
        ),
        (
            named(r#""when": {"path": "/a//b"}"#),
            "when.path is \"/a//b\": must be a path as it is after decoding",
        ),
        (
            named(r#""when": {"path_under": "/a?b"}"#),
            "must be a path as it is after",
        ),
        (
            named(r#""when": {"path": "/%61"}"#),
            "must be a path as it is after",
        ),
        (
            named(r#""when": {"path_regex": "("}"#),
            "when.path_regex is \"(\": must be a regular expression of a whole path",
        ),
        (
            named(r#""when": {"path_regex": "(a{1000}){1000}"}"#),
            "must be a regular expression",
        ),
        (
            named(r#""when": {"source_in": "10.0.0.0/33"}"#),
            "when.source_in is \"10.0.0.0/33\": must be an address or a network",
        ),
        (
            named(r#""when": {"source_in": ["::ffff:10.0.0.0/104"]}"#),
            "of version 4 written as such",
        ),
        (
            named(r#""when": {"not": {"not": {"not": {"not": {"path": "/"}}}}}"#),
            "when.not.not.not.not is {\"path\":\"/\"}: must be within at most three other",
        ),
    ]);
}

#[test]
fn texts_of_conditions_are_bounded_alone_and_in_lists() {
    let long = format!("\"/{}\"", "v".repeat(200));
    for prefix in [long.clone(), format!("[{long}]")] {
        let json = named(&format!(r#""when": {{"path_prefix": {prefix}}}"#));
        refused(&[(json, "each of 1 to 200 bytes")]);
    }
}

#[test]
fn a_condition_is_never_taken_in_part() {
    let json = named(r#""when": {"not": {"path_suffix": ".png"}}"#);
    let json = json.replacen('{', r#"{"unknown_fields": "warn", "#, 1);
    let want = "scopes[0].when.not.path_suffix is not known, and a condition counts as a whole";
    refused(&[(json, want)]);
}
