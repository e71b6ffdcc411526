//! Requests in flight are counted exactly, however they end.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_tests::connection::{get, get_once};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{self, TENANT_HEADER, UPSTREAM, by_tenant};
use tollgate_tests::http2::Http2;
use tollgate_tests::wait;

use crate::http2::endless;
use crate::shape::{send, shaped, waiting};
use crate::test_context::{TestContext, run_test, s};

/// Number of streams, a tenth of them for each way to end.
const STREAMS: usize = 10_000;
const AT_ONCE: usize = 64;
/// Streams without an answer that are opened at once.
const OPENED_AT_ONCE: usize = 10;
const MAX: u64 = 80;
const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 1000000}\n    \
                      concurrency: {max: 80}\n";

#[test]
fn ten_thousand_streams_that_end_in_every_way_leave_none_in_flight() {
    run_test(
        "ten_thousand_streams_that_end_in_every_way_leave_none_in_flight",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(LIMITS).await?;
            let envoy = envoy(test, 2, upstream.address(), &coordinator).await?;
            let to = envoy.address();
            the_limit_is_known(&envoy).await?;
            let turns = Arc::new(Semaphore::new(AT_ONCE));
            let mut streams = JoinSet::new();
            for n in 0..STREAMS {
                let turn = Arc::clone(&turns).acquire_owned().await?;
                streams.spawn(async move {
                    let ended = end(n % 10, to).await;
                    drop(turn);
                    ended
                });
            }
            let mut refused = 0;
            while let Some(ended) = streams.join_next().await {
                refused += usize::from(ended?? == 429);
            }
            eprintln!("{refused} of {STREAMS} were refused");
            ensure!(refused < STREAMS / 2, "most were refused: {refused}");
            nothing_is_in_flight(&envoy).await?;
            the_whole_limit_is_free(to, &upstream).await?;
            nothing_is_in_flight(&envoy).await
        },
    );
}

#[test]
fn a_listener_that_drains_leaves_none_in_flight() {
    run_test(
        "a_listener_that_drains_leaves_none_in_flight",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(LIMITS).await?;
            let mut envoy = envoy(test, 2, upstream.address(), &coordinator).await?;
            let to = envoy.address();
            the_limit_is_known(&envoy).await?;
            nothing_is_in_flight(&envoy).await?;
            let (http2, _running) = Http2::open(to).await?;
            for _ in 0..MAX / 4 {
                endless(&http2, &upstream, "acme").await?;
            }
            let mut open = Vec::new();
            wait::until("as many over HTTP/1", s(20.0), async || {
                open_up_to(&mut open, (MAX / 4) as usize, to).await
            })
            .await?;
            in_flight(&envoy, MAX / 2).await?;
            // A new configuration creates a new root context, while streams of the old one go on.
            let plugin = by_tenant(&json!({"call_timeout_ms": 1001}));
            let listeners = [("main".to_owned(), vec![filter::tollgate(&plugin)?])];
            ensure!(
                envoy.configure(&listeners).await?,
                "the configuration is accepted"
            );
            // Envoy closes the remaining streams after the drain time.
            nothing_is_in_flight(&envoy).await?;
            the_whole_limit_is_free(to, &upstream).await?;
            nothing_is_in_flight(&envoy).await
        },
    );
}

/// A token every eighth of a second, for requests with a permit.
const SLOW: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 8, burst: 1}\n    \
                    concurrency: {max: 40}\n";

#[test]
fn a_drain_by_the_admin_lets_waiting_requests_go_on_and_leaves_none_in_flight() {
    run_test(
        "a_drain_by_the_admin_lets_waiting_requests_go_on_and_leaves_none_in_flight",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(SLOW).await?;
            let filters = vec![filter::tollgate(&shaped(&json!({"max_wait_ms": 20_000})))?];
            let mut spec = EnvoySpec::new("envoy", 2, upstream.address(), filters);
            spec.virtual_hosts = routes();
            let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
            let to = envoy.address();
            the_limit_is_known(&envoy).await?;
            let mut open = Vec::new();
            for _ in 0..6 {
                open.push(begin(to, "/never").await?.0);
            }
            in_flight(&envoy, 6).await?;
            let (http2, _running) = Http2::open(to).await?;
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut waiters = JoinSet::new();
            for n in 0..30 {
                let sent = send(&http2, "acme", "/ok".to_owned()).await;
                let order = Arc::clone(&order);
                waiters.spawn(async move {
                    let status = sent.await??;
                    order.lock().unwrap_or_else(PoisonError::into_inner).push(n);
                    anyhow::Ok(status)
                });
            }
            wait::until("most to wait", s(10.0), async || {
                let waiting = envoy.stat("wasmcustom.tollgate.waiting").await?;
                ensure!(waiting >= 20, "{waiting} wait");
                Ok(())
            })
            .await?;
            envoy.drain().await?;
            // Some of them pass only after the listener has stopped accepting connections.
            wait::until("the listener to be closed", s(20.0), async || {
                ensure!(TcpStream::connect(to).await.is_err(), "it still accepts");
                Ok(())
            })
            .await?;
            let left = envoy.stat("wasmcustom.tollgate.waiting").await?;
            eprintln!("{left} of 30 still wait at a closed listener");
            while let Some(status) = waiters.join_next().await {
                ensure!(status?? == 200, "a waiting request is admitted");
            }
            let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ensure!(order.is_sorted(), "out of order: {order:?}");
            in_flight(&envoy, 6).await?;
            drop(open);
            nothing_is_in_flight(&envoy).await?;
            waiting(&envoy, 0).await
        },
    );
}

const FIVE: &str = "limits:\n  - match: \"tenant/*\"\n    requests: {rate: 1000000}\n    \
                    concurrency: {max: 5}\n";

#[test]
fn five_in_flight_are_five_through_any_envoys() {
    run_test(
        "five_in_flight_are_five_through_any_envoys",
        async |test: &TestContext| {
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(FIVE).await?;
            let mut envoys = Vec::new();
            for name in ["envoy-1", "envoy-2", "envoy-3"] {
                let envoy = envoy_named(test, name, 2, upstream.address(), &coordinator).await?;
                the_limit_is_known(&envoy).await?;
                nothing_is_in_flight(&envoy).await?;
                envoys.push(envoy);
            }
            let mut turns = envoys.iter().map(Envoy::address).cycle();
            let mut next = || {
                turns
                    .next()
                    .unwrap_or_else(|| unreachable!("there are three"))
            };
            let mut open = VecDeque::new();
            for _ in 0..5 {
                open.push_back(reach(&upstream, next()).await?);
            }
            for _ in 0..30 {
                for _ in 0..3 {
                    let answer = get_once(next(), "/never", &[(TENANT_HEADER, "acme")]).await?;
                    ensure!(answer.status == 429, "{} beyond the limit", answer.status);
                }
                // The one that ends and the one that begins are at different Envoys.
                drop(open.pop_front());
                let to = next();
                let begun = wait::until("the permit to be had elsewhere", s(5.0), async || {
                    reach(&upstream, to).await
                })
                .await?;
                open.push_back(begun);
            }
            drop(open);
            for envoy in &envoys {
                nothing_is_in_flight(envoy).await?;
            }
            Ok(())
        },
    );
}

/// Begins a request, and waits until it has reached the upstream.
async fn reach(upstream: &FaultyUpstream, to: SocketAddr) -> Result<TcpStream> {
    let before = upstream.unanswered();
    let (stream, status) = begin(to, "/never").await?;
    ensure!(status.is_none(), "answered with {status:?}");
    wait::until("the request to go on", s(5.0), async || {
        ensure!(upstream.unanswered() > before, "it is held");
        Ok(())
    })
    .await?;
    Ok(stream)
}

/// Waits until the limit is known; before, the filter counts no requests in flight.
pub(crate) async fn the_limit_is_known(envoy: &Envoy) -> Result<()> {
    wait::until("the limit to be known", s(10.0), async || {
        let (open, _) = begin(envoy.address(), "/never").await?;
        let known = envoy.stat("wasmcustom.tollgate.in_flight").await? > 0;
        drop(open);
        ensure!(known, "no request is counted");
        Ok(())
    })
    .await
}

/// Waits until the gauge of all workers is back at zero.
async fn nothing_is_in_flight(envoy: &Envoy) -> Result<()> {
    in_flight(envoy, 0).await
}

async fn in_flight(envoy: &Envoy, streams: u64) -> Result<()> {
    wait::until("the number in flight", s(10.0), async || {
        let open = envoy.stat("wasmcustom.tollgate.in_flight").await?;
        ensure!(open == streams, "{open} in flight, not {streams}");
        Ok(())
    })
    .await
}

/// Checks that as many streams as the limit are admitted, and not one more while they are open.
async fn the_whole_limit_is_free(to: SocketAddr, upstream: &FaultyUpstream) -> Result<()> {
    let before = upstream.unanswered();
    let mut open = Vec::new();
    wait::until("as many in flight as the limit", s(20.0), async || {
        open.retain(is_unanswered);
        open_up_to(&mut open, MAX as usize, to).await?;
        let begun = upstream.unanswered() - before;
        ensure!(begun >= MAX, "{begun} have come to the upstream");
        Ok(())
    })
    .await?;
    for _ in 0..30 {
        let answer = get_once(to, "/never", &[(TENANT_HEADER, "acme")]).await?;
        ensure!(answer.status == 429, "{} beyond the limit", answer.status);
        ensure!(answer.header("tollgate-reason") == Some("tenant/concurrency"));
        ensure!(answer.header("tollgate-pause-ms").is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(open);
    Ok(())
}

/// Adds streams without an answer to `open` until there are `count`, some at a time.
///
/// # Errors
/// When one of them is answered; the others are in `open`.
pub(crate) async fn open_up_to(
    open: &mut Vec<TcpStream>,
    count: usize,
    to: SocketAddr,
) -> Result<()> {
    while open.len() < count {
        let mut begun = JoinSet::new();
        for _ in open.len()..count.min(open.len() + OPENED_AT_ONCE) {
            begun.spawn(begin(to, "/never"));
        }
        let mut answered = None;
        while let Some(stream) = begun.join_next().await {
            match stream?? {
                (stream, None) => open.push(stream),
                (_, status) => answered = status,
            }
        }
        ensure!(answered.is_none(), "{answered:?} with {} open", open.len());
    }
    Ok(())
}

/// Whether nothing was sent on a stream, nor was it closed, since [`begin`] has waited for that: a busy machine takes longer.
fn is_unanswered(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Sends a GET and waits a moment for its status.
pub(crate) async fn begin(to: SocketAddr, path: &str) -> Result<(TcpStream, Option<u16>)> {
    let mut stream = TcpStream::connect(to).await?;
    stream
        .write_all(&get(path, &[(TENANT_HEADER, "acme")]))
        .await?;
    let mut head = [0; 12];
    let status = timeout(Duration::from_millis(100), stream.read_exact(&mut head)).await;
    let status = match status {
        Ok(read) => {
            read?;
            Some(String::from_utf8_lossy(&head[9..12]).parse()?)
        }
        Err(_) => None,
    };
    Ok((stream, status))
}

/// Ends one stream in the given way; returns its status, 0 without one.
async fn end(way: usize, to: SocketAddr) -> Result<u16> {
    let tenant = [(TENANT_HEADER, "acme")];
    let moment = Duration::from_millis(5);
    match way {
        0 => Ok(get_once(to, "/ok", &tenant).await?.status),
        1 => Ok(get_once(to, "/close", &tenant).await?.status),
        2 => Ok(get_once(to, "/in-time", &tenant).await?.status),
        3 => Ok(get_once(to, "/direct", &tenant).await?.status),
        // The body is shorter than its length: the answer is incomplete.
        4 => Ok(get_once(to, "/cut", &tenant)
            .await
            .map_or(0, |answer| answer.status)),
        5 => {
            let lost = timeout(moment, get_once(to, "/never", &tenant)).await;
            Ok(lost.map_or(Ok(0), |answer| answer.map(|answer| answer.status))?)
        }
        6 => {
            // Each stream has its own connection, because Envoy closes one with mostly reset streams. The
            // stream ends before the connection.
            let (http2, _running) = Http2::open(to).await?;
            let reset = timeout(moment, http2.get("/never", &tenant)).await;
            tokio::time::sleep(moment).await;
            Ok(reset.map_or(Ok(0), |answer| answer.map(|answer| answer.status))?)
        }
        7 => upgraded(to, "/echo").await,
        8 => upgraded(to, "/hello").await,
        _ => {
            let mut stream = TcpStream::connect(to).await?;
            let head =
                "POST /ok HTTP/1.1\r\nhost: x\r\nx-tenant: acme\r\ncontent-length: 1000\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(b"not all of it").await?;
            tokio::time::sleep(moment).await;
            Ok(0)
        }
    }
}

/// Opens a tunnel that the client closes, or the upstream.
async fn upgraded(to: SocketAddr, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(to).await?;
    let fields = [
        (TENANT_HEADER, "acme"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
    ];
    stream.write_all(&get(path, &fields)).await?;
    let mut received = Vec::new();
    while !received.windows(4).any(|part| part == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut received).await? > 0, "closed");
    }
    let status = String::from_utf8_lossy(&received[9..12]).parse()?;
    if status == 101 && path == "/echo" {
        stream.write_all(b"ping").await?;
        while !received.ends_with(b"ping") {
            ensure!(stream.read_buf(&mut received).await? > 0, "closed");
        }
    } else if status == 101 {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
    }
    Ok(status)
}

async fn envoy(
    test: &TestContext,
    workers: u32,
    upstream: SocketAddr,
    coordinator: &Coordinator,
) -> Result<Envoy> {
    envoy_named(test, "envoy", workers, upstream, coordinator).await
}

async fn envoy_named(
    test: &TestContext,
    name: &str,
    workers: u32,
    upstream: SocketAddr,
    coordinator: &Coordinator,
) -> Result<Envoy> {
    let filters = vec![filter::tollgate(&by_tenant(&json!({})))?];
    let mut spec = EnvoySpec::new(name, workers, upstream, filters).asking(coordinator.grpc());
    spec.virtual_hosts = routes();
    Envoy::start(test.dir(), &spec).await
}

/// Virtual host with a route that times out, one that Envoy answers itself, and one for the rest.
fn routes() -> Value {
    let tunnel = json!([{"upgrade_type": "websocket"}]);
    json!([{
        "name": "all",
        "domains": ["*"],
        "routes": [
            {"match": {"path": "/in-time"},
             "route": {"cluster": UPSTREAM, "timeout": "0.02s", "prefix_rewrite": "/never"}},
            {"match": {"path": "/direct"}, "direct_response": {"status": 418}},
            {"match": {"prefix": "/"},
             "route": {"cluster": UPSTREAM, "timeout": "0s", "upgrade_configs": tunnel}},
        ],
    }])
}
