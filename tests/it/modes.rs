//! Modes without a lease: nothing is admitted, or everything wanted.

use anyhow::Result;
use serde_json::{Value, json};
use tollgate_tests::conclude;
use tollgate_tests::connection::get_once;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tenant_rule};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::record::Tally;

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 10}\n";

#[test]
fn pessimistic_admits_nothing_without_a_lease() {
    run_test(
        "pessimistic_admits_nothing_without_a_lease",
        async |test: &TestContext| {
            let tally = without_a_coordinator(test, "pessimistic").await?;
            assert_eq!((tally.admitted, tally.failed), (0, 0), "{tally:?}");
            conclude!(tally.refused >= 150, "{tally:?}");
            Ok(())
        },
    );
}

#[test]
fn optimistic_admits_what_is_wanted_without_a_lease() {
    run_test(
        "optimistic_admits_what_is_wanted_without_a_lease",
        async |test: &TestContext| {
            let tally = without_a_coordinator(test, "optimistic").await?;
            assert_eq!((tally.refused, tally.failed), (0, 0), "{tally:?}");
            conclude!(tally.admitted >= 150, "{tally:?}");
            Ok(())
        },
    );
}

/// Results of 100 requests a second over 2 s, after the wait for the first lease.
async fn without_a_coordinator(test: &TestContext, mode: &str) -> Result<Tally> {
    let mut coordinator = test.coordinator(LIMITS).await?;
    coordinator.process.kill()?;
    let plugin = by_tenant(&json!({"no_lease": mode}));
    let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 100.0)]);
    load.run_until(s(4.0)).await;
    let tally = load.record(0).within(s(2.0)..s(4.0));
    load.stop().await?;
    Ok(tally)
}

#[test]
fn a_refusal_for_want_of_a_lease_says_so() {
    run_test(
        "a_refusal_for_want_of_a_lease_says_so",
        async |test: &TestContext| {
            let mut coordinator = test.coordinator(LIMITS).await?;
            coordinator.process.kill()?;
            let plugin = by_tenant(&json!({"scopes": [tenant_rule(0.0)]}));
            let envoy = test.envoy("envoy", 1, &coordinator, &plugin).await?;
            let refusal = get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
            assert_eq!(refusal.status, 429);
            let problem: Value = serde_json::from_str(&refusal.body)?;
            let kind = problem["type"].as_str().unwrap_or_default();
            assert!(kind.ends_with("temporary-reduced-capacity"), "{problem}");
            Ok(())
        },
    );
}
