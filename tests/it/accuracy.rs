//! The fleet admits its capacity, no more and no less, however unequal the offers are, and finds
//! the new shares within 2 s when they change places.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s};

const CAPACITY: f64 = 1000.0;
const BURST: f64 = 200.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 200}\n";
/// Three times the capacity, in unequal parts.
const OFFERS: [f64; 2] = [2700.0, 300.0];
/// Their max-min shares.
const SHARES: [f64; 2] = [700.0, 300.0];
/// What the first burst and the first leases take, and what a change may take.
const FIRST: Duration = Duration::from_secs(2);

#[test]
fn every_ten_seconds_admit_the_capacity_within_two_percent() {
    play(
        "every_ten_seconds_admit_the_capacity_within_two_percent",
        async |scene: &Scene| {
            let length = s(30.0);
            let records = offer(scene, length, None).await?;
            let all = sum(&records);
            let offered = all.within(s(0.0)..length).offered as f64 / length.as_secs_f64();
            assert_near("offered/s", offered, 3.0 * CAPACITY, 0.02);
            let (least, most) = extremes(&all, FIRST..length);
            assert_near("least in 10 s, admitted/s", least, CAPACITY, 0.02);
            assert_near("most in 10 s, admitted/s", most, CAPACITY, 0.02);
            assert_shares(&records, FIRST..length, SHARES);
            Ok(())
        },
    );
}

#[test]
fn offers_that_change_places_are_fair_again_within_two_seconds() {
    play(
        "offers_that_change_places_are_fair_again_within_two_seconds",
        async |scene: &Scene| {
            let (length, swap) = (s(24.0), s(12.0));
            let records = offer(scene, length, Some(swap)).await?;
            assert_shares(&records, FIRST..swap, SHARES);
            assert_shares(&records, swap + FIRST..length, [SHARES[1], SHARES[0]]);
            let all = sum(&records);
            let (least, most) = extremes(&all, FIRST..length);
            // While a lease shrinks here before it grows there, less than the capacity is in use.
            eprintln!("with the change, admitted/s in 10 s: {least:.1} to {most:.1}");
            assert!(most <= 1.02 * CAPACITY, "{most}");
            assert!(least >= 0.9 * CAPACITY, "{least}");
            let after = all.admitted_per_second(swap + FIRST..length);
            assert_near("after the change, admitted/s", after, CAPACITY, 0.02);
            Ok(())
        },
    );
}

/// Offers to two Envoys for `length`; their offers change places at `swap`.
async fn offer(scene: &Scene, length: Duration, swap: Option<Duration>) -> Result<Vec<Record>> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let east = scene
        .envoy("east", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let west = scene
        .envoy("west", 2, &coordinator, &by_tenant(&json!({})))
        .await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", OFFERS[0]),
        Flow::new(west.address(), "acme", OFFERS[1]),
    ]);
    if let Some(swap) = swap {
        load.run_until(swap).await;
        load.set_rate(0, OFFERS[1]);
        load.set_rate(1, OFFERS[0]);
    }
    load.run_until(length).await;
    let records = load.stop().await?;
    print_course("east", &records[0]);
    print_course("west", &records[1]);
    let all = sum(&records);
    assert_eq!(all.total().failed, 0);
    assert_never_above(&all, CAPACITY, BURST);
    Ok(records)
}

fn assert_shares(records: &[Record], span: Range<Duration>, shares: [f64; 2]) {
    for (place, (record, share)) in records.iter().zip(shares).enumerate() {
        let what = format!("envoy {place} in {span:?}, admitted/s");
        assert_near(&what, record.admitted_per_second(span.clone()), share, 0.05);
    }
}

/// The least and the most that was admitted per second in any 10 s of `span`.
fn extremes(record: &Record, span: Range<Duration>) -> (f64, f64) {
    let windows = record.windows(span, s(10.0));
    let least = windows.iter().copied().fold(f64::INFINITY, f64::min);
    (least, windows.iter().copied().fold(0.0, f64::max))
}
