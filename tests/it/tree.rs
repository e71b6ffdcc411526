//! Two regions with an Envoy each below one root: shares follow demand, and the regions go on without the
//! root.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate};
use tollgate_tests::load::{Flow, Load, sum};

use crate::fleet_bucket::{admitted, three_envoys};
use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const ROOT: &str = "limits:\n  - match: \"*\"\n    \
                    requests: {rate: 400, burst: 80, safe: 30, lease: 3s, refresh: 500ms}\n";

#[test]
fn regions_below_a_root_share_its_capacity_and_go_on_without_it() {
    run_test(
        "regions_below_a_root_share_its_capacity_and_go_on_without_it",
        share,
    );
}

async fn share(test: &TestContext) -> Result<()> {
    let root = test.coordinator(ROOT).await?;
    let east = region(test, "east", &root).await?;
    let west = region(test, "west", &root).await?;
    let plugin = by_tenant(&json!({}));
    let filters = vec![tollgate(&plugin)?];
    let spec = |name, region: &Coordinator| {
        let spec = EnvoySpec::new(name, 2, test.upstream.address(), filters.clone());
        spec.asking(region.grpc())
    };
    let specs = [spec("east-envoy", &east), spec("west-envoy", &west)];
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let load = Load::start([
        Flow::new(envoys[0].address(), "acme", 900.0),
        Flow::new(envoys[1].address(), "acme", 40.0),
    ]);
    load.run_until(s(6.0)).await;
    load.set_rate(0, 40.0);
    load.set_rate(1, 900.0);
    load.run_until(s(13.5)).await;
    let mut root = root;
    root.process.kill()?;
    load.run_until(s(21.5)).await;
    let records = load.stop().await?;
    for (name, record) in ["east", "west"].iter().zip(&records) {
        print_course(name, record);
        assert_eq!(record.total().failed, 0);
    }
    let rate = |flow: usize, from, to| records[flow].admitted_per_second(s(from)..s(to));
    assert_near("east before, admitted/s", rate(0, 3.0, 6.0), 360.0, 0.05);
    assert_near(
        "west after the move, admitted/s",
        rate(1, 10.5, 13.5),
        360.0,
        0.05,
    );
    // First the region's last lease from the root, then the safe capacity of the region's only Envoy.
    assert_near(
        "west on its last lease, admitted/s",
        rate(1, 13.5, 15.0),
        360.0,
        0.05,
    );
    assert_near(
        "west without the root, admitted/s",
        rate(1, 18.5, 21.5),
        30.0,
        0.15,
    );
    assert_never_above(&sum(&records), 400.0, 80.0);
    Ok(())
}

/// Of ten an hour nothing is earned during the test.
const TEN: &str = "limits: [{match: \"*\", requests: {rate: 0.0027778, burst: 10}}]\n";

#[test]
fn ten_an_hour_of_the_root_are_ten_through_the_envoys_of_a_region() {
    run_test(
        "ten_an_hour_of_the_root_are_ten_through_the_envoys_of_a_region",
        ten,
    );
}

async fn ten(test: &TestContext) -> Result<()> {
    let root = test.coordinator(TEN).await?;
    let region = region(test, "east", &root).await?;
    let envoys = three_envoys(test, &region).await?;
    // Nobody knows the limit at the first request, which passes by the safe capacity if the root's answer is late.
    let first = admitted(&envoys, "acme", 1).await?;
    tokio::time::sleep(s(1.0)).await;
    let rest = admitted(&envoys, "acme", 20).await?;
    eprintln!("{first} and {rest}");
    ensure!(
        (9..=11).contains(&(first + rest)),
        "{first} and {rest} of 10"
    );
    Ok(())
}

/// Starts a coordinator below `root`, without limits of its own.
async fn region(test: &TestContext, name: &str, root: &Coordinator) -> Result<Coordinator> {
    let dir = test.dir().join(name);
    fs::create_dir_all(&dir)?;
    let parent = format!(
        "parent: {{name: {name}, addresses: [\"{}\"]}}\nlimits: []\n",
        root.grpc()
    );
    Coordinator::start(&dir, &parent).await
}
