//! Configurations that the filter refuses, and its schema with it.

use super::*;

/// Wrong fields beside the scopes of a filter.
const OF_FILTER: [&str; 27] = [
    r#""shadow": true"#,
    r#""max_scope": 5"#,
    r#""shards": "s-0""#,
    r#""shards": ["s-0", ""]"#,
    r#""shards": [7]"#,
    r#""shards": ["a\nb"]"#,
    r#""no_lease": "open""#,
    r#""first_lease_wait_ms": -1"#,
    r#""first_lease_wait_ms": 10001"#,
    r#""max_scopes": 0"#,
    r#""max_scopes": 1.5"#,
    r#""max_scopes": "5""#,
    r#""max_pending": 100001"#,
    r#""max_waiting": 100001"#,
    r#""call_timeout_ms": 1"#,
    r#""max_debt_ms": 3600001"#,
    r#""host_failure": true"#,
    r#""enabled": 1"#,
    r#""per_route": "yes""#,
    r#""unknown_fields": "ignore""#,
    r#""refusal_headers": "ietf""#,
    r#""refusal_headers": ["rfc"]"#,
    r#""scopes": []"#,
    r#""scopes": {}"#,
    r#""scopes": [3]"#,
    r#""scopes": [{"name": "a"}]"#,
    r#""scopes": [{"key": {"header": "x"}}]"#,
];

/// Wrong coordinators of a filter.
const OF_COORDINATOR: [&str; 19] = [
    "7",
    r#""""#,
    r#""grpc://tollgate:7710""#,
    "{}",
    r#"{"address": 7710}"#,
    r#"{"address": "tollgate"}"#,
    r#"{"address": "tollgate:0"}"#,
    r#"{"address": "tollgate:65536"}"#,
    r#"{"address": "dns:///tollgate:1"}"#,
    r#"{"address": "a..b:1"}"#,
    r#"{"address": "::1:7710"}"#,
    r#"{"address": "t:1", "port": 1}"#,
    r#"{"address": "t:1", "tls": true}"#,
    r#"{"address": "t:1", "tls": {"ca": "ca.crt"}}"#,
    r#"{"address": "t:1", "tls": {"cert": "/c"}}"#,
    r#"{"address": "t:1", "tls": {"key": "/k"}}"#,
    r#"{"address": "t:1", "tls": {"server_name": "a b"}}"#,
    r#"{"address": "t:1", "tls": {"reread_seconds": 0}}"#,
    r#"{"address": "t:1", "tls": {"later": 1}}"#,
];

/// Wrong fields of a scope rule.
const OF_RULE: [&str; 51] = [
    r#""weight": 2"#,
    r#""mode": "shadow""#,
    r#""name": """#,
    r#""name": "a/b""#,
    r#""missing": "drop""#,
    r#""missing": 7"#,
    r#""missing": {}"#,
    r#""missing": {"default": " "}"#,
    r#""missing": {"default": "d", "why": 1}"#,
    r#""safe_capacity": -1"#,
    r#""safe_capacity": "10""#,
    r#""safe_bytes": -1"#,
    r#""safe_concurrency": 1e13"#,
    r#""priority": 16"#,
    r#""no_lease": "x""#,
    r#""enforced_percent": 101"#,
    r#""enforced_percent": 0.5"#,
    r#""on_limit": "mark", "enforced_percent": 0"#,
    r#""on_limit": "queue""#,
    r#""max_wait_ms": 30001"#,
    r#""max_waiting": 0"#,
    r#""on_overflow": "drop""#,
    r#""final_cost": "x-cost""#,
    r#""final_cost": {"header": "x"}"#,
    r#""final_cost": {"metadata": ["ns"]}"#,
    r#""final_cost": {"estimate": 5}"#,
    r#""final_cost": {"only": [401], "estimate": 0}"#,
    r#""final_cost": {"only": [401], "estimate": "most"}"#,
    r#""final_cost": {"only": [401], "not": [200]}"#,
    r#""final_cost": {"only": ["6xx"]}"#,
    r#""final_cost": {"only": 401}"#,
    r#""final_cost": {"not": [404], "on_abort": "all"}"#,
    r#""refusal": 7"#,
    r#""refusal": {"status": 200}"#,
    r#""refusal": {"headers": []}"#,
    r#""refusal": {"headers": {"a b": ""}}"#,
    r#""refusal": {"headers": {"content-length": "3"}}"#,
    r#""refusal": {"headers": {"x": 7}}"#,
    r#""refusal": {"headers": {"x": "a\nb"}}"#,
    r#""refusal": {"content_type": ""}"#,
    r#""when": []"#,
    r#""when": {}"#,
    r#""when": {"pth": "/x"}"#,
    r#""when": {"not": {}}"#,
    r#""when": {"all": []}"#,
    r#""when": {"any": [{"path": "/x"}, {}]}"#,
    r#""when": {"path": "/a//b"}"#,
    r#""when": {"path_under": "/a?b"}"#,
    r#""when": {"path_prefix": "v1"}"#,
    r#""when": {"methods": ["get"]}"#,
    r#""when": {"source_in": "10.0.0.0/33"}"#,
];

/// Wrong headers in a condition.
const OF_HEADERS: [&str; 5] = [
    "{}",
    r#"{"x": 1}"#,
    r#"{"x": {"suffix": "y"}}"#,
    r#"{"a b": true}"#,
    r#"{":path": "/x"}"#,
];

/// Wrong keys.
const OF_KEY: [&str; 26] = [
    "{}",
    r#""x""#,
    r#"{"claim": "x"}"#,
    r#"{"header": ""}"#,
    r#"{"header": "x tenant"}"#,
    r#"{"header": ":path"}"#,
    r#"{"header": "x", "query": "y"}"#,
    r#"{"header": "x", "regexp": "."}"#,
    r#"{"header": "x", "with": "/"}"#,
    r#"{"header": "x", "hash": 1}"#,
    r#"{"query": ""}"#,
    r#"{"path": "v1/{t}"}"#,
    r#"{"path": "/v1"}"#,
    r#"{"path": {}}"#,
    r#"{"path": {"segment": 65}}"#,
    r#"{"authority": false}"#,
    r#"{"source_address": false}"#,
    r#"{"source_address": {"prefix_v4": 33}}"#,
    r#"{"peer_san": "ip"}"#,
    r#"{"metadata": ["a"]}"#,
    r#"{"route_metadata": "a.b"}"#,
    r#"{"unverified_claim": []}"#,
    r#"{"constant": " x"}"#,
    r#"{"join": [{"header": "x"}]}"#,
    r#"{"join": [{"header": "x"}, {"join": [{"header": "x"}, {"header": "y"}]}]}"#,
    r#"{"join": [{"header": "x"}, {"header": "y"}], "with": "::"}"#,
];

/// Wrong fields of a rule for which a schema has no words.
const RULE_WITHOUT_WORDS: [(&str, &str); 5] = [
    (
        "the syntax of expressions",
        r#""when": {"path_regex": "("}"#,
    ),
    (
        "a depth",
        r#""when": {"not": {"not": {"not": {"not": {"path": "/"}}}}}"#,
    ),
    (
        "a name in any case",
        r#""refusal": {"headers": {"Content-Length": "3"}}"#,
    ),
    (
        "addresses of version 4 in version 6",
        r#""when": {"source_in": "::ffff:10.0.0.0/104"}"#,
    ),
    ("the syntax of CEL", r#""plan": {"cel": "source.address"}"#),
];

fn with(field: &str) -> String {
    // Of two fields with one name the last counts.
    format!(
        r#"{{"coordinator": "c", "scopes": [{{"name": "a", "key": {{"header": "x"}}}}], {field}}}"#
    )
}

fn with_rule(field: &str) -> String {
    with(&format!(
        r#""scopes": [{{"name": "a", "key": {{"header": "x"}}, {field}}}]"#
    ))
}

#[test]
fn wrong_filters_are_refused_by_parser_and_schema() {
    let schema = validator(FILTER);
    let rows = OF_FILTER.map(with).into_iter();
    let rows = rows
        .chain(OF_COORDINATOR.map(|text| with(&format!(r#""coordinator": {text}"#))))
        .chain(OF_RULE.map(with_rule))
        .chain(OF_HEADERS.map(|text| with_rule(&format!(r#""when": {{"headers": {text}}}"#))))
        .chain(OF_KEY.map(|text| with_rule(&format!(r#""key": {text}"#))));
    for text in rows {
        let is_json = serde_json::from_str(&text).is_ok_and(|json| !schema.is_valid(&json));
        assert!(is_json && !filter_takes(&text), "{text}");
    }
    let good = with(r#""enabled": true"#);
    assert!(filter_takes(&good) && schema.is_valid(&serde_json::from_str(&good).unwrap()));
    let rule = r#"{"name": "a", "key": {"header": "x"}}"#;
    let others = [
        (
            "a length in bytes",
            with(&format!(r#""coordinator": "{}""#, "ä".repeat(61))),
        ),
        (
            "names that differ",
            with(&format!(r#""scopes": [{rule}, {rule}]"#)),
        ),
    ];
    let rules = RULE_WITHOUT_WORDS.map(|(rule, field)| (rule, with_rule(field)));
    for (rule, text) in rules.into_iter().chain(others) {
        let json = serde_json::from_str(&text).unwrap();
        assert!(
            schema.is_valid(&json) && !filter_takes(&text),
            "{rule}: {text}"
        );
    }
}
