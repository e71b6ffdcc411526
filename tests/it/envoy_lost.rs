//! The share of a dead Envoy returns to the others when its lease has expired.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, print_course, run_test, s};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    \
                      requests: {rate: 200, burst: 40, lease: 3s, refresh: 500ms}\n";

#[test]
fn the_share_of_a_killed_envoy_returns_after_its_lease() {
    run_test(
        "the_share_of_a_killed_envoy_returns_after_its_lease",
        share_returns,
    );
}

async fn share_returns(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [mut east, west] = test.envoys(names, &coordinator, &plugin).await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", 400.0),
        Flow::new(west.address(), "acme", 400.0),
    ]);
    load.run_until(s(5.0)).await;
    let before = load.record(1).admitted_per_second(s(3.0)..s(5.0));
    assert_near("west beside east, admitted/s", before, 100.0, 0.05);
    east.process.kill()?;
    load.set_rate(0, 0.0);
    wait::until(
        "the lease of the lost Envoy to end",
        Duration::from_secs(10),
        async || {
            let leases = coordinator.leases("tenant/acme").await?;
            let has = leases.map_or(0.0, |leases| leases.has("east"));
            ensure!(has == 0.0, "east still has {has}");
            Ok(())
        },
    )
    .await?;
    let ended = load.elapsed();
    load.run_until(ended + s(4.0)).await;
    let record = load.record(1);
    print_course("west", &record);
    let after = record.admitted_per_second(ended + s(1.0)..ended + s(4.0));
    assert_near("west alone, admitted/s", after, 200.0, 0.03);
    load.stop().await?;
    Ok(())
}
