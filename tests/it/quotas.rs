//! A quota holds for the fleet: through whichever Envoys the requests go, and whatever is killed meanwhile.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_net::clock::unix_time;
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::BIN;

use crate::coordinators::ExampleCluster;
use crate::fleet_bucket::{admitted, three_envoys};
use crate::test_context::{TestContext, run_test, s};

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

/// A minute's amount.
const MINUTE: u64 = 600;

#[test]
#[ignore = "takes two to three minutes"]
fn a_window_begins_at_once_and_with_nothing_of_the_one_before() {
    run_test(
        "a_window_begins_at_once_and_with_nothing_of_the_one_before",
        window_end,
    );
}

/// Two Envoys that are asked for eight times the amount.
async fn window_end(test: &TestContext) -> Result<()> {
    let config = format!(
        "limits: [{{match: 'tenant/*', requests: {{quota: {{amount: {MINUTE}, per: minute}}, safe: 0}}}}]\n"
    );
    let coordinator = test.coordinator(&config).await?;
    let plugin = by_tenant(&json!({"no_lease": "pessimistic"}));
    let mut flows = Vec::new();
    let mut envoys = Vec::new();
    for name in ["envoy-0", "envoy-1"] {
        let envoy = test.envoy(name, 1, &coordinator, &plugin).await?;
        flows.push(Flow::new(envoy.address(), "acme", 40.0));
        envoys.push(envoy);
    }
    let since_minute = unix_time().as_secs_f64() % 60.0;
    let load = Load::start(flows);
    let first_end = Duration::from_secs_f64(60.0 - since_minute);
    let ends = [first_end, first_end + s(60.0)];
    load.run_until(ends[1] + s(15.0)).await;
    let record = sum(&load.stop().await?);
    let passed = record.within(ends[0]..ends[1]).admitted;
    ensure!(passed == MINUTE, "{passed} of {MINUTE} in a whole minute");
    for end in ends {
        let before = record.within(end - s(5.0)..end - BIN).admitted;
        ensure!(before == 0, "{before} passed at the end of a window");
        // The load is known by bins.
        let soon = record.within(end - BIN..end + s(0.2) + BIN).admitted;
        eprintln!("{soon} passed within 0.2 s of a window's beginning");
        ensure!(soon > 0, "nothing passed within 0.2 s");
    }
    Ok(())
}

/// A day's amount, and the load on each Envoy, which asks for more than that after the kills.
const DAY: (usize, f64) = (100_000, 120.0);
/// Time with kills, and between two of them.
const KILLS: (Duration, Duration) = (s(600.0), s(2.0));

#[test]
#[ignore = "takes a quarter of an hour"]
fn a_days_quota_outlives_three_hundred_kills() {
    run_test("a_days_quota_outlives_three_hundred_kills", day_of_kills);
}

/// Three Envoys and three coordinators with etcd, of which one is killed every two seconds.
async fn day_of_kills(test: &TestContext) -> Result<()> {
    let (amount, rate) = DAY;
    let limits = format!(
        "limits: [{{match: '*', requests: {{quota: {{amount: {amount}, per: year}}, safe: 0}}}}]\n"
    );
    let mut cluster = ExampleCluster::start_with(test, 1, &limits).await?;
    let mut sites = Vec::new();
    for number in 0..3 {
        sites.push(Site::start(test, &cluster, number, rate).await?);
    }
    let mut next = tokio::time::interval(KILLS.1);
    let (started, mut passed) = (tokio::time::Instant::now(), 0);
    for kill in 0.. {
        next.tick().await;
        if started.elapsed() > KILLS.0 {
            break;
        }
        let victim = kill % 6 / 2;
        if kill % 2 == 0 {
            cluster.nodes[victim].process.kill()?;
            cluster.nodes[victim].spawn_again()?;
        } else {
            let mut site = sites.remove(0);
            site.envoy.process.kill()?;
            passed += site.admitted().await?;
            sites.push(Site::start(test, &cluster, kill + 3, rate).await?);
        }
    }
    eprintln!("{passed} passed through Envoys that were killed");
    tokio::time::sleep(s(240.0)).await;
    for site in sites {
        passed += site.admitted().await?;
    }
    eprintln!("{passed} of {amount}");
    ensure!(passed <= amount, "{passed} of {amount}");
    ensure!(passed * 100 >= amount * 99, "{passed} of {amount}");
    Ok(())
}

/// An Envoy, and load on it.
struct Site {
    envoy: Envoy,
    load: Load,
}

// === impl Site ===

impl Site {
    async fn start(
        test: &TestContext,
        cluster: &ExampleCluster,
        number: usize,
        rate: f64,
    ) -> Result<Self> {
        let name = format!("envoy-{number}");
        let example = "any-coordinator.yaml";
        // Before its first answer it has a safe capacity of its own, which counts only when it is told.
        let no_safe = json!({"no_lease": "pessimistic"});
        let envoy = cluster.envoy_called(test, &name, example, &no_safe).await?;
        let load = Load::start([Flow::new(envoy.address(), "acme", rate)]);
        Ok(Self { envoy, load })
    }

    /// Ends the load. Returns how many passed.
    async fn admitted(self) -> Result<usize> {
        let records = self.load.stop().await?;
        Ok(records
            .iter()
            .map(|record| record.total().admitted as usize)
            .sum())
    }
}
