//! A request without a key does what its rule's `missing` policy says.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, Spec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate_in};

use crate::scene::{Scene, play};

/// Nothing passes but what no rule applies to.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 0}\n";

#[test]
fn a_request_without_a_key_meets_the_missing_policy() {
    play("a_request_without_a_key_meets_the_missing_policy", policies);
}

async fn policies(scene: &Scene) -> Result<()> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let mut spec = Spec::new("envoy", 1, scene.upstream.address(), Vec::new());
    spec.listeners = vec![
        listener("skip", json!("skip"))?,
        listener("deny", json!("deny"))?,
        listener("default", json!({"default": "nobody"}))?,
    ];
    let envoy = Envoy::start(scene.dir(), &spec.asking(coordinator.grpc())).await?;
    for (name, status) in [("skip", 200), ("deny", 400), ("default", 429)] {
        let to: SocketAddr = envoy
            .listener(name)
            .context("a listener that was started")?;
        let long = "x".repeat(1000);
        for fields in [
            vec![],
            vec![(TENANT_HEADER, " ")],
            vec![(TENANT_HEADER, long.as_str())],
        ] {
            let answer = get_once(to, "/", &fields).await?;
            assert_eq!(
                answer.status, status,
                "missing: {name}, with {fields:?}: {answer:?}"
            );
        }
        let with_a_key = get_once(to, "/", &[(TENANT_HEADER, "acme")]).await?;
        assert_eq!(
            with_a_key.status, 429,
            "a key is a key, whatever {name} says"
        );
    }
    assert!(
        coordinator.books("tenant/nobody").await?.is_some(),
        "the default is a scope"
    );
    Ok(())
}

fn listener(name: &str, missing: Value) -> Result<(String, Vec<Value>)> {
    let rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "missing": missing});
    let plugin = by_tenant(&json!({"scopes": [rule]}));
    Ok((name.to_owned(), vec![tollgate_in(name, &plugin)?]))
}
