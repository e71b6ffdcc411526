//! Responses to admitted requests carry the limits with the documentation's example configuration;
//! refusals carry each field once.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::connection::{Answer, get_once};
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, UPSTREAM, by_tenant, tollgate};

use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 0.01, burst: 10}\n";

const FIELDS: [&str; 5] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

#[test]
fn admitted_requests_are_told_their_limits() {
    run_test("admitted_requests_are_told_their_limits", told);
}

async fn told(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let drafts = json!(["ietf", "draft03"]);
    let plugin = by_tenant(&json!({
        "admitted_headers": drafts,
        "refusal_headers": drafts,
        // No request is told the safe capacity, however late the first lease comes.
        "first_lease_wait_ms": 10_000,
    }));
    let filters = vec![tollgate(&plugin)?];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    let text = fs::read_to_string(artifact::workspace().join("envoy/examples/limit-headers.json"))?;
    let fields: Value = serde_json::from_str(&text)?;
    spec.virtual_hosts = json!([{
        "name": "all", "domains": ["*"], "response_headers_to_add": fields,
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": UPSTREAM}}],
    }]);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let mut left = Vec::new();
    for _ in 0..12 {
        let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
        let fields = FIELDS.map(|name| answer.header(name).unwrap_or("-"));
        eprintln!("{}: {fields:?}", answer.status);
        for name in FIELDS {
            let times = count(&answer, name);
            ensure!(times == 1, "{name} occurs {times} times: {answer:?}");
        }
        assert_eq!(fields[1], "\"tenant\";q=36;w=3600");
        assert_eq!(fields[2], "36, 36;w=3600;name=\"tenant\"");
        left.push((answer.status, fields[3].parse()?));
    }
    let want: Vec<(u16, u64)> = (0..10).rev().map(|left| (200, left)).collect();
    assert_eq!(left[..10], want);
    assert_eq!(left[10..], [(429, 0), (429, 0)]);
    Ok(())
}

/// Number of lines with that name in the answer's head.
fn count(answer: &Answer, name: &str) -> usize {
    let prefix = format!("{name}: ");
    answer
        .lines()
        .filter(|line| line.starts_with(&prefix))
        .count()
}
