//! With an unreachable coordinator an Envoy uses its lease until it expires, then the safe capacity, and a
//! lease again when the coordinator is back.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::filter::{by_tenant, tenant_rule};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, print_course, run_test, s};

const LEASE_SECONDS: f64 = 3.0;
const CAPACITY: f64 = 200.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, safe: 20, lease: 3s, refresh: 500ms}\n";

#[test]
fn a_killed_coordinator_leaves_the_lease_then_the_safe_capacity() {
    run_test(
        "a_killed_coordinator_leaves_the_lease_then_the_safe_capacity",
        async |test: &TestContext| {
            let mut coordinator = test.coordinator(LIMITS).await?;
            let envoy = test
                .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 600.0)]);
            load.run_until(s(3.0)).await;
            coordinator.process.kill()?;
            let killed = load.elapsed();
            load.run_until(killed + s(9.0)).await;
            let record = load.record(0);
            print_course("acme", &record);
            let rate =
                |from: f64, to: f64| record.admitted_per_second(killed + s(from)..killed + s(to));
            assert_near("with the lease, admitted/s", rate(0.0, 2.0), CAPACITY, 0.05);
            assert_near(
                "in safe mode, admitted/s",
                rate(LEASE_SECONDS + 2.0, 9.0),
                20.0,
                0.1,
            );
            ensure!(
                envoy.stat("wasmcustom.tollgate.safe_mode").await? == 1,
                "the gauge shows one scope in safe mode"
            );
            ensure!(
                envoy.stat("wasmcustom.tollgate.refresh_errors").await? > 0,
                "errors are counted"
            );
            coordinator.restart().await?;
            recovers(&load).await?;
            assert_eq!(load.stop().await?.remove(0).total().failed, 0);
            Ok(())
        },
    );
}

#[test]
fn a_frozen_coordinator_is_an_outage_too() {
    run_test(
        "a_frozen_coordinator_is_an_outage_too",
        async |test: &TestContext| {
            let coordinator = test.coordinator(LIMITS).await?;
            let envoy = test
                .envoy("envoy", 2, &coordinator, &by_tenant(&json!({})))
                .await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 600.0)]);
            load.run_until(s(2.0)).await;
            coordinator.process.freeze()?;
            let frozen = load.elapsed();
            load.run_until(frozen + s(8.0)).await;
            coordinator.process.thaw()?;
            let record = load.record(0);
            print_course("acme", &record);
            let rate = record.admitted_per_second(frozen + s(LEASE_SECONDS + 2.0)..frozen + s(8.0));
            assert_near("in safe mode, admitted/s", rate, 20.0, 0.15);
            recovers(&load).await?;
            assert_eq!(load.stop().await?.remove(0).total().failed, 0);
            Ok(())
        },
    );
}

#[test]
fn a_coordinator_absent_at_the_start_means_the_configured_safe_capacity() {
    run_test(
        "a_coordinator_absent_at_the_start_means_the_configured_safe_capacity",
        async |test| {
            let mut coordinator = test.coordinator(LIMITS).await?;
            coordinator.process.kill()?;
            let plugin = by_tenant(&json!({"scopes": [tenant_rule(30.0)]}));
            let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
            let load = Load::start([Flow::new(envoy.address(), "acme", 300.0)]);
            load.run_until(s(7.0)).await;
            let rate = load.record(0).admitted_per_second(s(2.0)..s(7.0));
            assert_near("without a coordinator, admitted/s", rate, 30.0, 0.1);
            coordinator.restart().await?;
            recovers(&load).await?;
            assert_eq!(load.stop().await?.remove(0).total().failed, 0);
            Ok(())
        },
    );
}

/// Waits until the rate of one second is the capacity again. Learning takes the length of a lease, and the
/// filter's backoff a few seconds more.
async fn recovers(load: &Load) -> Result<()> {
    let back = load.elapsed();
    wait::until(
        "the lease to come back",
        Duration::from_secs(15),
        async || {
            let now = load.elapsed();
            let rate = load
                .record(0)
                .admitted_per_second(now.saturating_sub(s(1.0))..now);
            ensure!(rate >= 0.9 * CAPACITY, "{rate}/s instead of {CAPACITY}/s");
            Ok(())
        },
    )
    .await?;
    let now = load.elapsed();
    eprintln!(
        "at the capacity again {:.1} s after the start",
        (now - back).as_secs_f64()
    );
    load.run_until(now + s(3.0)).await;
    print_course("acme", &load.record(0));
    let rate = load.record(0).admitted_per_second(now..now + s(3.0));
    assert_near("recovered, admitted/s", rate, CAPACITY, 0.05);
    Ok(())
}
