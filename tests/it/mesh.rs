//! Plugins as Istio and Envoy Gateway configure them: several in one Envoy, and edits of one under load.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::conclude;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{UPSTREAM, by_tenant};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::mesh::{
    DiscoveredFilter, ISTIO_CLUSTER, WasmPlugin, extension_policy, turned_on,
};
use tollgate_tests::record::Record;

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_wasm_test, s,
};

/// Reason why a module is not tested.
const OF_WASM: &str = "plugins of meshes are wasm";

const RATE: f64 = 100.0;
const BURST: f64 = 100.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 100, burst: 100, lease: 4s, refresh: 500ms}\n";
/// Istio's name for the cluster of another Service of coordinators.
const OTHER_CLUSTER: &str = "outbound|7710||tollgate.other.svc.cluster.local";
/// Envoy Gateway's name for the cluster of the coordinators, if a route leads there.
const ROUTE_CLUSTER: &str = "httproute/infra/tollgate/rule/0";

#[test]
fn plugins_without_a_vm_id_keep_their_leases_apart() {
    run_wasm_test(
        "plugins_without_a_vm_id_keep_their_leases_apart",
        OF_WASM,
        several_plugins,
    );
}

#[test]
fn two_gateway_policies_are_two_clients_within_the_capacity() {
    run_wasm_test(
        "two_gateway_policies_are_two_clients_within_the_capacity",
        OF_WASM,
        two_policies,
    );
}

#[test]
fn three_edits_of_a_plugin_under_load_keep_leases_and_balances() {
    run_wasm_test(
        "three_edits_of_a_plugin_under_load_keep_leases_and_balances",
        OF_WASM,
        three_edits,
    );
}

/// Two plugins have the same coordinators, and a third one others, a table of another size and the name
/// of the first: one Envoy has three clients.
async fn several_plugins(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let other_dir = test.dir().join("other");
    fs::create_dir(&other_dir)?;
    let other_limits = "limits: [{match: \"*\", requests: {rate: 40, burst: 10}}]\n";
    let other = Coordinator::start(&other_dir, other_limits).await?;
    let elsewhere = json!({"coordinator": OTHER_CLUSTER, "max_scopes": 7});
    let mut third = WasmPlugin::new("tollgate", by_tenant(&elsewhere));
    third.namespace = "elsewhere".to_owned();
    let plugins = [
        WasmPlugin::new("tollgate", asking_istio(&json!({}))),
        WasmPlugin::new("second", asking_istio(&json!({"max_scopes": 3}))),
        third,
    ];
    let mut spec = EnvoySpec::new("envoy", 2, test.upstream.address(), Vec::new());
    let listener = |plugin: &WasmPlugin| anyhow::Ok((plugin.resource(), vec![plugin.filter()?]));
    spec.listeners = plugins.iter().map(listener).collect::<Result<_>>()?;
    spec.clusters = vec![
        (ISTIO_CLUSTER.to_owned(), coordinator.grpc()),
        (OTHER_CLUSTER.to_owned(), other.grpc()),
    ];
    let envoy = Envoy::start(test.dir(), &spec).await?;
    let flows = plugins.iter().map(|plugin| {
        let to = envoy.listener(&plugin.resource()).context("a listener")?;
        anyhow::Ok(Flow::new(to, "acme", 200.0))
    });
    let load = Load::start(flows.collect::<Result<Vec<_>>>()?);
    load.run_until(s(7.0)).await;
    assert_eq!(clients(&coordinator).await?.len(), 2);
    assert_eq!(clients(&other).await?.len(), 1);
    let records = load.stop().await?;
    let two = sum(&records[..2]);
    print_course("two plugins", &two);
    print_course("the third", &records[2]);
    let settled = s(3.0)..s(7.0);
    let rate = two.admitted_per_second(settled.clone());
    assert_near("two plugins, admitted/s", rate, RATE, 0.05);
    let rate = records[2].admitted_per_second(settled);
    assert_near("the third, admitted/s", rate, 40.0, 0.05);
    assert_never_above(&two, RATE, 2.0 * BURST);
    assert_never_above(&records[2], 40.0, 10.0);
    assert_eq!(sum(&records).total().failed, 0);
    Ok(())
}

/// Two policies have two `vm_id`s. Then one is renamed, so that its leases are lost.
async fn two_policies(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let config = by_tenant(&json!({"coordinator": ROUTE_CLUSTER}));
    let listeners = |names: [&str; 2]| {
        let filters = names.map(|name| extension_policy(name, &config));
        let filters = filters.into_iter().collect::<Result<Vec<_>>>()?;
        anyhow::Ok(vec![("main".to_owned(), filters)])
    };
    let mut spec = EnvoySpec::new("envoy", 2, test.upstream.address(), Vec::new());
    spec.clusters = vec![(ROUTE_CLUSTER.to_owned(), coordinator.grpc())];
    spec.listeners = listeners(["blue", "green"])?;
    spec.virtual_hosts = hosts(["blue", "green"]);
    let mut envoy = Envoy::start(test.dir(), &spec).await?;
    let flows = ["/0", "/1"].map(|path| Flow::at(envoy.address(), path, "acme", 200.0));
    let load = Load::start(flows);
    load.run_until(s(4.0)).await;
    let before = clients(&coordinator).await?;
    assert_eq!(before.len(), 2, "{before:?}");
    // Both at once: routes and filters come in one update.
    envoy.set_virtual_hosts(hosts(["blue", "red"]));
    ensure!(envoy.configure(&listeners(["blue", "red"])?).await?);
    let renamed = load.elapsed();
    load.run_until(renamed + s(9.0)).await;
    let after = clients(&coordinator).await?;
    let records = load.stop().await?;
    let all = sum(&records);
    print_course("both", &all);
    assert_eq!(
        before.intersection(&after).count(),
        1,
        "{before:?} {after:?}"
    );
    assert_near(
        "before",
        all.admitted_per_second(s(2.0)..s(4.0)),
        RATE,
        0.05,
    );
    // The lease of the old name has expired and its part is lent again.
    let settled = renamed + s(6.0)..renamed + s(9.0);
    assert_near("at the end", all.admitted_per_second(settled), RATE, 0.05);
    // Each of three clients has its burst once.
    assert_never_above(&all, RATE, 3.0 * BURST);
    assert_admitted(&all, 3.0);
    few_failed(&all)
}

/// One Envoy discovers the plugin by itself, so that the old VM goes when it has no requests; in the
/// other one the listener changes, so that two VMs serve requests while the old one drains.
async fn three_edits(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let mut plugin = WasmPlugin::new("tollgate", asking_istio(&json!({})));
    let mut discovered = DiscoveredFilter::new(test.dir(), "east", &plugin)?;
    let spec = |name, filter: Value| {
        let mut spec = EnvoySpec::new(name, 2, test.upstream.address(), vec![filter]);
        spec.clusters = vec![(ISTIO_CLUSTER.to_owned(), coordinator.grpc())];
        spec
    };
    let specs = [
        spec("east", discovered.place()),
        spec("west", plugin.filter()?),
    ];
    let mut envoys = Envoy::start_all(test.dir(), &specs).await?;
    let flows = envoys
        .iter()
        .map(|envoy| Flow::new(envoy.address(), "acme", 300.0));
    let load = Load::start(flows);
    load.run_until(s(3.0)).await;
    let before = clients(&coordinator).await?;
    let first_vms = vms(&envoys).await?;
    let edited = load.elapsed();
    for round in 1..=3_u32 {
        plugin = plugin.edited(asking_istio(&json!({"call_timeout_ms": 1000 + round})));
        discovered.update(&envoys[0], &plugin).await?;
        let listener = vec![("main".to_owned(), vec![plugin.filter()?])];
        ensure!(envoys[1].configure(&listener).await?);
        load.run_until(load.elapsed() + s(1.5)).await;
    }
    let settled = edited..load.elapsed();
    load.run_until(load.elapsed() + s(1.0)).await;
    let after = clients(&coordinator).await?;
    // Each worker of each Envoy, at each edit.
    let new_vms = vms(&envoys).await? - first_vms;
    ensure!(new_vms >= 3 * 2 * 2, "{new_vms} new VMs");
    let records = load.stop().await?;
    for (name, record) in ["discovered", "in the listener"].into_iter().zip(&records) {
        print_course(name, record);
    }
    assert_eq!(before.len(), 2, "{before:?}");
    assert_eq!(before, after, "the clients after three edits");
    let all = sum(&records);
    let rate = all.admitted_per_second(settled);
    assert_near("during the edits, admitted/s", rate, RATE, 0.05);
    assert_never_above(&all, RATE, 2.0 * BURST);
    assert_admitted(&all, 2.0);
    few_failed(&all)
}

/// The number of VMs that were ever made.
async fn vms(envoys: &[Envoy]) -> Result<u64> {
    let mut count = 0;
    for envoy in envoys {
        count += envoy.stat("wasm.envoy.wasm.runtime.v8.created").await?;
    }
    Ok(count)
}

/// Configuration of a plugin that asks the coordinators as Istio names them.
fn asking_istio(more: &Value) -> Value {
    let mut plugin = by_tenant(more);
    plugin["coordinator"] = json!(ISTIO_CLUSTER);
    plugin
}

/// Virtual hosts with a route for each of two policies.
fn hosts(policies: [&str; 2]) -> Value {
    let route = |(at, policy): (usize, &str)| {
        json!({
            "match": {"prefix": format!("/{at}")},
            "route": {"cluster": UPSTREAM},
            "typed_per_filter_config": turned_on(&[policy]),
        })
    };
    let routes: Vec<Value> = policies.into_iter().enumerate().map(route).collect();
    json!([{"name": "all", "domains": ["*"], "routes": routes}])
}

/// The clients with a lease of the tenant.
async fn clients(coordinator: &Coordinator) -> Result<BTreeSet<String>> {
    let leases = coordinator.leases("tenant/acme").await?;
    let leases = leases.context("leases of the tenant")?;
    let (lent, capacity) = (leases.sum_has(), leases.capacity);
    ensure!(lent <= capacity + 1e-6, "{lent} of {capacity} are lent");
    let holders = leases.clients.into_iter().filter(|client| client.has > 0.0);
    Ok(holders.map(|client| client.id).collect())
}

/// Asserts that over its whole time the fleet admitted no more than its capacity and that many bursts.
fn assert_admitted(record: &Record, bursts: f64) {
    let seconds = record.length().as_secs_f64();
    let admitted = record.total().admitted;
    let allowed = RATE * seconds + bursts * BURST;
    eprintln!("{admitted} admitted in {seconds:.1} s, allowed {allowed:.0}");
    conclude!(
        admitted as f64 <= allowed,
        "{admitted} admitted in {seconds} s, allowed are {allowed}"
    );
}

/// Envoy may close a draining connection while a request is in flight on it.
fn few_failed(record: &Record) -> Result<()> {
    let total = record.total();
    eprintln!("{total:?}");
    conclude!(
        total.failed as f64 <= 0.01 * total.offered as f64,
        "{total:?}"
    );
    Ok(())
}
