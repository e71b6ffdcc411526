//! Wait queues of several workers: each worker has its own, for one shared bucket.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tollgate_tests::conclude;
use tollgate_tests::conditions;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{self, TENANT_HEADER};
use tollgate_tests::http2::Http2;
use tollgate_tests::recording_upstream::RecordingUpstream;
use tollgate_tests::wait;

use crate::shape::{in_order, send, shaped, waiting};
use crate::test_context::{TestContext, assert_near, run_test, s};

/// `acme` has bursts at twice its rate; each request of `beta` waits for five seconds.
const LIMITS: &str = "limits:
  - {match: tenant/acme, requests: {rate: 200, burst: 20}}
  - {match: tenant/beta, requests: {rate: 0.2, burst: 1}}
";
const RAISED: &str = "limits:
  - {match: tenant/acme, requests: {rate: 200, burst: 20}}
  - {match: tenant/beta, requests: {rate: 1000}}
";
const RATE: f64 = 200.0;
/// Length of a burst at twice the rate, and of the silence after it.
const BURST: Duration = s(0.5);
const CYCLES: u32 = 7;
/// Cycles until the lease has settled and the first bucketful is spent.
const SETTLED: u32 = 2;
const WORKERS: usize = 2;
/// Number of connections of each worker.
const EACH: usize = 2;
/// Most connections to open until each worker has enough by chance.
const CONNECTIONS_MAX: usize = 60;

#[test]
fn two_workers_let_requests_wait_in_order_at_one_rate() {
    let name = "two_workers_let_requests_wait_in_order_at_one_rate";
    run_test(name, two_workers);
}

async fn two_workers(test: &TestContext) -> Result<()> {
    let upstream = RecordingUpstream::start().await?;
    let mut coordinator = test.coordinator(LIMITS).await?;
    let filters = vec![filter::tollgate(&shaped(&json!({"max_wait_ms": 30_000})))?];
    let spec =
        EnvoySpec::new("envoy", WORKERS as u32, upstream.address(), filters).upstream_over_http2();
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let connections = to_each_worker(&envoy).await?;

    conditions::begin();
    let started = Instant::now();
    let statuses = bursts(&connections, started).await?;
    let refused = statuses.iter().filter(|status| **status != 200).count();
    conclude!(refused == 0, "{refused} of {} were refused", statuses.len());
    let requests = upstream.requests();
    // Each connection belongs to one worker, and so does its queue.
    assert_eq!(in_order(&requests), WORKERS * EACH);
    let window = started + 2 * BURST * SETTLED..started + 2 * BURST * CYCLES;
    let within = requests
        .iter()
        .filter(|request| window.contains(&request.at));
    let length = (window.end - window.start).as_secs_f64();
    assert_near("all/s", within.count() as f64 / length, RATE, 0.03);
    let waited = envoy.stat("wasmcustom.tollgate.waited").await?;
    eprintln!("{waited} of {} waited", statuses.len());
    ensure!(waited as usize > statuses.len() / 4, "only {waited} waited");

    // A higher limit admits all requests in every worker; under the old one the last waits twenty seconds.
    let beta = [(TENANT_HEADER, "beta")];
    ensure!(connections[0].get("/beta", &beta).await?.status == 200);
    let mut waiters = Vec::new();
    for connection in &connections {
        waiters.push(send(connection, "beta", "/beta".to_owned()).await);
    }
    waiting(&envoy, waiters.len() as u64).await?;
    coordinator.reconfigure(RAISED).await?;
    let raised = Instant::now();
    let all = async {
        for sent in waiters {
            ensure!(sent.await?? == 200);
        }
        Ok(())
    };
    timeout(s(10.0), all).await??;
    eprintln!(
        "all were admitted {:?} after the limit was raised",
        raised.elapsed()
    );
    waiting(&envoy, 0).await
}

/// Opens as many connections to one worker as to the other. The kernel chooses the worker of each.
async fn to_each_worker(envoy: &Envoy) -> Result<Vec<Http2>> {
    let mut connections = Vec::new();
    let mut each = [0; WORKERS];
    for _ in 0..CONNECTIONS_MAX {
        let before = accepted(envoy).await?;
        let (connection, _running) = Http2::open(envoy.address()).await?;
        let worker = wait::until("a worker to accept", s(10.0), async || {
            let now = accepted(envoy).await?;
            let grown = now
                .iter()
                .zip(before)
                .position(|(now, before)| *now > before);
            grown.context("no worker has accepted")
        })
        .await?;
        if each[worker] < EACH {
            each[worker] += 1;
            connections.push(connection);
        }
        if each == [EACH; WORKERS] {
            return Ok(connections);
        }
    }
    bail!("of {CONNECTIONS_MAX} connections the workers got only {each:?}")
}

/// Number of connections that each worker has accepted so far.
async fn accepted(envoy: &Envoy) -> Result<[u64; WORKERS]> {
    let stats = envoy.stats("downstream_cx_total").await?;
    let mut accepted = [0; WORKERS];
    for (worker, count) in accepted.iter_mut().enumerate() {
        let suffix = format!(".worker_{worker}.downstream_cx_total");
        let of = stats.iter().filter(|(name, _)| name.ends_with(&suffix));
        *count = of.map(|(_, value)| *value).sum();
    }
    Ok(accepted)
}

/// Sends bursts on all connections at once, each request as a stream of its own; returns all statuses.
async fn bursts(connections: &[Http2], started: Instant) -> Result<Vec<u16>> {
    let mut senders = JoinSet::new();
    for (number, connection) in connections.iter().enumerate() {
        let connection = connection.clone();
        let each = Duration::from_secs_f64(connections.len() as f64 / RATE / 2.0);
        senders.spawn(send_bursts(connection, number, each, started));
    }
    let mut statuses = Vec::new();
    while let Some(sent) = senders.join_next().await {
        statuses.extend(sent??);
    }
    Ok(statuses)
}

async fn send_bursts(
    to: Http2,
    number: usize,
    each: Duration,
    started: Instant,
) -> Result<Vec<u16>> {
    let a_burst = (BURST.as_secs_f64() / each.as_secs_f64()).round() as u32;
    let mut streams = Vec::new();
    for cycle in 0..CYCLES {
        for n in 0..a_burst {
            sleep_until(started + 2 * BURST * cycle + each * n).await;
            let path = format!("/{number}/{}", streams.len());
            streams.push(send(&to, "acme", path).await);
        }
    }
    let mut statuses = Vec::new();
    for stream in streams {
        statuses.push(stream.await??);
    }
    Ok(statuses)
}
