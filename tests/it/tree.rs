//! Two regions, each with an Envoy, below one root: shares follow demand, and the regions go on
//! without the root.

use std::fs;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s};

const ROOT: &str = "limits:\n  - match: \"*\"\n    \
                    requests: {rate: 400, burst: 80, safe: 30, lease: 3s, refresh: 500ms}\n";

#[test]
fn regions_below_a_root_share_its_capacity_and_go_on_without_it() {
    play(
        "regions_below_a_root_share_its_capacity_and_go_on_without_it",
        share,
    );
}

async fn share(scene: &Scene) -> Result<()> {
    let root = scene.coordinator(ROOT).await?;
    let east = region(scene, "east", &root).await?;
    let west = region(scene, "west", &root).await?;
    let plugin = by_tenant(&json!({}));
    let envoys = [
        scene.envoy("east-envoy", 2, &east, &plugin).await?,
        scene.envoy("west-envoy", 2, &west, &plugin).await?,
    ];
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
    // The lease that was borrowed last, and then what is safe for the one Envoy of each region.
    assert_near(
        "west on what is borrowed, admitted/s",
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

/// A coordinator below `root`, which has no limits of its own.
async fn region(scene: &Scene, name: &str, root: &Coordinator) -> Result<Coordinator> {
    let dir = scene.dir().join(name);
    fs::create_dir_all(&dir)?;
    let parent = format!(
        "parent: {{name: {name}, addresses: [\"{}\"]}}\nlimits: []\n",
        root.grpc()
    );
    Coordinator::start(&dir, &parent).await
}
