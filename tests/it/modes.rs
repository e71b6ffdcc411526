//! Without a lease the operator's choice holds: nothing, or what was wanted.

use anyhow::Result;
use serde_json::{Value, json};
use tollgate_tests::conclude;
use tollgate_tests::connection::get_once;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tenant_rule};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::record::Tally;

use crate::scene::{Scene, play, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 10}\n";

#[test]
fn pessimistic_admits_nothing_without_a_lease() {
    play(
        "pessimistic_admits_nothing_without_a_lease",
        async |scene: &Scene| {
            let seen = without_a_coordinator(scene, "pessimistic").await?;
            assert_eq!((seen.admitted, seen.failed), (0, 0), "{seen:?}");
            conclude!(seen.refused >= 150, "{seen:?}");
            Ok(())
        },
    );
}

#[test]
fn optimistic_admits_what_is_wanted_without_a_lease() {
    play(
        "optimistic_admits_what_is_wanted_without_a_lease",
        async |scene: &Scene| {
            let seen = without_a_coordinator(scene, "optimistic").await?;
            assert_eq!((seen.refused, seen.failed), (0, 0), "{seen:?}");
            conclude!(seen.admitted >= 150, "{seen:?}");
            Ok(())
        },
    );
}

/// What 100 requests a second meet for 2 s, once the first wait is over.
async fn without_a_coordinator(scene: &Scene, mode: &str) -> Result<Tally> {
    let mut coordinator = scene.coordinator(LIMITS).await?;
    coordinator.process.kill()?;
    let plugin = by_tenant(&json!({"no_lease": mode}));
    let envoy = scene.envoy("envoy", 2, &coordinator, &plugin).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 100.0)]);
    load.run_until(s(4.0)).await;
    let seen = load.record(0).within(s(2.0)..s(4.0));
    load.stop().await?;
    Ok(seen)
}

#[test]
fn a_refusal_for_want_of_a_lease_says_so() {
    play(
        "a_refusal_for_want_of_a_lease_says_so",
        async |scene: &Scene| {
            let mut coordinator = scene.coordinator(LIMITS).await?;
            coordinator.process.kill()?;
            let plugin = by_tenant(&json!({"scopes": [tenant_rule(0.0)]}));
            let envoy = scene.envoy("envoy", 1, &coordinator, &plugin).await?;
            let refusal = get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
            assert_eq!(refusal.status, 429);
            let problem: Value = serde_json::from_str(&refusal.body)?;
            let kind = problem["type"].as_str().unwrap_or_default();
            assert!(kind.ends_with("temporary-reduced-capacity"), "{problem}");
            Ok(())
        },
    );
}
