//! Real Envoys with their own `ratelimit` filter, which asks a coordinator about each request, beside
//! one with our filter.

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::connection::get_once;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER, by_tenant, global_rate_limit};
use tollgate_tests::load::{Flow, Load, sum};

mod descriptors;

use crate::harness::NO_FILTER;
use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, run_wasm_test, s,
};

const CAPACITY: f64 = 600.0;
const BURST: f64 = 60.0;
const CONFIG: &str = "limits:
  - match: \"tenant/acme\"
    requests: {rate: 600, burst: 60}
  - match: \"tenant/few\"
    requests: {rate: 0.01, burst: 5}
rls:
  domains:
    tollgate:
      response_headers: true
      scopes:
        - {scope: \"tenant/{tenant}\", name: per-tenant}
";

/// Starts an Envoy whose own filter asks `coordinator`.
async fn envoy(test: &TestContext, name: &str, coordinator: &Coordinator) -> Result<Envoy> {
    let filters = vec![global_rate_limit(COORDINATOR)];
    let spec = EnvoySpec::new(name, 2, test.upstream.address(), filters);
    Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await
}

#[test]
fn envoys_own_filter_refuses_what_the_coordinator_says() {
    run_wasm_test(
        "envoys_own_filter_refuses_what_the_coordinator_says",
        NO_FILTER,
        refuses,
    );
}

async fn refuses(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(CONFIG).await?;
    let envoy = envoy(test, "envoy", &coordinator).await?;
    let mut statuses = Vec::new();
    for _ in 0..7 {
        let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, "few")]).await?;
        let left = answer.header("x-ratelimit-remaining");
        statuses.push((answer.status, left.unwrap_or("-").to_owned()));
        if answer.status == 429 {
            ensure!(
                answer.header("x-envoy-ratelimited") == Some("true"),
                "{answer:?}"
            );
            let limit = answer.header("x-ratelimit-limit");
            ensure!(
                limit == Some("36, 36;w=3600;name=\"per-tenant\""),
                "{answer:?}"
            );
        }
    }
    let want = [
        (200, "4"),
        (200, "3"),
        (200, "2"),
        (200, "1"),
        (200, "0"),
        (429, "0"),
        (429, "0"),
    ];
    assert_eq!(
        statuses,
        want.map(|(status, left)| (status, left.to_owned()))
    );
    let free = get_once(envoy.address(), "/", &[(TENANT_HEADER, "free")]).await?;
    ensure!(free.status == 200, "a scope without a limit: {free:?}");
    let none = get_once(envoy.address(), "/", &[]).await?;
    ensure!(none.status == 200, "no descriptor: {none:?}");
    assert_eq!(
        envoy.stat("cluster.upstream.ratelimit.over_limit").await?,
        2
    );

    // Another rule for the same scopes finds the same balances.
    let shadow = CONFIG.replace("name: per-tenant", "shadow: true");
    coordinator.reconfigure(&shadow).await?;
    let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, "few")]).await?;
    let left = answer.header("x-ratelimit-remaining");
    ensure!((answer.status, left) == (200, Some("0")), "{answer:?}");
    Ok(())
}

#[test]
fn both_filters_share_a_tenants_limit() {
    run_test("both_filters_share_a_tenants_limit", share);
}

async fn share(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(CONFIG).await?;
    let own = envoy(test, "own", &coordinator).await?;
    let ours = test
        .envoy("ours", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([
        Flow::new(own.address(), "acme", 450.0),
        Flow::new(ours.address(), "acme", 450.0),
    ]);
    load.run_until(s(12.0)).await;
    let records = load.stop().await?;
    for (name, record) in ["own", "ours"].into_iter().zip(&records) {
        print_course(name, record);
        assert_eq!(record.total().failed, 0);
        let admitted = record.admitted_per_second(s(3.0)..s(12.0));
        assert_near(name, admitted, CAPACITY / 2.0, 0.05);
    }
    let all = sum(&records);
    assert_never_above(&all, CAPACITY, BURST);
    let admitted = all.admitted_per_second(s(3.0)..s(12.0));
    assert_near("both, admitted/s", admitted, CAPACITY, 0.02);
    Ok(())
}

#[test]
fn three_nodes_let_pass_one_capacity() {
    run_wasm_test("three_nodes_let_pass_one_capacity", NO_FILTER, three_nodes);
}

async fn three_nodes(test: &TestContext) -> Result<()> {
    // New masters learn for as long as a lease.
    let config = CONFIG.replace("burst: 60", "burst: 60, lease: 2s, refresh: 1s");
    let spec = ClusterSpec {
        members: 1,
        nodes: 3,
        shards: 3,
        lease_s: 3,
        limits: &config,
    };
    let cluster = Cluster::start(test.dir(), &spec).await?;
    cluster.wait_for_masters().await?;
    let specs = cluster
        .addresses()
        .into_iter()
        .enumerate()
        .map(|(i, node)| {
            let filters = vec![global_rate_limit(COORDINATOR)];
            let name = format!("envoy-{i}");
            EnvoySpec::new(&name, 1, test.upstream.address(), filters).asking(node)
        });
    let specs: Vec<_> = specs.collect();
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let rates = [500.0, 300.0, 100.0];
    let flows = envoys.iter().zip(rates);
    let load = Load::start(flows.map(|(envoy, rate)| Flow::new(envoy.address(), "acme", rate)));
    load.run_until(s(14.0)).await;
    let records = load.stop().await?;
    for (record, envoy) in records.iter().zip(&specs) {
        print_course(&envoy.name, record);
        assert_eq!(record.total().failed, 0);
    }
    let all = sum(&records);
    assert_never_above(&all, CAPACITY, BURST);
    let admitted = all.admitted_per_second(s(4.0)..s(14.0));
    assert_near("all, admitted/s", admitted, CAPACITY, 0.02);
    // Max-min: the smallest gets all that it asks for.
    assert_near(
        "the smallest",
        records[2].admitted_per_second(s(4.0)..s(14.0)),
        100.0,
        0.05,
    );
    Ok(())
}
