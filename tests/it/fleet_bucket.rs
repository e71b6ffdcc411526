//! A limit that is a count holds for the fleet: through whichever Envoys the requests go, and whichever
//! pods are replaced meanwhile.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::connection::get_once;
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

/// Of ten and a hundred an hour nothing is earned during the test.
const LIMITS: &str = "limits:
- {match: tenant/ten, requests: {rate: 0.0027778, burst: 10}}
- {match: tenant/hundred, requests: {rate: 0.027778, burst: 100}}
- {match: tenant/minute, requests: {rate: 0.1666667, burst: 10}}
- {match: tenant/five, requests: {rate: 5}}
- {match: tenant/thirty, requests: {rate: 30}}
- {match: tenant/sixty, requests: {rate: 60, burst: 300}}
groups: {hourly: {requests: {rate: 0.0027778, burst: 10}}}
attach: {tenants: {left: hourly, right: hourly}}
";
/// Requests for the tenant thirty, each a 24th of a second after the one before, and of these each so manyth
/// has one for the tenant five beside it: 0.8 of both limits.
const STEADY: (u32, u32) = (240, 6);

#[test]
fn ten_an_hour_is_ten_through_any_envoys() {
    run_test("ten_an_hour_is_ten_through_any_envoys", any_envoys);
}

async fn any_envoys(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let mut envoys = three_envoys(test, &coordinator).await?;
    let hundred = admitted(&envoys, "hundred", 130).await?;
    ensure!(hundred == 100, "{hundred} of 100 in turn");
    let refusals = wait::until("what was refused to be refusals", s(10.0), async || {
        let leases = coordinator.leases("tenant/hundred").await?;
        let traffic = leases.map(|leases| leases.traffic);
        ensure!(traffic == Some((130, 30)), "{traffic:?}");
        Ok(())
    });
    refusals.await?;
    let minute = admitted(&envoys, "minute", 13).await?;
    ensure!(minute == 10, "{minute} of 10 a minute");
    let left = admitted(&envoys, "left", 7).await?;
    let right = admitted(&envoys, "right", 7).await?;
    ensure!(
        (left, right) == (7, 3),
        "{left} and {right} of a group's 10"
    );
    let each = admitted(&envoys, "sixty", 3).await?;
    let mut waits = Vec::new();
    let mut burst = 0;
    for _ in 0..270 {
        let sent = tokio::time::Instant::now();
        burst += admitted(&envoys[..1], "sixty", 1).await?;
        waits.push(sent.elapsed());
    }
    waits.sort_unstable();
    eprintln!(
        "a request of the burst took {:?}, p99 {:?}",
        waits[135], waits[267]
    );
    ensure!(
        each + burst == 273,
        "{burst} of a burst of 270 at one Envoy"
    );
    let four = admitted(&envoys, "ten", 4).await?;
    ensure!(four == 4, "{four} of 4");
    envoys.remove(0);
    let plugin = by_tenant(&json!({}));
    envoys.push(test.envoy("envoy-4", 2, &coordinator, &plugin).await?);
    envoys.rotate_right(1);
    let six = admitted(&envoys, "ten", 12).await?;
    // Tokens that the lost Envoy had drawn, and not reported as spent, are missing until its lease ends.
    ensure!((4..=6).contains(&six), "{six} of the 6 that were left");
    Ok(())
}

#[test]
fn steady_demand_below_a_small_limit_passes_through_any_envoys() {
    run_test(
        "steady_demand_below_a_small_limit_passes_through_any_envoys",
        steady,
    );
}

async fn steady(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let mut envoys = three_envoys(test, &coordinator).await?;
    let (requests, every) = STEADY;
    let mut next = tokio::time::interval(Duration::from_secs(1) / 24);
    let (mut thirty, mut five) = (0, 0);
    for request in 0..requests {
        next.tick().await;
        thirty += admitted(&envoys[..1], "thirty", 1).await?;
        if request % every == 0 {
            five += admitted(&envoys[1..2], "five", 1).await?;
        }
        envoys.rotate_left(1);
    }
    // An ideal bucket would let all of them pass.
    let [all, of_five] = [requests, requests / every].map(|count| count as usize);
    ensure!(thirty * 100 >= all * 98, "{thirty} of {all}");
    ensure!(five + 1 >= of_five, "{five} of {of_five}");
    Ok(())
}

#[test]
fn a_modest_envoy_gets_its_part_beside_a_greedy_one() {
    run_test("a_modest_envoy_gets_its_part_beside_a_greedy_one", greedy);
}

/// Of five a second one Envoy is asked for eighty, and another for eight.
async fn greedy(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let envoys = three_envoys(test, &coordinator).await?;
    let mut next = tokio::time::interval(Duration::from_secs(1) / 80);
    let (mut greedy, mut modest) = (0, 0);
    for request in 0..1200 {
        next.tick().await;
        greedy += admitted(&envoys[..1], "five", 1).await?;
        if request % 10 == 0 {
            modest += admitted(&envoys[1..2], "five", 1).await?;
        }
    }
    eprintln!("{greedy} and {modest}");
    ensure!(modest * 100 >= greedy * 65, "{greedy} and {modest}");
    Ok(())
}

#[test]
fn a_high_priority_is_served_first() {
    run_test("a_high_priority_is_served_first", high_priority);
}

/// Of five a second an Envoy of a high priority is asked for four, and one of the lowest for forty.
async fn high_priority(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let mut plugin = by_tenant(&json!({}));
    let low = test.envoy("low", 2, &coordinator, &plugin).await?;
    plugin["scopes"][0]["priority"] = json!(5);
    let envoys = [low, test.envoy("high", 2, &coordinator, &plugin).await?];
    let mut next = tokio::time::interval(Duration::from_secs(1) / 40);
    let (mut high, mut low) = (0, 0);
    for request in 0..400 {
        next.tick().await;
        low += admitted(&envoys[..1], "five", 1).await?;
        if request % 10 == 0 {
            high += admitted(&envoys[1..], "five", 1).await?;
        }
    }
    eprintln!("{high} and {low}");
    ensure!(high >= 36, "{high} of 40 beside {low}");
    ensure!(high + low >= 50, "{high} and {low} of 55");
    Ok(())
}

#[test]
fn a_killed_coordinator_brings_no_token_back() {
    run_test(
        "a_killed_coordinator_brings_no_token_back",
        killed_coordinator,
    );
}

async fn killed_coordinator(test: &TestContext) -> Result<()> {
    // Each start has a configuration of its own.
    let config = "store: {path: kept.redb}
limits: [{match: '*', requests: {rate: 0.0027778, burst: 10, safe: 0, lease: 2s}}]";
    let mut coordinator = test.coordinator(config).await?;
    let envoys = three_envoys(test, &coordinator).await?;
    let four = admitted(&envoys, "ten", 4).await?;
    ensure!(four == 4, "{four} of 4");
    for left in [6, 0] {
        coordinator.process.kill()?;
        coordinator.restart().await?;
        let passed = admitted_in_all(&envoys, "ten", left).await?;
        ensure!(passed == left, "{passed} of the {left} that were left");
    }
    Ok(())
}

#[test]
fn a_failover_refuses_nobody_far_below_a_limit() {
    run_test("a_failover_refuses_nobody_far_below_a_limit", failover);
}

/// Half of five a second is wanted, and a fifth of thirty, of which nothing passes without leave of a coordinator:
/// while it is away each Envoy has its share for the length of a lease.
async fn failover(test: &TestContext) -> Result<()> {
    let config = "limits:
- {match: tenant/five, requests: {rate: 5, lease: 6s}}
- {match: tenant/strict, requests: {rate: 30, safe: 0, lease: 6s}}";
    let mut coordinator = test.coordinator(config).await?;
    let mut envoys = three_envoys(test, &coordinator).await?;
    // So long a client is young, and is promised nothing.
    refused(&mut envoys, 8.0).await?;
    coordinator.process.kill()?;
    refused(&mut envoys, 1.0).await?;
    let away = refused(&mut envoys, 3.5).await?;
    ensure!(away == [0, 0], "{away:?} refused without a coordinator");
    coordinator.restart().await?;
    let [five, _] = refused(&mut envoys, 8.0).await?;
    ensure!(five == 0, "{five} refused while it learns");
    Ok(())
}

/// Sends requests of both tenants for so many seconds, to one Envoy after the other. Returns how many are
/// refused of each.
async fn refused(envoys: &mut [Envoy], secs: f64) -> Result<[usize; 2]> {
    let mut next = tokio::time::interval(Duration::from_secs(1) / 5);
    let mut refused = [0; 2];
    for request in 0..(secs * 5.0) as usize {
        next.tick().await;
        if request % 2 == 0 {
            refused[0] += 1 - admitted(&envoys[..1], "five", 1).await?;
        }
        refused[1] += 1 - admitted(&envoys[1..2], "strict", 1).await?;
        envoys.rotate_left(1);
    }
    Ok(refused)
}

/// Sends requests to one Envoy after the other until more than `most` have passed, or for ten seconds.
async fn admitted_in_all(envoys: &[Envoy], tenant: &str, most: usize) -> Result<usize> {
    let mut next = tokio::time::interval(Duration::from_millis(200));
    let mut passed = 0;
    for _ in 0..50 {
        next.tick().await;
        passed += admitted(envoys, tenant, envoys.len()).await?;
        if passed > most {
            break;
        }
    }
    Ok(passed)
}

pub(crate) async fn three_envoys(
    test: &TestContext,
    coordinator: &Coordinator,
) -> Result<Vec<Envoy>> {
    let plugin = by_tenant(&json!({}));
    let mut envoys = Vec::new();
    for name in ["envoy-1", "envoy-2", "envoy-3"] {
        envoys.push(test.envoy(name, 2, coordinator, &plugin).await?);
    }
    Ok(envoys)
}

/// Sends so many requests, to one Envoy after the other. Returns how many pass.
pub(crate) async fn admitted(envoys: &[Envoy], tenant: &str, requests: usize) -> Result<usize> {
    let mut passed = 0;
    for envoy in envoys.iter().cycle().take(requests) {
        let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, tenant)]).await?;
        ensure!(matches!(answer.status, 200 | 429), "{answer:?}");
        passed += usize::from(answer.status == 200);
    }
    Ok(passed)
}
