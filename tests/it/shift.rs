//! Capacity follows demand that moves from one Envoy to another, and demand that ends.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::BIN;

use crate::test_context::{
    TestContext, assert_near, assert_never_above, assert_never_above_in, print_course, run_test, s,
    watch_leases,
};

const SCOPE: &str = "tenant/acme";
const CAPACITY: f64 = 1000.0;
const BURST: f64 = 200.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 200}\n";

/// Rates of an Envoy that wants all, and of one that wants little.
const GREEDY: f64 = 1500.0;
const MODEST: f64 = 50.0;

/// Time in which a change is followed.
const REACTION: Duration = Duration::from_secs(1);

#[test]
fn demand_that_moves_or_ends_is_followed_within_a_second() {
    run_test(
        "demand_that_moves_or_ends_is_followed_within_a_second",
        moves_and_ends,
    );
}

async fn moves_and_ends(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let [east, west] = test.envoys(names, &coordinator, &plugin).await?;
    let load = Load::start([
        Flow::new(east.address(), "acme", GREEDY),
        Flow::new(west.address(), "acme", MODEST),
    ]);
    let [moved, both, ended, end] = [4.5, 8.5, 11.5, 15.5].map(s);
    load.run_until(moved).await;
    load.set_rate(0, MODEST);
    load.set_rate(1, GREEDY);
    watch_leases(&coordinator, SCOPE, &load, both).await?;
    load.set_rate(0, GREEDY);
    watch_leases(&coordinator, SCOPE, &load, ended).await?;
    load.set_rate(0, 0.0);
    let taken = until_west_has_all(&coordinator, &load).await?;
    eprintln!("west has all {taken:.2?} after the demand at east has ended");
    watch_leases(&coordinator, SCOPE, &load, end).await?;

    let records = load.stop().await?;
    for (name, record) in names.iter().zip(&records) {
        print_course(name, record);
    }
    let spans = [
        (s(2.0)..moved, [950.0, MODEST]),
        (moved + REACTION..both, [MODEST, 950.0]),
        (both + REACTION..ended, [500.0, 500.0]),
        (ended + REACTION..end, [0.0, CAPACITY]),
    ];
    for (span, shares) in spans {
        for ((name, record), share) in names.iter().zip(&records).zip(shares) {
            let rate = record.admitted_per_second(span.clone());
            let part = if share < 100.0 { 0.1 } else { 0.04 };
            assert_near(
                &format!("{name} in {span:?}, admitted/s"),
                rate,
                share,
                part,
            );
        }
    }
    let all = sum(&records);
    let lost = CAPACITY * 3.0 - all.within(ended..ended + s(3.0)).admitted as f64;
    eprintln!("{lost} requests lost in the 3 s after the end");
    assert_never_above(&all, CAPACITY, BURST);
    // Both buckets are empty before the end, and what east's earns after it is lent to west only when
    // east no longer uses it. So no burst is in these windows, but for what workers have drawn ahead.
    assert_never_above_in(&all, both + REACTION..end, CAPACITY, BURST / 4.0);
    conclude!(taken <= REACTION, "west had all after {taken:?}");
    Ok(())
}

/// Time until west has all but a twentieth, while law 1 holds. Late requests at east look like a little
/// demand, which may wait for the refresh.
async fn until_west_has_all(coordinator: &Coordinator, load: &Load) -> Result<Duration> {
    let from = load.elapsed();
    loop {
        watch_leases(coordinator, SCOPE, load, load.elapsed() + BIN / 4).await?;
        let leases = coordinator.leases(SCOPE).await?.context("no leases")?;
        let taken = load.elapsed() - from;
        if leases.has("west") >= 0.95 * CAPACITY {
            return Ok(taken);
        }
        conclude!(taken < s(5.0), "not within {taken:?}: {leases:?}");
    }
}
