//! Keys that would not be what their writer means.

use super::*;

#[test]
fn keys_that_differ_with_each_request_and_bad_parts_are_refused() {
    let key = |json: &str| rule(&format!(r#""name": "a", "key": {json}"#));
    refused(&[
        (
            key(r#"{"header": ":path"}"#),
            "key.header is \":path\": must be no header :path, which has the query in it: use {\"path\"",
        ),
        (
            key(r#"{"cel": "source.address"}"#),
            "key.cel is \"source.address\": must be no source.address alone, which has the port in it",
        ),
        (
            key(r#"{"cel": "request.host + request.path"}"#),
            "must be no request.path alone, which has the query in it",
        ),
        (
            key(r#"{"header": "x", "regex": "("}"#),
            "key.regex is \"(\": must be a regular expression",
        ),
        (
            key(r#"{"unverified_claim": []}"#),
            "key.unverified_claim is []: must be the name of a claim",
        ),
        (
            key(r#"{"bearer": false}"#),
            "key.bearer is false: must be true",
        ),
    ]);
}

#[test]
fn sources_that_are_null_are_none() {
    let key = r#""name": "a", "key": {"header": "x", "cookie": null, "join": null}"#;
    let (config, unknown) = parse(&rule(key)).unwrap();
    assert!(unknown.is_empty());
    assert_eq!(config.rules[0].key, Key::Header("x".to_owned()));
}

#[test]
fn keys_that_cannot_be_read_are_refused() {
    let key = |json: &str| rule(&format!(r#""name": "a", "key": {json}"#));
    refused(&[
        (
            key("{}"),
            "scopes[0].key is {}: must be an object with one of",
        ),
        (
            key(r#"{"query": ""}"#),
            "key.query is \"\": must be 1 to 100 bytes",
        ),
        (
            key(r#"{"path": "v1/{t}"}"#),
            "key.path is \"v1/{t}\": must be a template: it begins",
        ),
        (
            key(r#"{"path": "/v1"}"#),
            "at least one segment is a {name}",
        ),
        (
            key(r#"{"path": {}}"#),
            "key.path is {}: must be a template such as",
        ),
        (
            key(r#"{"path": {"segment": 0}}"#),
            "path.segment is 0: must be a whole number from 1",
        ),
        (key(r#"{"path": {"segment": 65}}"#), "path.segment is 65"),
        (
            key(r#"{"authority": false}"#),
            "key.authority is false: must be true",
        ),
        (
            key(r#"{"source_address": {"prefix_v4": 33}}"#),
            "prefix_v4 is 33: must be",
        ),
        (
            key(r#"{"source_address": {"prefix_v6": 129}}"#),
            "prefix_v6 is 129: must be",
        ),
        (
            key(r#"{"source_address": false}"#),
            "source_address is false: must be true, or an object",
        ),
        (
            key(r#"{"path": 7}"#),
            "key.path is 7: must be a template such as",
        ),
        (
            key(r#"{"header": "x", "query": "y"}"#),
            r#"key is {"header":"x","query":"y"}: must be an object with one of header"#,
        ),
        (
            key(r#"{"header": "x", "join": [{"header": "x"}, {"header": "y"}]}"#),
            "must be an object with one of header",
        ),
        (
            key(r#"{"join": [{"header": "x"}, {"header": "y", "cel": "z"}]}"#),
            "key.join[1] is ",
        ),
    ]);
}

#[test]
fn keys_of_properties_and_joins_are_checked() {
    let key = |json: &str| rule(&format!(r#""name": "a", "key": {json}"#));
    refused(&[
        (
            key(r#"{"peer_san": "ip"}"#),
            "peer_san is \"ip\": must be \"uri\" or \"dns\"",
        ),
        (
            key(r#"{"metadata": ["a"]}"#),
            "key.metadata is [\"a\"]: must be a list of 2 to 8",
        ),
        (key(r#"{"metadata": ["a", 7]}"#), "must be a list of 2 to 8"),
        (
            key(r#"{"route_metadata": "a.b"}"#),
            "key.route_metadata is \"a.b\": must be a list",
        ),
        (
            key(r#"{"constant": " x"}"#),
            "key.constant is \" x\": must be a key",
        ),
        (
            key(r#"{"join": [{"header": "x"}]}"#),
            "must be a list of 2 to 8 keys",
        ),
        (
            key(r#"{"join": [{"header": "x"}, {"join": []}]}"#),
            "key.join[1] is {\"join\":[]}: must be an object with one of",
        ),
        (
            key(r#"{"join": [{"header": "x"}, {"header": "y"}], "with": "::"}"#),
            "key.with is \"::\": must be one printable character",
        ),
    ]);
}
