//! Envoys with unequal demand reach their max-min shares, and their sum never exceeds the capacity.

use std::array;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s, watch_leases,
};

const NAMES: [&str; 3] = ["envoy-0", "envoy-1", "envoy-2"];
const CAPACITY: f64 = 300.0;
const BURST: f64 = 60.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 300, burst: 60}\n";

#[test]
fn two_envoys_reach_their_shares() {
    run_test(
        "two_envoys_reach_their_shares",
        async |test: &TestContext| reach(test, [60.0, 900.0], [60.0, 240.0]).await,
    );
}

#[test]
fn three_envoys_reach_their_shares() {
    run_test(
        "three_envoys_reach_their_shares",
        async |test: &TestContext| reach(test, [40.0, 200.0, 800.0], [40.0, 130.0, 130.0]).await,
    );
}

/// Checks that Envoys with the loads `offers` on one tenant reach `shares`.
async fn reach<const N: usize>(
    test: &TestContext,
    offers: [f64; N],
    shares: [f64; N],
) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = array::from_fn(|place| NAMES[place]);
    let envoys: [Envoy; N] = test.envoys(names, &coordinator, &plugin).await?;
    let flows = envoys.iter().zip(offers);
    let load = Load::start(flows.map(|(envoy, rate)| Flow::new(envoy.address(), "acme", rate)));
    watch_leases(&coordinator, "tenant/acme", &load, s(10.0)).await?;
    let records = load.stop().await?;
    for (place, (record, share)) in records.iter().zip(shares).enumerate() {
        print_course(NAMES[place], record);
        let measured = record.admitted_per_second(s(4.0)..s(10.0));
        assert_near(&format!("envoy-{place}, admitted/s"), measured, share, 0.05);
        assert_eq!(record.total().failed, 0);
    }
    let all = sum(&records);
    let measured = all.admitted_per_second(s(4.0)..s(10.0));
    assert_near("all, admitted/s", measured, CAPACITY, 0.02);
    assert_never_above(&all, CAPACITY, BURST);
    Ok(())
}
