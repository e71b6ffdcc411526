use super::*;
use crate::config::Config;
use crate::fake::{Fake, Process};

fn condition(json: &str) -> Condition {
    let json = format!(
        r#"{{"coordinator": "c",
            "scopes": [{{"name": "a", "key": {{"constant": "x"}}, "when": {json}}}]}}"#
    );
    let (mut config, _) = Config::parse(json.as_bytes()).unwrap();
    config.rules.remove(0).when.unwrap()
}

#[test]
fn all_that_is_set_must_hold_and_of_a_list_any() {
    let request = [
        (":method", "POST"),
        (":path", "/v%31/orders?x=1"),
        ("x-canary", "yes"),
        ("accept", "text/html, application/json"),
    ];
    let rows = [
        (r#"{"methods": ["POST"]}"#, true),
        (r#"{"methods": ["GET", "POST"]}"#, true),
        (r#"{"methods": ["GET"]}"#, false),
        (r#"{"path": "/v1/orders"}"#, true),
        (r#"{"path": ["/v2", "/v1/orders"]}"#, true),
        (r#"{"path": "/v1"}"#, false),
        (r#"{"path_under": "/v1"}"#, true),
        (r#"{"path_under": ["/v2", "/v1/"]}"#, true),
        (r#"{"path_under": "/v"}"#, false),
        (r#"{"path_under": "/v1/orders/7"}"#, false),
        (r#"{"path_under": "/"}"#, true),
        (r#"{"path_prefix": "/v1/"}"#, true),
        (r#"{"path_prefix": ["/v2/", "/v1/o"]}"#, true),
        (r#"{"path_prefix": "/V1/"}"#, false),
        (r#"{"path_prefix": "/v1/", "methods": ["GET"]}"#, false),
        (r#"{"path_regex": "/v[0-9]+/orders"}"#, true),
        (r#"{"path_regex": "/v[0-9]+"}"#, false),
        (r#"{"path_regex": ["a|b", "/v1/.*"]}"#, true),
        (r#"{"headers": {"X-Canary": true}}"#, true),
        (r#"{"headers": {"x-canary": false}}"#, false),
        (r#"{"headers": {"x-other": false}}"#, true),
        (r#"{"headers": {"x-canary": "yes"}}"#, true),
        (r#"{"headers": {"x-canary": "no"}}"#, false),
        (r#"{"headers": {"x-canary": ["no", "yes"]}}"#, true),
        (r#"{"headers": {"x-canary": {"prefix": "ye"}}}"#, true),
        (r#"{"headers": {"x-canary": {"prefix": "es"}}}"#, false),
        (r#"{"headers": {"x-other": {"prefix": "y"}}}"#, false),
        (
            r#"{"headers": {"accept": {"item": "application/json"}}}"#,
            true,
        ),
        (r#"{"headers": {"accept": {"item": "application"}}}"#, false),
        (r#"{"source_in": ["10.0.0.0/8", "192.0.2.7"]}"#, true),
        (r#"{"source_in": ["192.0.3.0/24", "2001:db8::/32"]}"#, false),
        (r#"{"not": {"methods": ["GET"]}}"#, true),
        (
            r#"{"methods": ["POST"], "not": {"path_prefix": "/v1"}}"#,
            false,
        ),
        (
            r#"{"any": [{"methods": ["GET"]}, {"path": "/v1/orders"}]}"#,
            true,
        ),
        (r#"{"any": [{"methods": ["GET"]}, {"path": "/v1"}]}"#, false),
        (
            r#"{"all": [{"methods": ["POST"]}, {"path": "/v1/orders"}]}"#,
            true,
        ),
        (
            r#"{"all": [{"methods": ["POST"]}, {"not": {"any": [{"path_under": "/v1"}]}}]}"#,
            false,
        ),
    ];
    let host = Fake::new(&Process::new());
    host.set_headers(&request);
    // A client of version 4, as a socket of version 6 shows it.
    let address = b"[::ffff:192.0.2.7]:1234".to_vec();
    let mut properties = host.properties.borrow_mut();
    properties.insert("source.address".to_owned(), address);
    drop(properties);
    for (json, want) in rows {
        assert_eq!(condition(json).holds(&host), Ok(want), "{json}");
    }
}

#[test]
fn a_path_is_compared_as_an_upstream_may_read_it() {
    let rows = [
        ("/api/dev", true),
        ("/api/dev/", true),
        ("/api/dev/x?y=/..", true),
        ("//api//dev", true),
        ("/./api/x/../dev", true),
        ("/api/%64ev", true),
        ("/%2e%2e/api%2Fdev", true),
        ("/api\\dev", true),
        ("/../../api/dev/../dev/.", true),
        ("/api/developer", false),
        ("/api/dev/..", false),
        ("/api?/dev", false),
        ("/api%3F/dev", false),
        ("*", false),
        ("", false),
    ];
    let under = condition(r#"{"path_under": "/api/dev"}"#);
    let host = Fake::new(&Process::new());
    for (path, want) in rows {
        host.set_headers(&[(":path", path)]);
        assert_eq!(under.holds(&host), Ok(want), "{path}");
    }
    let regex = condition(r#"{"path_regex": "/v[0-9]+/orders.?x?"}"#);
    for path in [
        "/v1/orders",
        "/v1/orders/",
        "/v1/orders/.",
        "/v1/orders%0Ax",
    ] {
        host.set_headers(&[(":path", path)]);
        assert_eq!(regex.holds(&host), Ok(true), "{path}");
    }
}
