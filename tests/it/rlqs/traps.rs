//! Peculiarities of Envoy's filter that a server has to live with: one Envoy with two domains.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::TENANT_HEADER;
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use super::{FALLBACK, filter};
use crate::harness::NO_FILTER;
use crate::test_context::{
    TestContext, assert_near, assert_never_above_in, print_course, run_wasm_test, s,
};

/// Place of the example's action for requests with a tenant.
const TENANT_ACTION: &str = "/typed_config/bucket_matchers/matcher_list/matchers/0/on_match/action";

/// Time for which the fallback is in force, and the longest life of an assignment.
const FALLBACK_TIME: Duration = Duration::from_secs(4);
const LIFE_MAX: Duration = Duration::from_secs(2);

/// Rates of the capacity, and a lowered one. The burst is as much.
const HIGH: f64 = 300.0;
const LOW: f64 = 60.0;

/// Load of the tenant in each domain.
const LOADS: [f64; 2] = [900.0, 100.0];

/// Longest wait for what takes one report of Envoy's, or two, which come every five seconds.
const REPORTS: Duration = Duration::from_secs(20);

/// The listeners of the Envoy, one for each domain.
#[derive(Clone, Copy)]
struct Listeners {
    edge: SocketAddr,
    api: SocketAddr,
}

// === free functions ===

/// A coordinator's file. Leases are short, so that the test of their end is: an assignment lives for a
/// second less, in whole seconds.
fn config(rate: f64) -> String {
    format!(
        "rlqs: {{domains: {{edge: {{scope: 'tenant/{{tenant}}'}}, api: {{scope: 'api/{{tenant}}'}}}}}}
limits:
  - match: '*'
    requests: {{rate: {rate}, burst: {rate}, lease: 3500ms}}
"
    )
}

/// The filter of the example, with a short fallback.
fn edge() -> Result<Value> {
    let mut filter = filter("edge-1")?;
    let action = filter.pointer_mut(TENANT_ACTION).context("no action")?;
    let expired = &mut action["typed_config"]["expired_assignment_behavior"];
    let seconds = FALLBACK_TIME.as_secs();
    expired["expired_assignment_behavior_timeout"] = json!(format!("{seconds}s"));
    Ok(filter)
}

/// The same for another domain, which lets nothing pass without an assignment, and has no bucket for
/// requests without a tenant.
fn api() -> Result<Value> {
    let mut filter = edge()?;
    let action = filter.pointer(TENANT_ACTION).cloned();
    let mut action = action.context("no action")?;
    action["typed_config"]["no_assignment_behavior"] =
        json!({"fallback_rate_limit": {"blanket_rule": "DENY_ALL"}});
    filter["typed_config"]["domain"] = json!("api");
    filter["typed_config"]["bucket_matchers"] = json!({"on_no_match": {"action": action}});
    Ok(filter)
}

#[test]
fn one_first_report_two_domains_shares_that_shrink_and_assignments_that_end() {
    run_wasm_test(
        "one_first_report_two_domains_shares_that_shrink_and_assignments_that_end",
        NO_FILTER,
        traps,
    );
}

async fn traps(test: &TestContext) -> Result<()> {
    let mut coordinator = test.coordinator(&config(HIGH)).await?;
    let mut spec = EnvoySpec::new("edge-1", 2, test.upstream.address(), vec![edge()?]);
    spec.listeners.push(("api".to_owned(), vec![api()?]));
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let listeners = Listeners {
        edge: envoy.address(),
        api: envoy.listener("api").context("no listener for api")?,
    };
    first_reports(&coordinator, listeners).await?;
    let [edge, api] = LOADS;
    let load = Load::start([
        Flow::new(listeners.edge, "acme", edge),
        Flow::new(listeners.api, "acme", api),
    ]);
    until_leased(&coordinator, "the share after a report", |has| {
        has > HIGH - 1.0
    })
    .await?;
    let buckets = coordinator.metric("tollgate_rlqs_buckets").await?;
    ensure!(
        buckets == 4.0,
        "{buckets} buckets after the first report of all"
    );
    lowered_and_raised(&mut coordinator, listeners.edge, &load).await?;

    let begun = load.elapsed();
    coordinator.process.kill()?;
    let killed = load.elapsed();
    // In the first span all assignments are over and no fallback is; in the second one all fallbacks are.
    let fallback = killed + LIFE_MAX + s(0.3)..begun + FALLBACK_TIME;
    let over = killed + LIFE_MAX + FALLBACK_TIME + s(0.4);
    let over = over..over + s(2.0);
    load.run_until(over.end).await;
    let records = load.stop().await?;
    for (name, record, default) in [("edge", &records[0], LOADS[0]), ("api", &records[1], 0.0)] {
        print_course(name, record);
        assert_eq!(record.total().failed, 0);
        let rate = record.admitted_per_second(fallback.clone());
        assert_near(
            &format!("{name}, fallback, admitted/s"),
            rate,
            FALLBACK,
            0.15,
        );
        let rate = record.admitted_per_second(over.clone());
        let name = format!("{name}, no assignment, admitted/s");
        assert_near(&name, rate, default, 0.05);
    }
    Ok(())
}

/// Many first requests of one bucket make one report, of no time; and a request without a tenant is in a
/// bucket of its own, or in none and passes.
async fn first_reports(coordinator: &Coordinator, to: Listeners) -> Result<()> {
    let acme = Some("acme");
    let passed = tokio::try_join!(crowd(to.edge, acme, 50), crowd(to.api, acme, 50))?;
    eprintln!("{passed:?} of 50 first requests passed");
    ensure!(passed.0 > 0, "nothing passes without an assignment");
    ensure!(passed.1 < 50, "DENY_ALL let the first request pass");
    // Messages that were sent before on the same stream have come when these have.
    crowd(to.edge, None, 1).await?;
    crowd(to.api, Some("other"), 1).await?;
    wait::until("four buckets", s(10.0), async || {
        let buckets = coordinator.metric("tollgate_rlqs_buckets").await?;
        ensure!(buckets == 4.0, "{buckets} buckets");
        Ok(())
    })
    .await?;
    for (metric, expected) in [
        ("tollgate_rlqs_reports_total", 4.0),
        ("tollgate_rlqs_streams", 2.0),
        (
            "tollgate_rlqs_ignored_buckets_total{reason=\"unmatched\"}",
            0.0,
        ),
    ] {
        let value = coordinator.metric(metric).await?;
        conclude!(value == expected, "{metric} is {value}, not {expected}");
    }
    let evades = crowd(to.api, None, 1).await?;
    ensure!(evades == 1, "a request without a bucket was refused");
    let blank = crowd(to.api, Some(""), 1).await?;
    ensure!(blank == 0, "a bucket without keys had an assignment");
    for (scope, client) in [
        ("tenant/acme", "rlqs/edge-1/edge"),
        ("tenant/nobody", "rlqs/edge-1/edge"),
        ("api/acme", "rlqs/edge-1/api"),
        ("api/other", "rlqs/edge-1/api"),
    ] {
        wait::until("a lease of the first report", s(10.0), async || {
            let leases = coordinator.leases(scope).await?.context("no lease")?;
            let ids: Vec<_> = leases.clients.iter().map(|client| &*client.id).collect();
            ensure!(ids == [client] && leases.sum_has() > 0.0, "{leases:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A full bucket is full after its share was lowered, and so lets the smaller burst pass; an empty one is
/// empty after its share was raised.
async fn lowered_and_raised(
    coordinator: &mut Coordinator,
    edge: SocketAddr,
    load: &Load,
) -> Result<()> {
    // The next report would tell that nothing is wanted; until then the bucket fills.
    load.set_rate(0, 0.0);
    load.run_until(load.elapsed() + s(1.2)).await;
    coordinator.reconfigure(&config(LOW)).await?;
    // The lease is lower when Envoy has had a second to take the assignment.
    until_leased(coordinator, "a lower share", |has| has <= LOW).await?;
    let from = load.elapsed();
    let passed = crowd(edge, Some("acme"), 100).await? as f64;
    let earned = LOW * (load.elapsed() - from).as_secs_f64();
    eprintln!("{passed} of 100 pass a full bucket of {LOW} and what it earns, {earned:.1}");
    conclude!(passed <= LOW + earned + 1.0, "{passed} passed");
    conclude!(passed >= 0.8 * LOW, "only {passed} passed");

    load.set_rate(0, LOADS[0]);
    let from = load.elapsed();
    coordinator.reconfigure(&config(HIGH)).await?;
    until_leased(coordinator, "the share as before", |has| has > HIGH - 10.0).await?;
    load.run_until(load.elapsed() + s(1.2)).await;
    let to = load.elapsed();
    assert_never_above_in(&load.record(0), from..to, HIGH, 10.0);
    Ok(())
}

/// Waits until what is leased of the tenant is as `expected`.
async fn until_leased(
    coordinator: &Coordinator,
    condition: &str,
    expected: impl Fn(f64) -> bool,
) -> Result<()> {
    wait::until(condition, REPORTS, async || {
        let leases = coordinator.leases("tenant/acme").await?;
        let leases = leases.context("no lease")?;
        ensure!(expected(leases.sum_has()), "{leases:?}");
        Ok(())
    })
    .await
}

/// Sends requests at once, each over a connection of its own. Returns how many passed.
async fn crowd(to: SocketAddr, tenant: Option<&str>, size: usize) -> Result<usize> {
    let fields = tenant.map(|tenant| (TENANT_HEADER, tenant));
    let request = get("/", fields.as_slice());
    let mut connections = Vec::new();
    for _ in 0..size {
        connections.push(Connection::open(to).await?);
    }
    let mut answers = JoinSet::new();
    for mut connection in connections {
        let request = request.clone();
        answers.spawn(async move { connection.status_of(&request).await });
    }
    let mut passed = 0;
    while let Some(status) = answers.join_next().await {
        match status?? {
            200 => passed += 1,
            429 => {}
            other => bail!("answered {other}"),
        }
    }
    Ok(passed)
}
