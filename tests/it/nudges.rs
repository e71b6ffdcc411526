//! Leases that follow demand because the coordinator names them, long before their refresh.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::Instant;
use tollgate_tests::conclude;
use tollgate_tests::coordinator::{Coordinator, ScopeLeases};
use tollgate_tests::filter::by_tenant;
use tollgate_tests::load::{Flow, Load};

use crate::test_context::{TestContext, run_test, s};

/// Without nudges everything here takes as long as the refresh interval.
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 1000, burst: 100, refresh: 20s, \
                      lease: 60s}\n";

const SCOPE: &str = "tenant/acme";

/// The longest time of a step; a fifth of what it would take without nudges.
const STEP_MAX: Duration = Duration::from_secs(4);

/// Pause between two looks at the lease table.
const LOOK: Duration = Duration::from_millis(4);

/// Rates of an Envoy that wants all, and of one that wants little.
const GREEDY: f64 = 1500.0;
const MODEST: f64 = 50.0;

/// Shifts to measure: more with `TOLLGATE_SHIFTS`.
fn shifts() -> Result<usize> {
    match std::env::var("TOLLGATE_SHIFTS") {
        Ok(count) => count.parse().context("TOLLGATE_SHIFTS"),
        Err(_) => Ok(3),
    }
}

/// Time from now until the leases are as `expected`.
async fn time_until(
    coordinator: &Coordinator,
    expected: impl Fn(&ScopeLeases) -> bool,
) -> Result<Duration> {
    let since = Instant::now();
    loop {
        let leases = coordinator.leases(SCOPE).await?;
        if leases.as_ref().is_some_and(&expected) {
            return Ok(since.elapsed());
        }
        conclude!(
            since.elapsed() < STEP_MAX,
            "not within {STEP_MAX:?}: {leases:?}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints the median and the longest of `times`.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let longest = times.last().copied().unwrap_or_default();
    let count = times.len();
    eprintln!("{what}: median {median:.0?} of {count}, at most {longest:.0?}");
}

#[test]
fn shares_follow_demand_by_nudges() {
    run_test("shares_follow_demand_by_nudges", follow);
}

async fn follow(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({}));
    let names = ["east", "west"];
    let envoys = test.envoys(names, &coordinator, &plugin).await?;
    let flow = |i: usize, rate| Flow::new(envoys[i].address(), "acme", rate);
    let load = Load::start([flow(0, GREEDY), flow(1, 0.0)]);
    load.run_until(s(3.0)).await;

    load.set_rate(1, GREEDY);
    let first = time_until(&coordinator, |leases| leases.has("west") > 0.0).await?;
    eprintln!("first lease of a newcomer to a fully lent resource: {first:.0?}");
    time_until(&coordinator, |leases| leases.has("west") > 450.0).await?;

    let (mut grows, mut moves, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for shift in 0..shifts()? {
        let (from, to) = (shift % 2, (shift + 1) % 2);
        // All demand but a little of one moves to the other.
        load.set_rate(from, GREEDY);
        load.set_rate(to, MODEST);
        time_until(&coordinator, |leases| leases.has(names[from]) > 850.0).await?;
        tokio::time::sleep(s(1.5)).await;
        load.set_rate(to, GREEDY);
        grows.push(time_until(&coordinator, |leases| leases.has(names[to]) > 450.0).await?);
        tokio::time::sleep(s(1.0)).await;
        load.set_rate(from, MODEST);
        moves.push(time_until(&coordinator, |leases| leases.has(names[to]) > 850.0).await?);
        tokio::time::sleep(s(1.0)).await;
        load.set_rate(from, GREEDY);
        time_until(&coordinator, |leases| leases.has(names[from]) > 450.0).await?;
        tokio::time::sleep(s(1.0)).await;
        load.set_rate(from, 0.0);
        ends.push(time_until(&coordinator, |leases| leases.has(names[to]) > 980.0).await?);
        tokio::time::sleep(s(1.0)).await;
    }
    print_times("right shares after demand has grown", grows);
    print_times("after it has fallen to a little", moves);
    print_times("after it has ended", ends);
    let mut named = 0;
    for envoy in &envoys {
        named += envoy.stat("wasmcustom.tollgate.nudges").await?;
        // A process whose demand has ended has closed its stream.
        assert!(envoy.stat("wasmcustom.tollgate.watches").await? > 0);
        assert_eq!(envoy.stat("wasmcustom.tollgate.nudge_errors").await?, 0);
    }
    assert!(named > 0, "the Envoys were not nudged");
    assert!(coordinator.metric("tollgate_nudges_total").await? > 0.0);
    load.stop().await?;
    Ok(())
}
