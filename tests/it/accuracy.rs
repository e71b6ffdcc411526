//! A fleet admits exactly its capacity with unequal loads, and reaches the new shares within a second after
//! the loads are swapped.

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

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s,
};

const CAPACITY: f64 = 1000.0;
const BURST: f64 = 200.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 200}\n";
/// Three times the capacity, in unequal parts.
const OFFERS: [f64; 2] = [2700.0, 300.0];
/// Their max-min shares.
const SHARES: [f64; 2] = [700.0, 300.0];
/// Time for the first burst and the first leases.
const FIRST: Duration = Duration::from_secs(2);
/// Time for a change of shares.
const REACTION: Duration = Duration::from_secs(1);
/// Part by which a share may be missed.
const TOLERANCE: f64 = 0.05;

#[test]
fn every_ten_seconds_admit_the_capacity_within_two_percent() {
    run_test(
        "every_ten_seconds_admit_the_capacity_within_two_percent",
        async |test: &TestContext| {
            let length = s(30.0);
            let (started, records) = offer(test, length, None).await?;
            // Only windows count in which each flow had its full load.
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
fn offers_that_change_places_are_fair_again_within_a_second() {
    run_test(
        "offers_that_change_places_are_fair_again_within_a_second",
        async |test: &TestContext| {
            let (length, swap) = (s(24.0), s(12.0));
            let (_, records) = offer(test, length, Some(swap)).await?;
            assert_shares(&records, FIRST..swap, SHARES);
            let swapped = [SHARES[1], SHARES[0]];
            assert_shares(&records, swap + REACTION..length, swapped);
            let right = right_after(&records, swap..length, swapped);
            eprintln!("shares are right {right:.1?} after the swap");
            conclude!(right <= REACTION, "right only after {right:?}");
            let all = sum(&records);
            let (least, most) = extremes(&all, &windows(FIRST..length));
            // Some capacity is unused while one lease shrinks before the other grows.
            eprintln!("with the swap, admitted/s in 10 s: {least:.1} to {most:.1}");
            conclude!(most <= 1.02 * CAPACITY, "{most}");
            conclude!(least >= 0.9 * CAPACITY, "{least}");
            let after = all.admitted_per_second(swap + REACTION..length);
            assert_near("after the swap, admitted/s", after, CAPACITY, 0.02);
            Ok(())
        },
    );
}

/// Sends load to two Envoys for `length`, and swaps their loads at `swap`. Returns the start of the load,
/// and its records.
async fn offer(
    test: &TestContext,
    length: Duration,
    swap: Option<Duration>,
) -> Result<(Instant, Vec<Record>)> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [east, west] = test.envoys(names, &coordinator, &plugin).await?;
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
        let rate = record.admitted_per_second(span.clone());
        assert_near(&what, rate, share, TOLERANCE);
    }
}

/// Time from the start of `span` to the first second in which each Envoy admits its share; the whole of it
/// if there is none.
fn right_after(records: &[Record], span: Range<Duration>, shares: [f64; 2]) -> Duration {
    let is_right = |from: &Duration| {
        let rates = records.iter().map(|record| {
            let second = *from..*from + s(1.0);
            record.admitted_per_second(second)
        });
        let mut pairs = rates.zip(shares);
        pairs.all(|(rate, share)| (rate - share).abs() <= TOLERANCE * share)
    };
    let mut starts = (0..).map(|bins| span.start + bins * BIN);
    let last = span.end.saturating_sub(s(1.0));
    let right = starts.find(|from| from > &last || is_right(from));
    right.unwrap_or(span.end).saturating_sub(span.start)
}

/// All windows of 10 s within `span`, one per bin.
fn windows(span: Range<Duration>) -> Vec<Range<Duration>> {
    let from = (0..).map(|bins| span.start + bins * BIN);
    let all = from.map(|from| from..from + s(10.0));
    all.take_while(|window| window.end <= span.end).collect()
}

/// The [`windows`] in which every flow had its full load and nothing stalled; all windows if there are
/// none, which is no less strict.
///
/// # Panics
/// When there are none and the rates are wrong, which makes the test inconclusive.
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
        "{} of {} windows are fair; least part of the loads: {:.3?}; {lost}",
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
        "{INCONCLUSIVE} none of {} windows had the full load; {lost}; {least} to {most} \
         admitted/s",
        all.len()
    );
    all
}

/// Least and greatest rate admitted in any of `windows`, per second.
fn extremes(record: &Record, windows: &[Range<Duration>]) -> (f64, f64) {
    let rates = windows.iter().cloned();
    let rates: Vec<f64> = rates
        .map(|window| record.admitted_per_second(window))
        .collect();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    (least, rates.iter().copied().fold(0.0, f64::max))
}
