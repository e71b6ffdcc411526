use super::*;
use crate::key::Key;
use tollgate_core::units::Capacity;
use tollgate_engine::Overflow;

mod conditions;
mod coordinator;
mod costs;
mod documentation;
mod expressions;
mod keys;
mod refusals;
mod schema;
mod shape;

fn parse(json: &str) -> Result<(Config, Vec<String>), String> {
    Config::parse(json.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn the_smallest_configuration_has_the_documented_defaults() {
    let json = r#"{"coordinator": "tollgate",
        "scopes": [{"name": "tenant", "key": {"header": "X-Tenant"}}]}"#;
    let (config, unknown) = parse(json).unwrap();
    assert!(unknown.is_empty());
    let policy = Policy {
        safe: Capacity::from_whole(10),
        first_lease_wait: Duration::from_millis(250),
        call_timeout: Duration::from_secs(1),
        ..Policy::default()
    };
    let want = Config {
        engine: EngineConfig {
            coordinator: "tollgate".to_owned(),
            shards: Vec::new(),
            enabled: true,
            rules: vec![RuleConfig {
                name: "tenant".to_owned(),
                policy,
                enforced: 100,
                on_overflow: Overflow::Share,
                final_cost: None,
                shape: None,
                marks: false,
            }],
            max_scopes: 10_000,
            max_pending: 1000,
            max_waiting: 4000,
            tick: Duration::from_millis(20),
            call_timeout: Duration::from_secs(1),
            host_failure: HostFailure::Open,
            reports_limits: false,
        },
        address: None,
        rules: vec![Rule {
            key: Key::Header("x-tenant".to_owned()),
            plan: None,
            when: None,
            missing: Missing::Default("unknown".to_owned()),
            terms: Terms::DEFAULT,
            final_cost: None,
        }],
        per_route: false,
        admitted_headers: Formats::default(),
    };
    assert_eq!(config, want);
}

#[test]
fn every_field_can_be_set() {
    let json = r#"{"coordinator": "c", "shards": ["s-0", "s-1"], "no_lease": "pessimistic", "first_lease_wait_ms": 0,
        "max_scopes": 7, "max_pending": 0, "call_timeout_ms": 250,
        "host_failure": "closed", "max_debt_ms": 0, "scopes": [
            {"name": "a", "key": {"header": ":authority"}, "missing": "skip", "safe_capacity": 0.5,
             "safe_bytes": 5, "safe_concurrency": 3, "priority": 15},
            {"name": "b", "key": {"header": "x-b"}, "missing": "deny"},
            {"name": "c", "key": {"header": "x-c"}, "missing": {"default": "none"}}]}"#;
    let (config, unknown) = parse(json).unwrap();
    assert!(unknown.is_empty());
    assert_eq!(config.engine.shards, ["s-0", "s-1"]);
    assert_eq!(config.engine.max_scopes, 7);
    assert_eq!(config.engine.host_failure, HostFailure::Closed);
    let [a, b, c] = &config.rules[..] else {
        panic!()
    };
    let policy = &config.engine.rules[0].policy;
    assert_eq!(policy.safe, Capacity::from_micros(500_000));
    assert_eq!(policy.safe_bytes, Capacity::from_whole(5));
    assert_eq!(policy.safe_concurrency, Capacity::from_whole(3));
    assert_eq!(policy.priority.level(), 15);
    assert_eq!(policy.max_debt, Duration::ZERO);
    assert_eq!(policy.no_lease, Mode::Pessimistic);
    assert_eq!(policy.first_lease_wait, Duration::ZERO);
    assert_eq!(policy.call_timeout, Duration::from_millis(250));
    assert_eq!(a.key, Key::Header(":authority".to_owned()));
    let missing = [&a.missing, &b.missing, &c.missing];
    assert_eq!(
        missing,
        [
            &Missing::Skip,
            &Missing::Deny,
            &Missing::Default("none".to_owned())
        ]
    );
}

#[test]
fn unknown_fields_are_refused_by_name_or_ignored() {
    let json = r#"{"coordinator": "c", "shadow": true, "unknown_fields": "warn",
        "scopes": [{"name": "a", "key": {"header": "x", "regexp": "."}, "weight": 2,
                    "missing": {"default": "d", "why": 1}}]}"#;
    let (_, unknown) = parse(json).unwrap();
    let want = [
        "scopes[0].key.regexp (did you mean regex?)",
        "scopes[0].missing.why",
        "scopes[0].weight",
        "shadow",
    ];
    assert_eq!(unknown, want);
    let error = parse(&json.replace("warn", "refuse")).unwrap_err();
    let want = "scopes[0].key.regexp (did you mean regex?), scopes[0].missing.why, scopes[0].weight, shadow are not \
                known; \"unknown_fields\": \"warn\" would ignore them";
    assert_eq!(error, want);
    refused(&[
        (
            with(r#""unknown_fields": false"#),
            "unknown_fields is false: must be a string",
        ),
        (
            with(r#""unknown_fields": "ignore""#),
            "must be \"refuse\" or \"warn\"",
        ),
        // Each of these once limited the whole site, or nothing at all.
        (
            named(r#""when": {"pth": "/x"}"#),
            "scopes[0].when.pth (did you mean path?) is not known",
        ),
        (
            named(r#""when": {"not": {"header": {"x": true}}}"#),
            "scopes[0].when.not.header (did you mean headers?) is not known",
        ),
        (
            named(r#""enforced_precent": 0"#),
            "scopes[0].enforced_precent (did you mean enforced_percent?) is not known",
        ),
        (
            named(r#""when": {}"#),
            "scopes[0].when is {}: must be at least one of path,",
        ),
        (
            named(r#""when": {"methods": ["GET"], "not": {}}"#),
            "scopes[0].when.not is {}: must be at least one of",
        ),
        (
            named(r#""when": {"any": [{"path": "/x"}, {}]}"#),
            "scopes[0].when.any[1] is {}: must be at least one of",
        ),
        (
            named(r#""when": {"all": []}"#),
            "when.all is []: must be a list of 1 to 32 conditions",
        ),
        (
            named(r#""when": {"headers": {}}"#),
            "when.headers is {}: must be an object of 1 to 32",
        ),
    ]);
}

#[test]
fn misspelt_fields_are_named_with_the_one_that_was_meant() {
    let json = r#"{"coordinator": "c", "max_scope": 5, "max_scopes": 1e4, "unknown_fields": "warn",
        "scopes": [{"name": "a", "key": {"header": "x"}, "enforced_percnt": 0}]}"#;
    let (config, unknown) = parse(json).unwrap();
    let want = [
        "scopes[0].enforced_percnt (did you mean enforced_percent?)",
        "max_scope (did you mean max_scopes?)",
    ];
    assert_eq!(unknown, want);
    assert_eq!(config.engine.max_scopes, 10_000);
    refused(&[
        (
            with(r#""max_scopes": 0.5"#),
            "max_scopes is 0.5: must be a whole number from 1",
        ),
        (
            with(r#""max_scopes": -1.0"#),
            "max_scopes is -1.0: must be a whole number",
        ),
        (
            with(r#""max_scopes": 1e300"#),
            "must be a whole number from 1",
        ),
    ]);
}

fn rule(fields: &str) -> String {
    format!(r#"{{"coordinator": "c", "scopes": [{{{fields}}}]}}"#)
}

fn named(fields: &str) -> String {
    rule(&format!(
        r#""name": "a", "key": {{"header": "x"}}, {fields}"#
    ))
}

fn with(field: &str) -> String {
    let scopes = r#"[{"name": "a", "key": {"header": "x"}}]"#;
    format!(r#"{{"coordinator": "c", "scopes": {scopes}, {field}}}"#)
}

/// That many shards.
fn shards(count: usize) -> String {
    format!(r#""shards": {:?}"#, vec!["s"; count])
}

/// Each configuration is refused with an error that contains the text beside it.
fn refused(rows: &[(String, &str)]) {
    for (json, want) in rows {
        let error = parse(json).unwrap_err();
        assert!(error.contains(want), "{json}: {error}");
    }
}

#[test]
fn a_cluster_has_as_many_shards_as_the_coordinators_allow() {
    let (config, _) = parse(&with(&shards(64))).unwrap();
    assert_eq!(config.engine.shards.len(), usize::from(SHARDS_MAX));
}

#[test]
fn wrong_settings_are_refused_by_field_value_and_rule() {
    let long = "n".repeat(121);
    let coordinator = |value: &str| format!(r#"{{"coordinator": {value}}}"#);
    let scopes = |value: &str| format!(r#"{{"coordinator": "c", "scopes": {value}}}"#);
    refused(&[
        (String::new(), "not JSON"),
        (
            "[]".to_owned(),
            "the configuration is []: must be an object",
        ),
        ("{}".to_owned(), "coordinator is required"),
        (
            coordinator(r#""""#),
            r#"coordinator is "": must be the name"#,
        ),
        (coordinator(&format!("{long:?}")), "1 to 120 bytes"),
        (
            coordinator("7"),
            "coordinator is 7: must be the name of Envoy's",
        ),
        (coordinator(r#""c""#), "scopes is required"),
        (
            with(r#""shards": "s-0""#),
            r#"shards is "s-0": must be a list of at most 64"#,
        ),
        (with(&shards(65)), "must be a list of at most 64"),
        (
            with(r#""shards": ["s-0", ""]"#),
            r#"shards[1] is "": must be the name"#,
        ),
        (with(r#""shards": [7]"#), "shards[0] is 7: must be the name"),
        (with(r#""shards": ["a\nb"]"#), "shards[0] is"),
        (with(&format!(r#""shards": [{long:?}]"#)), "1 to 120 bytes"),
        (scopes("[]"), "scopes is []: must be a list of 1"),
        (scopes("{}"), "scopes is {}: must be a list"),
        (scopes("[3]"), "scopes[0] is 3: must be an object"),
        (
            with(r#""no_lease": "open""#),
            r#"no_lease is "open": must be "safe""#,
        ),
        (
            with(r#""first_lease_wait_ms": -1"#),
            "first_lease_wait_ms is -1: must be a whole number",
        ),
        (with(r#""first_lease_wait_ms": 10001"#), "from 0 to 10000"),
        (
            with(r#""max_scopes": 0"#),
            "max_scopes is 0: must be a whole number from 1 to 1000000",
        ),
        (with(r#""max_scopes": 1.5"#), "max_scopes is 1.5"),
        (
            with(r#""max_pending": 100001"#),
            "max_pending is 100001: must be a whole number",
        ),
        (with(r#""call_timeout_ms": 1"#), "call_timeout_ms is 1"),
        (
            with(r#""host_failure": true"#),
            "host_failure is true: must be a string",
        ),
    ]);
}

#[test]
fn wrong_rules_are_refused_by_field_value_and_rule() {
    let header = |header: &str| rule(&format!(r#""name": "a", "key": {{"header": "{header}"}}"#));
    let name = |name: &str| rule(&format!(r#""name": "{name}", "key": {{"header": "x"}}"#));
    refused(&[
        (rule(r#""name": "a""#), "scopes[0].key is required"),
        (
            rule(r#""name": "a", "key": "x""#),
            r#"scopes[0].key is "x": must be an object"#,
        ),
        (
            rule(r#""name": "a", "key": {"claim": "x"}"#),
            r#"scopes[0].key is {"claim":"x"}: must be an object with one of header"#,
        ),
        (name(""), r#"scopes[0].name is "": must be 1 to 40"#),
        (name("a/b"), r#"scopes[0].name is "a/b": must be 1 to 40"#),
        (name(&"n".repeat(41)), "must be 1 to 40"),
        (
            header(""),
            r#"scopes[0].key.header is "": must be 1 to 100"#,
        ),
        (header("x tenant"), "must be 1 to 100 characters"),
        (
            named(r#""missing": "drop""#),
            r#"scopes[0].missing is "drop": must be "skip""#,
        ),
        (
            named(r#""missing": {}"#),
            "scopes[0].missing.default is required",
        ),
        (
            named(r#""missing": {"default": " "}"#),
            "scopes[0].missing.default is",
        ),
        (
            named(r#""safe_capacity": -1"#),
            "scopes[0].safe_capacity is -1: -1 is negative",
        ),
        (
            named(r#""safe_capacity": "10""#),
            "must be a number of requests per second",
        ),
        (
            named(r#""priority": 16"#),
            "scopes[0].priority is 16: must be a whole number from 0 to 15",
        ),
        (
            named(r#""safe_bytes": -1"#),
            "scopes[0].safe_bytes is -1: -1 is negative",
        ),
        (
            named(r#""safe_capacity": 1e13"#),
            "more than the largest capacity",
        ),
    ]);
}

#[test]
fn two_rules_cannot_share_a_name_and_seventeen_are_too_many() {
    let rule = |name: &str| format!(r#"{{"name": "{name}", "key": {{"header": "x"}}}}"#);
    let config =
        |rules: &[String]| format!(r#"{{"coordinator": "c", "scopes": [{}]}}"#, rules.join(","));
    let error = parse(&config(&[rule("a"), rule("a")])).unwrap_err();
    assert!(
        error.contains(r#"scopes[1].name is "a": must be"#),
        "{error}"
    );
    let many: Vec<String> = (0..17).map(|n| rule(&format!("r{n}"))).collect();
    assert!(parse(&config(&many[..16])).is_ok());
    assert!(parse(&config(&many)).is_err());
}

#[test]
fn modes_can_be_set_and_are_checked() {
    let json = r#"{"coordinator": "c", "enabled": false, "no_lease": "pessimistic", "scopes": [
        {"name": "a", "key": {"header": "x"}, "enforced_percent": 0, "on_overflow": "refuse",
         "missing": "deny", "no_lease": "optimistic"},
        {"name": "b", "key": {"header": "x"}, "enforced_percent": 25, "missing": "skip"}]}"#;
    let (config, unknown) = parse(json).unwrap();
    assert!(unknown.is_empty() && !config.engine.enabled);
    let [a, b] = &config.engine.rules[..] else {
        panic!()
    };
    assert_eq!((a.enforced, a.on_overflow), (0, Overflow::Refuse));
    assert_eq!(a.policy.no_lease, Mode::Optimistic);
    assert_eq!((b.enforced, b.on_overflow), (25, Overflow::Share));
    assert_eq!(b.policy.no_lease, Mode::Pessimistic);
    let [a, b] = &config.rules[..] else { panic!() };
    assert_eq!((&a.missing, &b.missing), (&Missing::Deny, &Missing::Skip));
    refused(&[
        (
            with(r#""enabled": 1"#),
            "enabled is 1: must be true or false",
        ),
        (
            named(r#""on_limit": "mark", "enforced_percent": 0"#),
            "enforced_percent is 0: must be absent beside \"on_limit\": \"mark\"",
        ),
        (
            named(r#""on_limit": "tell""#),
            "must be \"refuse\", \"shape\" or \"mark\"",
        ),
        (
            named(r#""enforced_percent": 101"#),
            "enforced_percent is 101: must be a whole number",
        ),
        (
            named(r#""enforced_percent": 0.5"#),
            "enforced_percent is 0.5",
        ),
        (
            named(r#""on_overflow": "drop""#),
            "on_overflow is \"drop\": must be \"share\"",
        ),
        (
            named(r#""missing": 7"#),
            "scopes[0].missing is 7: must be \"skip\"",
        ),
        (named(r#""no_lease": "x""#), "scopes[0].no_lease is \"x\""),
    ]);
}
