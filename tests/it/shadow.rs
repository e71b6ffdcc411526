//! A rule in shadow mode counts and logs but refuses nothing; the filter can be switched off.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tollgate_tests::conclude;
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::recording_upstream::RecordingUpstream;
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 50, burst: 10}\n";

#[test]
fn a_shadow_counts_what_it_would_refuse() {
    run_test("a_shadow_counts_what_it_would_refuse", shadow);
}

async fn shadow(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "enforced_percent": 0});
    let plugin = by_tenant(&json!({"scopes": [rule]}));
    let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 200.0)]);
    load.run_until(s(4.0)).await;
    let total = load.stop().await?.remove(0).total();
    conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
    let counter = "wasmcustom.tollgate.shadowed.tenant.requests";
    // Of 200 a second 50 would have passed; before the first lease the safe capacity applies.
    let expected = total.admitted * 6 / 10;
    wait::until("the shadow's counter", Duration::from_secs(5), async || {
        let measured = envoy.stat(counter).await?;
        ensure!(measured > expected, "{measured} of more than {expected}");
        Ok(())
    })
    .await?;
    assert!(envoy.stat(counter).await? <= total.admitted - 4 * 50 + 50);
    assert_eq!(
        envoy
            .stat("wasmcustom.tollgate.refused.tenant.requests")
            .await?,
        0
    );
    Ok(())
}

#[test]
fn a_mark_tells_the_upstream_instead_of_refusing() {
    run_test("a_mark_tells_the_upstream_instead_of_refusing", marked);
}

/// Of a burst of ten the first pass, and the rest with a mark; what a client writes there itself does not count.
async fn marked(test: &TestContext) -> Result<()> {
    let upstream = RecordingUpstream::start().await?;
    let coordinator = test
        .coordinator("limits: [{match: \"*\", requests: {rate: 0.01, burst: 10}}]\n")
        .await?;
    let rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "on_limit": "mark"});
    let filters = vec![tollgate(&by_tenant(&json!({"scopes": [rule]})))?];
    let spec = EnvoySpec::new("envoy", 1, upstream.address(), filters).upstream_over_http2();
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let ask = async || {
        let fields = [(TENANT_HEADER, "acme"), ("tollgate-mark", "mine")];
        let answer = get_once(envoy.address(), "/", &fields).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    };
    ask().await?;
    // Nobody waits for the first answer: until it comes requests pass at the safe capacity.
    tokio::time::sleep(s(1.0)).await;
    for _ in 0..30 {
        ask().await?;
    }
    let requests = upstream.requests();
    let marks: Vec<_> = requests.iter().map(|one| one.mark.as_deref()).collect();
    let marked = marks
        .iter()
        .filter(|mark| **mark == Some("tenant/requests"));
    let marked = marked.count();
    ensure!((15..=25).contains(&marked), "{marks:?}");
    ensure!(!marks.contains(&Some("mine")), "{marks:?}");
    ensure!(marks[0].is_none() && marks[30].is_some(), "{marks:?}");
    Ok(())
}

#[test]
fn the_filter_is_switched_off_and_on_without_a_restart() {
    run_test(
        "the_filter_is_switched_off_and_on_without_a_restart",
        switched,
    );
}

async fn switched(test: &TestContext) -> Result<()> {
    let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 0}\n";
    let coordinator = test.coordinator(limits).await?;
    let plugin = |enabled: bool| by_tenant(&json!({"enabled": enabled}));
    let mut envoy = test.envoy("envoy", 1, &coordinator, &plugin(true)).await?;
    for (enabled, status) in [(true, 429), (false, 200), (true, 429)] {
        ensure!(
            envoy.configure(&listeners(&plugin(enabled))?).await?,
            "taken"
        );
        let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
        assert_eq!(answer.status, status, "enabled: {enabled}");
    }
    Ok(())
}

fn listeners(plugin: &Value) -> Result<Vec<(String, Vec<Value>)>> {
    Ok(vec![("main".to_owned(), vec![tollgate(plugin)?])])
}
