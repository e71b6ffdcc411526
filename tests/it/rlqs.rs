//! Envoy's own filter `rate_limit_quota`, without any wasm, as the example configures it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::conditions::conclude;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::BIN;
use tollgate_tests::relay::{LinkQuality, Relay};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, print_course, run_test, s, watch_leases};

const EXAMPLE: &str = "envoy/examples/rate-limit-quota.yaml";

/// Safe capacity of each Envoy in the example.
const FALLBACK: f64 = 20.0;

const CAPACITY: f64 = 300.0;
const BURST: f64 = 60.0;

/// A coordinator's file; a shorter lease than is advised, so that the test of its end is short.
const CONFIG: &str = "rlqs: {domains: {edge: {scope: 'tenant/{tenant}', abandon_after: 10s}}}
limits:
  - match: '*'
    requests: {rate: 300, burst: 60, lease: 6s}
";

/// The filter of the example, for an Envoy called `name`.
fn filter(name: &str) -> Result<Value> {
    let text = fs::read_to_string(artifact::workspace().join(EXAMPLE))?;
    let example: Value = serde_saphyr::from_str(&text)?;
    let chain = &example["static_resources"]["listeners"][0]["filter_chains"][0];
    let mut filter = chain["filters"][0]["typed_config"]["http_filters"][0].clone();
    let metadata = &mut filter["typed_config"]["rlqs_server"]["initial_metadata"];
    ensure!(
        metadata[0]["key"] == "tollgate-client",
        "{EXAMPLE}: no name"
    );
    metadata[0]["value"] = json!(name);
    Ok(filter)
}

fn spec(test: &TestContext, name: &str) -> Result<EnvoySpec> {
    let filters = vec![filter(name)?];
    Ok(EnvoySpec::new(name, 2, test.upstream.address(), filters))
}

#[test]
fn the_example_is_whole() {
    let envoy = artifact::envoy().unwrap();
    let file = artifact::workspace().join(EXAMPLE);
    let mut command = Command::new(envoy);
    command
        .args(["--mode", "validate", "--config-path"])
        .arg(file);
    assert!(command.output().unwrap().status.success());
}

#[test]
fn two_envoys_without_wasm_reach_their_shares_and_outlive_the_coordinator() {
    run_test(
        "two_envoys_without_wasm_reach_their_shares_and_outlive_the_coordinator",
        shares_and_outage,
    );
}

async fn shares_and_outage(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(CONFIG).await?;
    let specs = [spec(test, "edge-1")?, spec(test, "edge-2")?];
    let specs = specs.map(|spec| spec.asking(coordinator.grpc()));
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let rates = [60.0, 900.0];
    let flows = envoys.iter().zip(rates);
    let load = Load::start(flows.map(|(envoy, rate)| Flow::new(envoy.address(), "acme", rate)));
    watch_leases(&coordinator, "tenant/acme", &load, s(18.0)).await?;
    coordinator.process.kill()?;
    // By now the assignments are over: six seconds at most, and one to be told of it.
    load.run_until(s(30.0)).await;
    coordinator.restart().await?;
    recovers(&load).await?;
    let records = load.stop().await?;
    for ((record, spec), share) in records.iter().zip(&specs).zip([60.0, 240.0]) {
        print_course(&spec.name, record);
        let rate = record.admitted_per_second(s(11.0)..s(18.0));
        assert_near(&format!("{}, admitted/s", spec.name), rate, share, 0.05);
        let rate = record.admitted_per_second(s(25.0)..s(30.0));
        let name = format!("{} without a coordinator, admitted/s", spec.name);
        assert_near(&name, rate, FALLBACK, 0.1);
        assert_eq!(record.total().failed, 0);
    }
    // From when both are assigned; before, Envoy lets everything pass, as the example says.
    let whole = sum(&records);
    for seconds in [1.0, 3.0] {
        let windows = whole.windows(s(2.0)..s(30.0), s(seconds));
        let most = windows.into_iter().fold(0.0, f64::max) * seconds;
        // Each bucket has up to a token more than its part of the burst, and a bin counts answers of
        // the one before.
        let allowed = CAPACITY * (seconds + BIN.as_secs_f64()) + BURST + 4.0;
        eprintln!("most admitted in {seconds} s: {most:.0}, allowed {allowed:.0}");
        conclude(most <= allowed, || {
            format!("{most} admitted in {seconds} s, allowed are {allowed}")
        });
    }
    Ok(())
}

/// Waits until the load is admitted as the capacity allows: the coordinator has learned for one
/// lease, and Envoy has opened its stream again, which it tries every five seconds.
async fn recovers(load: &Load) -> Result<()> {
    let from = load.elapsed();
    let condition = "shares after the restart";
    wait::until(condition, s(40.0), async || {
        let now = load.elapsed();
        ensure!(now > from + s(2.0), "too early to say");
        let record = sum(&[load.record(0), load.record(1)]);
        let rate = record.admitted_per_second(now - s(2.0)..now);
        ensure!(rate > CAPACITY * 0.9, "{rate}/s are admitted");
        Ok(())
    })
    .await
}

#[test]
fn a_cut_stream_keeps_its_share_and_an_idle_bucket_is_abandoned() {
    run_test(
        "a_cut_stream_keeps_its_share_and_an_idle_bucket_is_abandoned",
        cut_and_idle,
    );
}

async fn cut_and_idle(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(&CONFIG.replace("6s", "20s")).await?;
    let relay = Relay::to(coordinator.grpc()).await?;
    let spec = spec(test, "edge-1")?.asking(relay.address());
    let envoy = Envoy::start(test.dir(), &spec).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 900.0)]);
    load.run_until(s(9.0)).await;
    relay.set_quality(LinkQuality::Cut);
    load.run_until(s(11.0)).await;
    relay.set_quality(LinkQuality::Whole);
    load.run_until(s(19.0)).await;
    load.set_rate(0, 0.0);
    let record = load.record(0);
    print_course("edge-1", &record);
    for from in [7.0, 9.0, 11.0, 13.0, 15.0, 17.0] {
        let rate = record.admitted_per_second(s(from)..s(from + 2.0));
        assert_near(&format!("from {from} s, admitted/s"), rate, CAPACITY, 0.06);
    }
    let streams = coordinator.metric("tollgate_rlqs_streams").await?;
    ensure!(streams == 1.0, "{streams} streams");
    // Twice if Envoy's report, which comes every five seconds, and the message cross.
    wait::until("an idle bucket to be abandoned", s(40.0), async || {
        let abandoned = abandoned(&coordinator).await?;
        ensure!([1.0, 2.0].contains(&abandoned), "{abandoned} are abandoned");
        let leases = coordinator.leases("tenant/acme").await?;
        let held = leases.map_or(0.0, |leases| leases.sum_has());
        ensure!(held == 0.0, "leases of {held}");
        Ok(())
    })
    .await?;
    // And it comes back with its next request.
    load.set_rate(0, 100.0);
    wait::until(
        "an assignment of a bucket that came back",
        s(15.0),
        async || {
            let leases = coordinator.leases("tenant/acme").await?;
            let leases = leases.context("no lease")?;
            ensure!(leases.sum_has() >= 100.0, "{leases:?}");
            ensure!(
                leases
                    .clients
                    .iter()
                    .all(|client| client.id == "rlqs/edge-1/edge")
            );
            Ok(())
        },
    )
    .await?;
    ensure!(load.stop().await?.remove(0).total().failed == 0);
    Ok(())
}

async fn abandoned(coordinator: &Coordinator) -> Result<f64> {
    let name = "tollgate_rlqs_actions_total{action=\"abandon\"}";
    coordinator.metric(name).await
}
