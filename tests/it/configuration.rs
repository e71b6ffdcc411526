//! A bad plugin configuration, or a module for another Envoy, leaves the old one in force. A good one
//! keeps the buckets' balances, and has one stream for nudges.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::artifact;
use tollgate_tests::conclude;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{self, by_tenant, tollgate_from};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, print_course, run_test, run_wasm_test, s};

const RATE: f64 = 50.0;
const BURST: f64 = 250.0;
/// Envoy's counter of resources that were named to it.
const NUDGES: &str = "wasmcustom.tollgate.nudges";
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 50, burst: 250}\n";

#[test]
fn a_bad_plugin_configuration_leaves_the_old_one() {
    run_test(
        "a_bad_plugin_configuration_leaves_the_old_one",
        async |test: &TestContext| {
            let coordinator = test.coordinator(LIMITS).await?;
            let mut envoy = test
                .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 300.0)]);
            load.run_until(s(2.0)).await;
            for bad in [
                by_tenant(&json!({"scopes": []})),
                by_tenant(&json!({"no_lease": "panic"})),
                by_tenant(&json!({"call_timeout_ms": -20})),
                json!("not an object"),
                by_tenant(&json!({"enabled_": true})),
            ] {
                assert!(!configure(&mut envoy, &bad).await?, "accepted: {bad}");
            }
            refuse_module_for_another_envoy(test, &mut envoy).await?;
            let from = load.elapsed();
            load.run_until(from + s(4.0)).await;
            let record = load.stop().await?.remove(0);
            assert_eq!(record.total().failed, 0);
            let rate = record.admitted_per_second(from..from + s(4.0));
            assert_near("under the old configuration, admitted/s", rate, RATE, 0.05);
            let unknown = by_tenant(&json!({"later_field": true, "unknown_fields": "warn"}));
            assert!(
                configure(&mut envoy, &unknown).await?,
                "an unknown field is ignored on demand"
            );
            Ok(())
        },
    );
}

#[test]
fn an_update_under_load_keeps_balances() {
    run_test(
        "an_update_under_load_keeps_balances",
        async |test: &TestContext| {
            let mut coordinator = test.coordinator(LIMITS).await?;
            let mut envoy = test
                .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 400.0)]);
            load.run_until(s(3.0)).await;
            for round in 1..=4_u32 {
                let plugin = by_tenant(&json!({"call_timeout_ms": 1000 + round}));
                assert!(configure(&mut envoy, &plugin).await?);
                let now = load.elapsed();
                load.run_until(now + s(1.5)).await;
                // Old root contexts live on until the listener has drained, without a stream.
                let watches = coordinator.metric("tollgate_watches").await?;
                conclude!(watches <= 1.0, "{watches} streams after update {round}");
            }
            let record = load.record(0);
            one_stream_brings_nudges(&mut coordinator, &envoy).await?;
            load.stop().await?;
            let total = record.total();
            let length = record.length().as_secs_f64();
            let most = BURST + RATE * length;
            eprintln!(
                "{} admitted in {length:.1} s, allowed {most:.0}; {total:?}",
                total.admitted
            );
            print_course("acme", &record);
            // A bucket refilled by an update would add up to 250 each time.
            conclude!(total.admitted as f64 <= most + 10.0, "{total:?}");
            conclude!(total.admitted as f64 >= 0.95 * RATE * length, "{total:?}");
            // Envoy may close a draining connection while a request is in flight on it.
            conclude!(
                total.failed as f64 <= 0.01 * total.offered as f64,
                "{total:?}"
            );
            Ok(())
        },
    );
}

#[test]
fn a_blank_vm_id_is_accepted() {
    let reason = "a module has no vm_id";
    run_wasm_test("a_blank_vm_id_is_accepted", reason, async |test| {
        let coordinator = test.coordinator(LIMITS).await?;
        let mut tollgate = filter::tollgate(&by_tenant(&json!({})))?;
        tollgate["typed_config"]["config"]["vm_config"]["vm_id"] = json!("");
        let spec = EnvoySpec::new("envoy", 2, test.upstream.address(), vec![tollgate]);
        let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
        let load = Load::start([Flow::new(envoy.address(), "acme", 300.0)]);
        load.run_until(s(4.0)).await;
        let record = load.stop().await?.remove(0);
        print_course("acme", &record);
        let rate = record.admitted_per_second(s(2.0)..s(4.0));
        assert_near("without a vm_id, admitted/s", rate, RATE, 0.05);
        let leases = coordinator.leases("tenant/acme").await?;
        assert_eq!(leases.map_or(0, |leases| leases.clients.len()), 1);
        Ok(())
    });
}

/// Has `envoy` load a dynamic module that calls a function which this Envoy does not have.
async fn refuse_module_for_another_envoy(test: &TestContext, envoy: &mut Envoy) -> Result<()> {
    const KNOWN: &[u8] = b"envoy_dynamic_module_callback_http_get_body_size";
    const UNKNOWN: &[u8] = b"envoy_dynamic_module_callback_http_get_body_kind";
    let mut library = fs::read(artifact::native_filter()?)?;
    let texts = library.split_mut(|byte| *byte == 0);
    let names = texts.filter(|text| *text == KNOWN);
    let renamed = names.map(|name| name.copy_from_slice(UNKNOWN)).count();
    ensure!(renamed > 0, "the module has no such name");
    let file = test.dir().join("libtollgate-later.so");
    fs::write(&file, library)?;
    let module = tollgate_from(&file, &by_tenant(&json!({})));
    let listeners = [("main".to_owned(), vec![module])];
    ensure!(!envoy.configure(&listeners).await?, "the module was taken");
    let missing = "undefined symbol: envoy_dynamic_module_callback_http_get_body_kind";
    let log = envoy.process.log();
    ensure!(log.contains(missing), "not named in the log: {missing}");
    Ok(())
}

/// Waits until the Envoy has its one stream for nudges, and checks that a lowered limit comes over it. A
/// module's stream ends with the configuration that has opened it, once that has drained, so a nudge may
/// find none.
async fn one_stream_brings_nudges(coordinator: &mut Coordinator, envoy: &Envoy) -> Result<()> {
    let before = envoy.stat(NUDGES).await?;
    let mut rate = RATE;
    wait::until("a nudge", s(20.0), async || {
        rate *= 0.8;
        let limits = LIMITS.replace("rate: 50", &format!("rate: {rate:.2}"));
        coordinator.reconfigure(&limits).await?;
        wait::until("the nudge of a lowered limit", s(1.0), async || {
            let nudges = envoy.stat(NUDGES).await?;
            ensure!(nudges > before, "{nudges} nudges, as before");
            Ok(())
        })
        .await
    })
    .await?;
    let watches = coordinator.metric("tollgate_watches").await?;
    ensure!(watches == 1.0, "{watches} streams");
    Ok(())
}

async fn configure(envoy: &mut Envoy, plugin: &Value) -> Result<bool> {
    envoy
        .configure(&[("main".to_owned(), vec![filter::tollgate(plugin)?])])
        .await
}
