//! A process with several workers admits its lease once, not once for each worker.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s};

const WORKERS: u32 = 4;
const LENGTH: Duration = Duration::from_secs(7);

#[test]
fn four_workers_admit_one_lease() {
    play("four_workers_admit_one_lease", async |scene: &Scene| {
        let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 200, burst: 20}\n";
        admits(scene, WORKERS, limits, 1000.0, 200.0, 20.0).await
    });
}

#[test]
fn four_workers_are_exact_at_a_low_rate() {
    play(
        "four_workers_are_exact_at_a_low_rate",
        async |scene: &Scene| {
            let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 5, burst: 2}\n";
            admits(scene, WORKERS, limits, 100.0, 5.0, 2.0).await
        },
    );
}

#[test]
fn one_lease_is_admitted_whatever_the_number_of_workers() {
    play(
        "one_lease_is_admitted_whatever_the_number_of_workers",
        async |scene: &Scene| {
            let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 200, burst: 20}\n";
            for workers in [1, 2, 8] {
                eprintln!("{workers} workers");
                admits(scene, workers, limits, 600.0, 200.0, 20.0).await?;
            }
            Ok(())
        },
    );
}

/// The rate within 2 %, and never more than law 6 allows: the burst, the rate, and what the workers
/// have drawn and not spent, which is at most a quarter of the burst or a token each.
async fn admits(
    scene: &Scene,
    workers: u32,
    limits: &str,
    offer: f64,
    rate: f64,
    burst: f64,
) -> Result<()> {
    let coordinator = scene.coordinator(limits).await?;
    let envoy = scene
        .envoy("envoy", workers, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", offer)]);
    load.run_until(LENGTH).await;
    let record = load.stop().await?.remove(0);
    print_course("all", &record);
    assert_eq!(record.total().failed, 0);
    // One request more or less at either end.
    let part = f64::max(0.02, 1.0 / (5.0 * rate));
    assert_near(
        "admitted/s",
        record.admitted_per_second(s(2.0)..LENGTH),
        rate,
        part,
    );
    let slabs = f64::max(burst / 4.0, f64::from(workers));
    assert_never_above(&record, rate, burst + slabs);
    Ok(())
}
