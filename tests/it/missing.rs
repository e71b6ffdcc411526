//! A request without a key follows its rule's `missing` policy.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate_in};

use crate::test_context::{TestContext, run_test};

/// Blocks every scope; only requests without a scope pass.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 0}\n";

#[test]
fn a_request_without_a_key_meets_the_missing_policy() {
    run_test("a_request_without_a_key_meets_the_missing_policy", policies);
}

async fn policies(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), Vec::new());
    spec.listeners = vec![
        listener("skip", json!("skip"))?,
        listener("deny", json!("deny"))?,
        listener("default", json!({"default": "anonymous"}))?,
    ];
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    for (name, status) in [("skip", 200), ("deny", 400), ("default", 429)] {
        let to: SocketAddr = envoy
            .listener(name)
            .context("a listener that was started")?;
        for fields in [vec![], vec![(TENANT_HEADER, " ")]] {
            let answer = get_once(to, "/", &fields).await?;
            assert_eq!(
                answer.status, status,
                "missing: {name}, with {fields:?}: {answer:?}"
            );
        }
        let with_a_key = get_once(to, "/", &[(TENANT_HEADER, "acme")]).await?;
        assert_eq!(
            with_a_key.status, 429,
            "a request with a key is limited under the policy {name}"
        );
    }
    assert!(
        coordinator.leases("tenant/anonymous").await?.is_some(),
        "the default is a scope"
    );
    Ok(())
}

fn listener(name: &str, missing: Value) -> Result<(String, Vec<Value>)> {
    let rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "missing": missing});
    let plugin = by_tenant(&json!({"scopes": [rule]}));
    Ok((name.to_owned(), vec![tollgate_in(name, &plugin)?]))
}
