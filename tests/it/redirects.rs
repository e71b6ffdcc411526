//! A request that Envoy redirects itself is charged once, and nobody can pretend to be one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{Build, TENANT_HEADER, UPSTREAM, by_tenant, tollgate};

use crate::test_context::{TestContext, run_test};

/// Ten pass at once, and another after half an hour. `one` has one request in flight at a time.
const LIMITS: &str = "limits:\n  - match: tenant/one\n    requests: {rate: 0.0005, burst: 10}\n    \
    concurrency: {max: 1}\n  - match: \"*\"\n    requests: {rate: 0.0005, burst: 10}\n";

/// Headers that a client might send to look redirected.
const FORGED: [(&str, &str); 3] = [
    ("x-envoy-original-url", "http://localhost/redirect/1"),
    ("x-envoy-internal", "true"),
    ("num_internal_redirects", "1"),
];

#[test]
fn a_redirect_that_envoy_follows_is_charged_once() {
    run_test("a_redirect_that_envoy_follows_is_charged_once", redirects);
}

#[test]
fn a_redirect_behind_a_filter_that_pauses_is_charged_again_only_in_wasm() {
    run_test(
        "a_redirect_behind_a_filter_that_pauses_is_charged_again_only_in_wasm",
        behind_a_pause,
    );
}

async fn redirects(test: &TestContext) -> Result<()> {
    let upstream = FaultyUpstream::start().await?;
    let (_coordinator, envoy) = proxy(test, upstream.address(), 2, None).await?;
    let to = envoy.address();
    // At the same time, so that the workers have other streams between the passes of one.
    let passed = tokio::try_join!(
        passing(to, "a", "/redirect/1", &[]),
        passing(to, "b", "/redirect/3", &[]),
        passing(to, "c", "/ok", &FORGED),
        passing(to, "d", "/ok", &[]),
        passing(to, "one", "/redirect/2", &[]),
    )?;
    assert_eq!(passed, (10, 10, 10, 10, 10));
    Ok(())
}

async fn behind_a_pause(test: &TestContext) -> Result<()> {
    let upstream = FaultyUpstream::start().await?;
    let pause = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "delay": {"fixed_delay": "0.01s", "percentage": {"numerator": 100}},
        },
    });
    let (_coordinator, envoy) = proxy(test, upstream.address(), 1, Some(pause)).await?;
    let to = envoy.address();
    assert_eq!(passing(to, "alone", "/redirect/2", &[]).await?, 10);
    let (a, b) = tokio::try_join!(
        passing(to, "a", "/redirect/1", &[]),
        passing(to, "b", "/redirect/2", &[]),
    )?;
    let (least_a, least_b) = match Build::under_test()? {
        Build::Wasm => (5, 3),
        Build::Native => (10, 10),
    };
    assert!((least_a..=10).contains(&a), "{a}");
    assert!((least_b..=10).contains(&b), "{b}");
    Ok(())
}

/// An Envoy that follows up to three redirects, with a filter before Tollgate perhaps.
async fn proxy(
    test: &TestContext,
    upstream: SocketAddr,
    workers: u32,
    before: Option<Value>,
) -> Result<(Coordinator, Envoy)> {
    let coordinator = test.coordinator(LIMITS).await?;
    // No request is admitted at the safe capacity, however late the first lease comes.
    let plugin = by_tenant(&json!({"first_lease_wait_ms": 10_000}));
    let filters = before.into_iter().chain([tollgate(&plugin)?]).collect();
    let mut spec = EnvoySpec::new("envoy", workers, upstream, filters);
    spec.virtual_hosts = json!([{"name": "all", "domains": ["*"], "routes": [{
        "match": {"prefix": "/"},
        "route": {"cluster": UPSTREAM, "internal_redirect_policy": {"max_internal_redirects": 3}},
    }]}]);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    Ok((coordinator, envoy))
}

/// Number of twenty requests that pass, one after another on a connection.
async fn passing(
    to: SocketAddr,
    tenant: &str,
    path: &str,
    fields: &[(&str, &str)],
) -> Result<usize> {
    let fields = [fields, &[(TENANT_HEADER, tenant)]].concat();
    let request = get(path, &fields);
    let mut connection = Connection::open(to).await?;
    let mut passed = 0;
    for _ in 0..20 {
        let status = connection.status_of(&request).await?;
        ensure!(matches!(status, 200 | 429), "{path}: {status}");
        passed += usize::from(status == 200);
    }
    Ok(passed)
}
