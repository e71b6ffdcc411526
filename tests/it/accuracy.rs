//! The fleet admits its capacity, no more and no less, however unequal the offers are, and finds
//! the new shares within 2 s when they change places.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::time::Instant;
use tollgate_tests::conclude;
use tollgate_tests::conditions::{INCONCLUSIVE, lost_in};
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::{BIN, Record};

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
            let (started, records) = offer(scene, length, None).await?;
            // The demand is there in a window of which each flow was offered its part, in time.
            let windows = fair_windows(&records, started, FIRST..length);
            let (least, most) = extremes(&sum(&records), &windows);
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
            let (_, records) = offer(scene, length, Some(swap)).await?;
            assert_shares(&records, FIRST..swap, SHARES);
            assert_shares(&records, swap + FIRST..length, [SHARES[1], SHARES[0]]);
            let all = sum(&records);
            let (least, most) = extremes(&all, &windows(FIRST..length));
            // While a lease shrinks here before it grows there, less than the capacity is in use.
            eprintln!("with the change, admitted/s in 10 s: {least:.1} to {most:.1}");
            conclude!(most <= 1.02 * CAPACITY, "{most}");
            conclude!(least >= 0.9 * CAPACITY, "{least}");
            let after = all.admitted_per_second(swap + FIRST..length);
            assert_near("after the change, admitted/s", after, CAPACITY, 0.02);
            Ok(())
        },
    );
}

/// Offers to two Envoys for `length`; their offers change places at `swap`. When the load started, and
/// its records.
async fn offer(
    scene: &Scene,
    length: Duration,
    swap: Option<Duration>,
) -> Result<(Instant, Vec<Record>)> {
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
    let started = load.started();
    let records = load.stop().await?;
    print_course("east", &records[0]);
    print_course("west", &records[1]);
    let all = sum(&records);
    assert_eq!(all.total().failed, 0);
    assert_never_above(&all, CAPACITY, BURST);
    Ok((started, records))
}

fn assert_shares(records: &[Record], span: Range<Duration>, shares: [f64; 2]) {
    for (place, (record, share)) in records.iter().zip(shares).enumerate() {
        let what = format!("envoy {place} in {span:?}, admitted/s");
        assert_near(&what, record.admitted_per_second(span.clone()), share, 0.05);
    }
}

/// All 10 s of `span`, one window a bin.
fn windows(span: Range<Duration>) -> Vec<Range<Duration>> {
    let from = (0..).map(|bins| span.start + bins * BIN);
    let all = from.map(|from| from..from + s(10.0));
    all.take_while(|window| window.end <= span.end).collect()
}

/// Those of the [`windows`] in which every flow was offered what it should be, and nothing stood still;
/// all if there are none, which is no less strict.
///
/// # Panics
/// When there are none and not all is well all the same, which makes the test inconclusive.
fn fair_windows(
    records: &[Record],
    started: Instant,
    span: Range<Duration>,
) -> Vec<Range<Duration>> {
    let all = windows(span.clone());
    let offered = |record: &Record, window: &Range<Duration>| {
        record.within(window.clone()).offered as f64 / 10.0
    };
    let is_fair = |window: &&Range<Duration>| {
        let flows = records.iter().zip(OFFERS);
        let mut offers = flows.map(|(record, offer)| offered(record, window) / offer);
        let lost = lost_in(started + window.start..started + window.end);
        offers.all(|part| (0.99..=1.01).contains(&part)) && lost.is_fair()
    };
    let fair: Vec<_> = all.iter().filter(is_fair).cloned().collect();
    let flows = records.iter().zip(OFFERS).map(|(record, offer)| {
        let parts = all.iter().map(|window| offered(record, window) / offer);
        parts.fold(f64::INFINITY, f64::min)
    });
    let lost = lost_in(started + span.start..started + span.end);
    eprintln!(
        "{} of {} windows are fair; least part of the offers: {:.3?}; {lost}",
        fair.len(),
        all.len(),
        flows.collect::<Vec<_>>()
    );
    if !fair.is_empty() {
        return fair;
    }
    let (least, most) = extremes(&sum(records), &all);
    assert!(
        (least - CAPACITY).abs().max((most - CAPACITY).abs()) <= 0.02 * CAPACITY,
        "{INCONCLUSIVE} in none of {} windows the offer was there; {lost}; {least} to {most} \
         admitted/s",
        all.len()
    );
    all
}

/// The least and the most that was admitted per second in any of `windows`.
fn extremes(record: &Record, windows: &[Range<Duration>]) -> (f64, f64) {
    let rates = windows.iter().cloned();
    let rates: Vec<f64> = rates
        .map(|window| record.admitted_per_second(window))
        .collect();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    (least, rates.iter().copied().fold(0.0, f64::max))
}
