//! The fleet admits its capacity, no more and no less, however unequal the offers are.

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};

use crate::scene::{Scene, assert_near, assert_never_above, play, s};

const CAPACITY: f64 = 1000.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 200}\n";
/// What the first burst and the first leases take.
const FIRST: f64 = 2.0;
const LENGTH: f64 = 30.0;

#[test]
fn every_ten_seconds_admit_the_capacity_within_two_percent() {
    play(
        "every_ten_seconds_admit_the_capacity_within_two_percent",
        accurate,
    );
}

/// Offers three times the capacity in unequal parts, and swaps the parts halfway.
async fn accurate(scene: &Scene) -> Result<()> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let east = scene
        .envoy("east", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let west = scene
        .envoy("west", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", 2700.0),
        Flow::new(west.address(), "acme", 300.0),
    ]);
    load.run_until(s(LENGTH / 2.0)).await;
    load.set_rate(0, 300.0);
    load.set_rate(1, 2700.0);
    load.run_until(s(LENGTH)).await;
    let records = load.stop().await?;
    let all = sum(&records);
    assert_eq!(all.total().failed, 0);
    let offered = all.within(s(0.0)..s(LENGTH)).offered as f64 / LENGTH;
    assert_near("offered/s", offered, 3.0 * CAPACITY, 0.02);
    let windows = all.windows(s(FIRST)..s(LENGTH), s(10.0));
    let least = windows.iter().copied().fold(f64::INFINITY, f64::min);
    let most = windows.iter().copied().fold(0.0, f64::max);
    assert_near("least in 10 s, admitted/s", least, CAPACITY, 0.02);
    assert_near("most in 10 s, admitted/s", most, CAPACITY, 0.02);
    assert_never_above(&all, CAPACITY, 200.0);
    let rate = |flow: usize, from, to| records[flow].admitted_per_second(s(from)..s(to));
    for (from, few, many) in [(FIRST, 1, 0), (LENGTH / 2.0 + 2.0, 0, 1)] {
        let to = from + 10.0;
        assert_near(
            &format!("few, {from} to {to} s"),
            rate(few, from, to),
            300.0,
            0.05,
        );
        assert_near(
            &format!("many, {from} to {to} s"),
            rate(many, from, to),
            700.0,
            0.05,
        );
    }
    Ok(())
}
