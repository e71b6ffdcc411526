//! Two filters in one chain, as for addresses before a login and for users after it: a route names rules
//! of both, and responses tell the limits of both.

use std::fs;
use std::net::SocketAddr;

use anyhow::Result;
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::connection::{Answer, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{COORDINATOR, UPSTREAM, tollgate};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"address/*\"\n    \
    requests: {rate: 0.02, burst: 20}\n  - match: \"user/*\"\n    requests: {rate: 0.01, burst: 10}\n";

#[test]
fn two_filters_share_a_route_and_tell_the_limits_of_both() {
    let name = "two_filters_share_a_route_and_tell_the_limits_of_both";
    run_test(name, two_filters);
}

async fn two_filters(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let filter = |rule: Value| {
        tollgate(&json!({
            "coordinator": COORDINATOR,
            "per_route": true,
            "first_lease_wait_ms": 10_000,
            "refusal_headers": ["ietf", "draft03"],
            "admitted_headers": ["ietf", "draft03"],
            "scopes": [rule],
        }))
    };
    let filters = vec![
        filter(json!({"name": "address", "key": {"constant": "all"}}))?,
        filter(json!({"name": "user", "key": {"header": "x-user"}}))?,
    ];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    spec.virtual_hosts = virtual_hosts()?;
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let to = envoy.address();
    check_admitted(to).await?;
    check_refused(to).await?;
    // The switch works whatever else is wrong.
    for _ in 0..30 {
        assert_eq!(ask(to, "/off", "acme").await?.status, 200);
    }
    Ok(())
}

async fn check_admitted(to: SocketAddr) -> Result<()> {
    let answer = ask(to, "/both", "acme").await?;
    let want = [
        ("ratelimit", "\"address\";r=19;t=50, \"user\";r=9;t=100"),
        (
            "ratelimit-policy",
            "\"address\";q=72;w=3600, \"user\";q=36;w=3600",
        ),
        ("x-ratelimit-limit", "36, 36;w=3600;name=\"user\""),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "100"),
    ];
    check(&answer, 200, &want);
    let answer = ask(to, "/address", "acme").await?;
    let want = [
        ("ratelimit", "\"address\";r=18;t=100"),
        ("x-ratelimit-remaining", "18"),
    ];
    check(&answer, 200, &want);
    Ok(())
}

/// Nine more of the user pass, whose filter is the second one.
async fn check_refused(to: SocketAddr) -> Result<()> {
    for _ in 0..9 {
        assert_eq!(ask(to, "/both", "acme").await?.status, 200);
    }
    let answer = ask(to, "/both", "acme").await?;
    let want = [
        ("tollgate-reason", "user/requests"),
        ("x-ratelimit-limit", "36, 36;w=3600;name=\"user\""),
        ("x-ratelimit-remaining", "0"),
    ];
    check(&answer, 429, &want);
    let limits: Vec<&str> = answer
        .lines()
        .filter(|line| line.starts_with("ratelimit: "))
        .collect();
    assert_eq!(limits.len(), 2, "one line from each filter: {limits:?}");
    assert!(limits.concat().contains("\"address\";r=8"), "{limits:?}");
    Ok(())
}

/// Checks fields that an answer has once.
fn check(answer: &Answer, status: u16, fields: &[(&str, &str)]) {
    assert_eq!(answer.status, status, "{answer:?}");
    for (name, want) in fields {
        let prefix = format!("{name}: ");
        let lines = answer.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert_eq!(lines.collect::<Vec<_>>(), [*want], "{name}: {answer:?}");
    }
}

async fn ask(to: SocketAddr, path: &str, user: &str) -> Result<Answer> {
    get_once(to, path, &[("x-user", user)]).await
}

fn virtual_hosts() -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join("envoy/examples/limit-headers.json"))?;
    let fields: Value = serde_json::from_str(&text)?;
    let route = |path: &str, metadata: Value| {
        json!({
            "name": path,
            "match": {"prefix": path},
            "route": {"cluster": UPSTREAM},
            "metadata": {"filter_metadata": {"tollgate": metadata}},
        })
    };
    Ok(json!([{
        "name": "all", "domains": ["*"], "response_headers_to_add": fields,
        "routes": [
            route("/both", json!({"scopes": ["address", "user"]})),
            route("/address", json!({"scopes": ["address"]})),
            route("/off", json!({"disabled": true, "cost": "dear", "scopes": ["nobody"]})),
        ],
    }]))
}
