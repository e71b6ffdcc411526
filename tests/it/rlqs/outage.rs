//! Two Envoys with unequal load, without a coordinator, and with it again.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use tollgate_tests::envoy::Envoy;
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;
use tollgate_tests::wait;

use super::{BURST, CAPACITY, CONFIG, FALLBACK, spec};
use crate::harness::NO_FILTER;
use crate::test_context::{
    TestContext, assert_near, assert_never_above_in, print_course, run_wasm_test, s, watch_leases,
};

/// Loads of the Envoys, and their max-min shares.
const LOADS: [f64; 2] = [60.0, 900.0];
const SHARES: [f64; 2] = [60.0, 240.0];

#[test]
fn two_envoys_without_wasm_reach_their_shares_and_outlive_the_coordinator() {
    run_wasm_test(
        "two_envoys_without_wasm_reach_their_shares_and_outlive_the_coordinator",
        NO_FILTER,
        shares_and_outage,
    );
}

async fn shares_and_outage(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(CONFIG).await?;
    let specs = [spec(test, "edge-1")?, spec(test, "edge-2")?];
    let specs = specs.map(|spec| spec.asking(coordinator.grpc()));
    let envoys = Envoy::start_all(test.dir(), &specs).await?;
    let flows = envoys.iter().zip(LOADS);
    let load = Load::start(flows.map(|(envoy, rate)| Flow::new(envoy.address(), "acme", rate)));
    let killed = s(14.0);
    watch_leases(&coordinator, "tenant/acme", &load, killed).await?;
    coordinator.process.kill()?;
    // By then the assignments are over: six seconds at most, and one to be told of it.
    let fallen_back = s(21.0)..s(25.0);
    load.run_until(fallen_back.end).await;
    coordinator.restart().await?;
    recovers(&load).await?;
    let recovered = load.elapsed();
    let end = recovered + s(5.0);
    watch_leases(&coordinator, "tenant/acme", &load, end).await?;
    let records = load.stop().await?;
    for (record, spec) in records.iter().zip(&specs) {
        print_course(&spec.name, record);
        assert_eq!(record.total().failed, 0);
    }
    assert_rates(
        "with a coordinator",
        &records,
        s(9.0)..killed,
        (SHARES, 0.05),
    );
    assert_rates("without one", &records, fallen_back, ([FALLBACK; 2], 0.1));
    let again = recovered + s(1.0)..end;
    assert_rates("with it again", &records, again, (SHARES, 0.05));
    // From when both are assigned; before, Envoy lets everything pass, as the example says. Each bucket
    // has up to a token more than its part of the burst.
    assert_never_above_in(&sum(&records), s(2.0)..end, CAPACITY, BURST + 4.0);
    Ok(())
}

/// Asserts what each Envoy admitted in `span`: the rates within a part.
fn assert_rates(
    when: &str,
    records: &[Record],
    span: Range<Duration>,
    (rates, part): ([f64; 2], f64),
) {
    for (place, (record, expected)) in records.iter().zip(rates).enumerate() {
        let rate = record.admitted_per_second(span.clone());
        let name = format!("edge-{} {when}, admitted/s", place + 1);
        assert_near(&name, rate, expected, part);
    }
}

/// Waits until the load is admitted as the capacity allows: the coordinator has learned for one
/// lease, and Envoy has opened its stream again, which it tries every five seconds.
async fn recovers(load: &Load) -> Result<()> {
    let from = load.elapsed();
    let condition = "shares after the restart";
    wait::until(condition, s(40.0), async || {
        let now = load.elapsed();
        ensure!(now > from + s(2.0), "too early to say");
        let record = sum(&[load.record(0), load.record(1)]);
        let rate = record.admitted_per_second(now - s(2.0)..now);
        ensure!(rate > CAPACITY * 0.9, "{rate}/s are admitted");
        Ok(())
    })
    .await
}
