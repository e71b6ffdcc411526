//! Envoys with unequal demand reach the max-min shares, and their sum never passes the capacity.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s, watch_books};

const CAPACITY: f64 = 300.0;
const BURST: f64 = 60.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 300, burst: 60}\n";

#[test]
fn two_envoys_reach_their_shares() {
    play("two_envoys_reach_their_shares", async |scene: &Scene| {
        reach(scene, &[60.0, 900.0], &[60.0, 240.0]).await
    });
}

#[test]
fn three_envoys_reach_their_shares() {
    play("three_envoys_reach_their_shares", async |scene: &Scene| {
        reach(scene, &[40.0, 200.0, 800.0], &[40.0, 130.0, 130.0]).await
    });
}

async fn reach(scene: &Scene, offers: &[f64], shares: &[f64]) -> Result<()> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let mut envoys = Vec::new();
    for place in 0..offers.len() {
        let name = format!("envoy-{place}");
        envoys.push(
            scene
                .envoy(&name, 2, &coordinator, &by_tenant(&json!({})))
                .await?,
        );
    }
    let flows = envoys.iter().zip(offers);
    let load = Load::start(flows.map(|(envoy, rate)| Flow::new(envoy.address(), "acme", *rate)));
    watch_books(&coordinator, "tenant/acme", &load, s(10.0)).await?;
    let records = load.stop().await?;
    for (place, (record, share)) in records.iter().zip(shares).enumerate() {
        print_course(&format!("envoy-{place}"), record);
        let seen = record.admitted_per_second(s(4.0)..s(10.0));
        assert_near(&format!("envoy-{place}, admitted/s"), seen, *share, 0.05);
        assert_eq!(record.total().failed, 0);
    }
    let all = sum(&records);
    let seen = all.admitted_per_second(s(4.0)..s(10.0));
    assert_near("all, admitted/s", seen, CAPACITY, 0.02);
    assert_never_above(&all, CAPACITY, BURST);
    Ok(())
}
