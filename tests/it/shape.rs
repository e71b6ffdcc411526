//! Requests beyond the limit wait in a queue: none is refused while the wait is short enough, each tenant
//! gets its share in order, and other tenants do not wait.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tollgate_tests::conclude;
use tollgate_tests::conditions;
use tollgate_tests::connection::{get, get_once};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{self, TENANT_HEADER, by_tenant};
use tollgate_tests::http2::Http2;
use tollgate_tests::recording_upstream::{RecordedRequest, RecordingUpstream};
use tollgate_tests::wait;

use crate::test_context::{TestContext, assert_near, run_test, s};

const TENANTS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];
/// Rate of the whole group, per second.
const RATE: f64 = 200.0;
/// Length of a burst at twice the rate, and of the silence after it.
const BURST: Duration = Duration::from_millis(500);
const CYCLES: u32 = 10;
/// Cycles until the leases have settled and the first bucketful is spent.
const SETTLED: u32 = 2;

/// Plugin configuration with a rule that makes requests wait.
pub(crate) fn shaped(more: &Value) -> Value {
    let mut rule = json!({"name": "tenant", "key": {"header": TENANT_HEADER}, "on_limit": "shape"});
    if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
        rule.extend(more.clone());
    }
    by_tenant(&json!({"scopes": [rule]}))
}

#[test]
fn bursts_of_a_group_wait_in_order_and_get_equal_shares() {
    let name = "bursts_of_a_group_wait_in_order_and_get_equal_shares";
    run_test(name, bursts);
}

async fn bursts(test: &TestContext) -> Result<()> {
    let limits = "limits: []
groups:
  gold: {requests: {rate: 200, burst: 20}, fair_between: members}
attach: {tenants: {t0: gold, t1: gold, t2: gold, t3: gold, t4: gold}}
";
    let upstream = RecordingUpstream::start().await?;
    let coordinator = test.coordinator(limits).await?;
    let filters = vec![filter::tollgate(&shaped(&json!({"max_wait_ms": 10_000})))?];
    let spec = EnvoySpec::new("envoy", 1, upstream.address(), filters).upstream_over_http2();
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let (connection, _running) = Http2::open(envoy.address()).await?;
    bystander(&connection, 10, "warm").await?;
    let quiet = bystander(&connection, 100, "before").await?;

    conditions::begin();
    let started = Instant::now();
    let mut senders = JoinSet::new();
    for tenant in TENANTS {
        senders.spawn(send_bursts(connection.clone(), tenant, started));
    }
    let beside = bystander(&connection, 800, "beside").await?;
    let mut answers = Vec::new();
    while let Some(sent) = senders.join_next().await {
        answers.extend(sent??);
    }
    let refused = answers.iter().filter(|status| **status != 200).count();
    conclude!(refused == 0, "{refused} of {} were refused", answers.len());

    let requests = upstream.requests();
    assert_eq!(in_order(&requests), TENANTS.len());
    let window = started + 2 * BURST * SETTLED..started + 2 * BURST * CYCLES;
    let length = (window.end - window.start).as_secs_f64();
    let within: Vec<&RecordedRequest> = requests
        .iter()
        .filter(|request| window.contains(&request.at))
        .collect();
    let of = |tenant: &str| {
        within
            .iter()
            .filter(|request| request.tenant == tenant)
            .count() as f64
    };
    for tenant in TENANTS {
        assert_near(
            &format!("{tenant}/s"),
            of(tenant) / length,
            RATE / 5.0,
            0.05,
        );
    }
    let all: f64 = TENANTS.iter().map(|tenant| of(tenant)).sum();
    assert_near("all/s", all / length, RATE, 0.02);
    let waited = envoy.stat("wasmcustom.tollgate.waited").await?;
    eprintln!("{waited} of {} waited", answers.len());
    ensure!(waited as usize > answers.len() / 4, "only {waited} waited");
    let timeouts = envoy.stat("wasmcustom.tollgate.wait_timeouts").await?;
    conclude!(timeouts == 0, "{timeouts} waiting requests timed out");

    let (before, during) = (p99(quiet), p99(beside));
    let ratio = during.as_secs_f64() / before.as_secs_f64();
    eprintln!(
        "others on the connection, p99: {before:?} alone, {during:?} beside: {ratio:.2} times"
    );
    overtook(&requests);
    Ok(())
}

/// Sends bursts of one tenant, each request as a stream of its own; returns all statuses.
async fn send_bursts(to: Http2, tenant: &'static str, started: Instant) -> Result<Vec<u16>> {
    let each = Duration::from_secs_f64(5.0 / RATE / 2.0);
    let a_burst = (BURST.as_secs_f64() / each.as_secs_f64()).round() as u32;
    let mut streams = Vec::new();
    for cycle in 0..CYCLES {
        let begin = started + 2 * BURST * cycle;
        for n in 0..a_burst {
            sleep_until(begin + each * n).await;
            let path = format!("/{tenant}/{}", streams.len());
            streams.push(send(&to, tenant, path).await);
        }
    }
    let mut statuses = Vec::new();
    for stream in streams {
        statuses.push(stream.await??);
    }
    Ok(statuses)
}

/// Sends a request before returning, so that it precedes the next one on the connection; a task waits for
/// its answer.
pub(crate) async fn send(
    to: &Http2,
    tenant: &'static str,
    path: String,
) -> JoinHandle<Result<u16>> {
    let to = to.clone();
    let mut request = Box::pin(async move {
        let answer = to.get(&path, &[(TENANT_HEADER, tenant)]).await?;
        Ok(answer.status)
    });
    let begun = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
    tokio::spawn(async move {
        match begun {
            Poll::Ready(done) => done,
            Poll::Pending => pin!(request).await,
        }
    })
}

/// Sends requests of a tenant without a limit, one every ten milliseconds; returns their latencies.
async fn bystander(to: &Http2, requests: u32, path: &str) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    let started = Instant::now();
    for n in 0..requests {
        sleep_until(started + Duration::from_millis(10) * n).await;
        let sent = Instant::now();
        let path = format!("/{path}");
        let answer = to.get(&path, &[(TENANT_HEADER, "bystander")]).await?;
        ensure!(answer.status == 200, "the bystander got {}", answer.status);
        took.push(sent.elapsed());
    }
    Ok(took)
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[took.len() * 99 / 100]
}

/// Checks that requests with paths `/<queue>/<number>` arrived in the order of the numbers in each queue;
/// returns the number of queues.
pub(crate) fn in_order(requests: &[RecordedRequest]) -> usize {
    let mut next: BTreeMap<&str, u32> = BTreeMap::new();
    for request in requests {
        let Some((queue, number)) = request.path[1..].split_once('/') else {
            continue;
        };
        let number: u32 = number.parse().expect("a number");
        let next = next.entry(queue).or_default();
        assert!(number >= *next, "in {queue}: {number} after {next}");
        *next = number + 1;
    }
    next.len()
}

/// Checks that the bystander's requests did not wait behind those waiting on the same connection: it got
/// each answer before it sent the next request, hundreds of times between two waiting ones.
fn overtook(requests: &[RecordedRequest]) {
    let beside = requests.iter().filter(|request| request.path == "/beside");
    assert_eq!(beside.count(), 800);
    let between = requests.windows(2);
    let between = between.filter(|two| (two[0].path == "/beside") != (two[1].path == "/beside"));
    let changes = between.count();
    eprintln!("{changes} changes between waiting requests and the bystander's");
    conclude!(
        changes >= 400,
        "the bystander's requests waited with the others: {changes} changes"
    );
}

#[test]
fn waiting_ends_with_the_stream_the_clients_max_wait_or_a_higher_limit() {
    let name = "waiting_ends_with_the_stream_the_clients_max_wait_or_a_higher_limit";
    run_test(name, ends);
}

async fn ends(test: &TestContext) -> Result<()> {
    let limits = |rate: f64| {
        format!("limits:\n  - match: \"*\"\n    requests: {{rate: {rate}, burst: 1}}\n")
    };
    let mut coordinator = test.coordinator(&limits(0.1)).await?;
    let envoy = test
        .envoy(
            "envoy",
            1,
            &coordinator,
            &shaped(&json!({"max_wait_ms": 30_000})),
        )
        .await?;
    let to = envoy.address();
    let acme = (TENANT_HEADER, "acme");
    let first = get_once(to, "/", &[acme]).await?;
    ensure!(first.status == 200);

    // A request that will not wait is refused at once, with the pause.
    let hasty = get_once(to, "/", &[acme, ("tollgate-max-wait-ms", "0")]).await?;
    ensure!(hasty.status == 429, "{hasty:?}");
    let pause: u64 = hasty
        .header("tollgate-pause-ms")
        .context("a pause")?
        .parse()?;
    ensure!((1..=10_000).contains(&pause), "{pause}");
    let grpc = [
        acme,
        ("content-type", "application/grpc"),
        ("grpc-timeout", "100m"),
    ];
    let short = get_once(to, "/", &grpc).await?;
    ensure!(short.header("grpc-status") == Some("8"), "{short:?}");
    ensure!(short.header("tollgate-reason") == Some("tenant/requests"));

    // A closed stream leaves the queue, and its request does not reach the upstream.
    let mut gone = TcpStream::connect(to).await?;
    gone.write_all(&get("/gone", &[acme])).await?;
    waiting(&envoy, 1).await?;
    drop(gone);
    waiting(&envoy, 0).await?;

    // A higher limit admits all waiting requests, long before the old one would have.
    let mut waiters = JoinSet::new();
    for _ in 0..2 {
        waiters.spawn(async move { get_once(to, "/", &[(TENANT_HEADER, "acme")]).await });
    }
    waiting(&envoy, 2).await?;
    coordinator.reconfigure(&limits(1000.0)).await?;
    let raised = Instant::now();
    while let Some(answer) = waiters.join_next().await {
        ensure!(answer??.status == 200);
    }
    eprintln!("admitted {:?} after the limit was raised", raised.elapsed());
    ensure!(
        test.upstream.arrived("acme") == 3,
        "{}",
        test.upstream.arrived("acme")
    );
    times_out(&mut coordinator, &envoy, limits).await
}

/// Checks that a request whose limit drops to zero while it waits is refused with the reason just before
/// its client's max wait ends.
async fn times_out(
    coordinator: &mut Coordinator,
    envoy: &Envoy,
    limits: impl Fn(f64) -> String,
) -> Result<()> {
    coordinator.reconfigure(&limits(0.2)).await?;
    let to = envoy.address();
    let beta = (TENANT_HEADER, "beta");
    ensure!(get_once(to, "/", &[beta]).await?.status == 200);
    let late = tokio::spawn(async move {
        let fields = [beta, ("tollgate-max-wait-ms", "8000")];
        get_once(to, "/late", &fields).await
    });
    waiting(envoy, 1).await?;
    let nothing = "limits:\n  - match: \"*\"\n    requests: {rate: 0}\n";
    coordinator.reconfigure(nothing).await?;
    let late = late.await??;
    ensure!(late.status == 429, "{late:?}");
    ensure!(late.header("tollgate-reason") == Some("tenant/requests"));
    wait::until("the timeout to be counted", s(5.0), async || {
        let timeouts = envoy.stat("wasmcustom.tollgate.wait_timeouts").await?;
        ensure!(timeouts == 1, "{timeouts}");
        Ok(())
    })
    .await?;
    let text = envoy.prometheus().await?;
    ensure!(
        text.contains("tollgate_wait_ms_bucket"),
        "no histogram:\n{text}"
    );
    Ok(())
}

pub(crate) async fn waiting(envoy: &Envoy, requests: u64) -> Result<()> {
    wait::until("the number of waiting requests", s(10.0), async || {
        let waiting = envoy.stat("wasmcustom.tollgate.waiting").await?;
        ensure!(waiting == requests, "{waiting} wait, not {requests}");
        Ok(())
    })
    .await
}
