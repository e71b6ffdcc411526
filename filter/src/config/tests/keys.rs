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
