//! A process with several workers admits its lease once, not once for each worker.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s};

const WORKERS: u32 = 4;

#[test]
fn four_workers_admit_one_lease() {
    play("four_workers_admit_one_lease", async |scene: &Scene| {
        let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 200, burst: 20}\n";
        admits(scene, limits, 1000.0, 200.0, 20.0).await
    });
}

#[test]
fn four_workers_are_exact_at_a_low_rate() {
    play(
        "four_workers_are_exact_at_a_low_rate",
        async |scene: &Scene| {
            let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 5, burst: 2}\n";
            admits(scene, limits, 100.0, 5.0, 2.0).await
        },
    );
}

async fn admits(scene: &Scene, limits: &str, offer: f64, rate: f64, burst: f64) -> Result<()> {
    let coordinator = scene.coordinator(limits).await?;
    let envoy = scene
        .envoy("envoy", WORKERS, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", offer)]);
    load.run_until(s(8.0)).await;
    let record = load.stop().await?.remove(0);
    print_course("all", &record);
    assert_eq!(record.total().failed, 0);
    // One request more or less at either end.
    let part = f64::max(0.02, 1.0 / (6.0 * rate));
    assert_near(
        "admitted/s",
        record.admitted_per_second(s(2.0)..s(8.0)),
        rate,
        part,
    );
    assert_never_above(&record, rate, burst + 1.0);
    Ok(())
}
