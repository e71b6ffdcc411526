//! A quota holds for the fleet: through whichever Envoys the requests go, and whatever is killed meanwhile.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::connection::get_once;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};

use crate::fleet_bucket::{admitted, three_envoys};
use crate::test_context::{TestContext, run_test};

/// Windows that do not end during a test.
const CONFIG: &str = "store: {path: kept.redb}
limits:
- {match: tenant/alone, requests: {quota: {amount: 120, per: year}, safe: 0}}
- match: tenant/two
  requests: {rate: 1000, quota: [{amount: 20, per: year}, {amount: 50, per: 24h}], safe: 0}
- {match: tenant/killed, requests: {quota: {amount: 300, per: year}, safe: 0}}
groups: {plan: {requests: {quota: {amount: 10, per: year}}}}
attach: {tenants: {left: plan, right: plan}}";

#[test]
fn a_quota_is_exact_through_any_envoys() {
    run_test("a_quota_is_exact_through_any_envoys", any_envoys);
}

async fn any_envoys(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(CONFIG).await?;
    let envoys = three_envoys(test, &coordinator).await?;
    for (tenant, requests, amount) in [("alone", 150, 120), ("two", 30, 20)] {
        let passed = admitted(&envoys, tenant, requests).await?;
        ensure!(passed == amount, "{passed} of {amount} for {tenant}");
    }
    let left = admitted(&envoys, "left", 7).await?;
    let right = admitted(&envoys, "right", 7).await?;
    ensure!(
        (left, right) == (7, 3),
        "{left} and {right} of a group's 10"
    );
    let refusal = get_once(envoys[0].address(), "/", &[(TENANT_HEADER, "two")]).await?;
    ensure!(refusal.status == 429);
    let header = |name: &str| refusal.header(name).unwrap_or_default().to_owned();
    ensure!(header("tollgate-reason") == "tenant/requests/quota");
    let policy = header("ratelimit-policy");
    ensure!(policy == r#""tenant/quota";q=20;w=31536000"#, "{policy}");
    let state = header("ratelimit");
    ensure!(state.starts_with(r#""tenant/quota";r=0;t="#), "{state}");
    Ok(())
}

#[test]
fn no_kill_brings_a_token_of_a_quota_back() {
    run_test("no_kill_brings_a_token_of_a_quota_back", kills);
}

async fn kills(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(CONFIG).await?;
    let mut envoys = three_envoys(test, &coordinator).await?;
    let plugin = by_tenant(&json!({}));
    let mut passed = 0;
    for round in 0..4 {
        passed += admitted(&envoys, "killed", 30).await?;
        coordinator.process.kill()?;
        coordinator.restart().await?;
        passed += admitted(&envoys, "killed", 30).await?;
        envoys.remove(0).process.kill()?;
        let name = format!("envoy-{}", round + 4);
        envoys.push(test.envoy(&name, 2, &coordinator, &plugin).await?);
    }
    // Each Envoy may have lost a token or two of those that it had been granted.
    let mut next = tokio::time::interval(Duration::from_millis(100));
    let mut refused_in_turn = 0;
    while refused_in_turn < 60 {
        next.tick().await;
        let more = admitted(&envoys, "killed", 3).await?;
        refused_in_turn = if more > 0 { 0 } else { refused_in_turn + 3 };
        passed += more;
    }
    eprintln!("{passed} of 300");
    ensure!((297..=300).contains(&passed), "{passed} of 300");
    Ok(())
}
