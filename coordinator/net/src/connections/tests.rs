use std::net::SocketAddr;
use std::time::Duration;

use axum::routing::get;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::bounds::ConnectionBounds;
use super::*;
use crate::tls::{Listener, ServerFiles, TlsMetrics};

/// More than the sockets of both sides take.
const LARGE: usize = 16 << 20;

/// A listener that is served until it is stopped.
struct Served {
    address: SocketAddr,
    memory: CallMemory,
    registry: Registry,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Served {
    /// At most `max` connections at `listener`, with other bounds as they are by default.
    async fn start(listener: Listener, max: usize) -> Self {
        Self::with(listener, max, ConnectionBounds::default(), None).await
    }

    async fn with(
        listener: Listener,
        max: usize,
        times: ConnectionBounds,
        tls: Option<ListenerTls>,
    ) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut registry = Registry::default();
        let metrics = ConnectionMetrics::register(&mut registry);
        let memory = CallMemory::new(times.max_call_bytes);
        let limits = ListenerLimits {
            listener,
            max,
            times,
        };
        let table = ConnectionTable::new(limits, memory.clone(), metrics);
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/work", get(std::future::pending::<String>))
            .route("/large", get(|| async { vec![0; LARGE] }))
            .route("/echo", axum::routing::put(|body: String| async { body }));
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(Acceptor::new(socket, table, tls).serve(router, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            memory,
            registry,
            stop,
            ended,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection on which `text` was sent.
    async fn said(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// The status of the answer to a GET of `path` on a new connection, which is open afterwards.
    async fn get(&self, path: &str) -> (String, TcpStream) {
        let mut stream = self.said(&request(path)).await;
        (status(&mut stream).await, stream)
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .trim()
            .parse()
            .unwrap()
    }

    fn dropped(&self, listener: Listener, reason: &str) -> u64 {
        let listener = listener.name();
        self.metric(&format!(
            "connections_dropped_total{{listener=\"{listener}\",reason=\"{reason}\"}}"
        ))
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

async fn status(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

/// Waits until the other side has closed `stream`.
async fn closed(stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await.unwrap_or(0) > 0 {}
}

/// Whether `stream` is open, as far as has been heard.
async fn is_open(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    tokio::time::timeout(Duration::from_millis(20), stream.read(&mut bytes))
        .await
        .is_err()
}

#[tokio::test]
async fn a_full_listener_makes_room_and_keeps_who_may_be_about_to_ask_for_probes() {
    let served = Served::start(Listener::Http, 3).await;
    let (_, mut answered) = served.get("/healthz").await;
    let mut silent = served.connect().await;
    let mut later = served.said("GET /healthz HT").await;
    // The second of them takes the place of `later`, which was never answered either.
    let newcomers = [served.get("/healthz").await, served.get("/healthz").await];
    assert!(newcomers.iter().all(|(status, _)| status == "200"));
    later
        .write_all(b"TP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(status(&mut later).await, "200");
    silent
        .write_all(request("/large").as_bytes())
        .await
        .unwrap();
    assert_eq!(status(&mut silent).await, "503");
    closed(&mut silent).await;
    let mut rest = [0; 4096];
    while let Ok(read) =
        tokio::time::timeout(Duration::from_millis(20), answered.read(&mut rest)).await
    {
        assert!(read.unwrap() > 0, "the one that was answered is kept");
    }
    assert_eq!(served.dropped(Listener::Http, "full"), 0);
}

#[tokio::test]
async fn connections_that_are_being_worked_on_are_kept_and_probes_find_a_place() {
    let served = Served::start(Listener::Http, 2).await;
    let mut working = [
        served.said(&request("/work")).await,
        served.said(&request("/work")).await,
    ];
    for stream in &mut working {
        assert!(is_open(stream).await);
    }
    let (status, mut refused) = served.get("/large").await;
    assert_eq!(status, "503");
    closed(&mut refused).await;
    assert_eq!(served.get("/healthz").await.0, "200");
    let mut silent = Vec::new();
    for _ in 0..table::PROBE_PLACES {
        silent.push(served.connect().await);
    }
    assert_eq!(served.get("/healthz").await.0, "200");
    closed(&mut silent[0]).await;
    for stream in &mut working {
        assert!(is_open(stream).await);
    }
    assert_eq!(
        served.metric("refused_calls_total{listener=\"http\"}"),
        1,
        "only the probe was answered"
    );
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_or_only_half_is_closed_in_time() {
    let served = Served::start(Listener::Http, 100).await;
    let limit = ConnectionBounds::default().request_timeout;
    let body = "PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf";
    for text in ["", "GET /healthz HT", body] {
        let before = Instant::now();
        let mut stream = served.said(text).await;
        closed(&mut stream).await;
        let took = before.elapsed();
        assert!((limit..limit * 2).contains(&took), "{text:?}: {took:?}");
    }
    assert_eq!(served.dropped(Listener::Http, "request"), 3);
    assert_eq!(served.memory.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_was_answered_may_be_silent_for_longer() {
    let served = Served::start(Listener::Http, 100).await;
    let limit = ConnectionBounds::default().idle_timeout;
    let (_, mut stream) = served.get("/healthz").await;
    let before = Instant::now();
    closed(&mut stream).await;
    assert!(before.elapsed() >= limit, "{:?}", before.elapsed());
    assert_eq!(served.dropped(Listener::Http, "idle"), 1);

    // Half a request is late sooner, also after a whole one.
    let (_, mut stream) = served.get("/healthz").await;
    tokio::time::sleep(limit / 2).await;
    stream.write_all(b"GET /healthz HT").await.unwrap();
    let before = Instant::now();
    closed(&mut stream).await;
    assert!(before.elapsed() < limit / 2, "{:?}", before.elapsed());
    assert_eq!(served.dropped(Listener::Http, "request"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_connection_that_says_no_hello_is_closed_and_one_that_does_is_kept() {
    let served = Served::start(Listener::Grpc, 100).await;
    let limit = ConnectionBounds::default().request_timeout;
    let before = Instant::now();
    closed(&mut served.said("PRI * HTTP/2.0").await).await;
    assert!(before.elapsed() >= limit);
    let (_sender, connection) = hello(&served, 65_535).await;
    let connection = tokio::spawn(connection);
    tokio::time::sleep(limit * 4).await;
    assert!(!connection.is_finished());
    assert_eq!(served.dropped(Listener::Grpc, "request"), 1);
}

/// An HTTP/2 client whose streams have a window of so many bytes.
async fn hello(
    served: &Served,
    window: u32,
) -> (
    http2::SendRequest<Empty<Bytes>>,
    impl Future<Output = hyper::Result<()>> + Send + 'static,
) {
    let io = TokioIo::new(served.connect().await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    builder.handshake(io).await.unwrap()
}

fn call(path: &str) -> axum::http::Request<Empty<Bytes>> {
    let uri = format!("http://localhost{path}");
    axum::http::Request::get(uri).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn an_idle_grpc_client_that_makes_room_is_told_so() {
    let served = Served::start(Listener::Grpc, 1).await;
    let (mut sender, connection) = hello(&served, 65_535).await;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(call("/healthz")).await.unwrap();
    assert_eq!(answer.status(), 200);
    // Read to its end, or it would be cut off.
    let read = http_body_util::BodyExt::collect(answer.into_body()).await;
    assert_eq!(read.unwrap().to_bytes(), "ok\n");
    let (mut second, running) = hello(&served, 65_535).await;
    tokio::spawn(running);
    let answer = second.send_request(call("/healthz")).await.unwrap();
    assert_eq!(answer.status(), 200);
    // GOAWAY, not a reset.
    connection.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_its_answers_is_refused_more_and_closed_in_time() {
    let bounds = ConnectionBounds {
        // Enough, but not for one connection.
        max_call_bytes: 4 * LARGE,
        ..ConnectionBounds::default()
    };
    let served = Served::with(Listener::Grpc, 100, bounds, None).await;
    let (mut sender, connection) = hello(&served, 0).await;
    let connection = tokio::spawn(connection);
    let unread = sender.send_request(call("/large")).await.unwrap();
    while served.memory.bytes() < LARGE {
        tokio::task::yield_now().await;
    }
    let refused = sender.send_request(call("/large")).await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8", "RESOURCE_EXHAUSTED");
    let before = Instant::now();
    let _ = connection.await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(90));
    drop(unread);
    while served.memory.bytes() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.dropped(Listener::Grpc, "response"), 1);
}

/// Small answers take memory for the state of their streams.
#[tokio::test]
async fn small_answers_that_are_not_read_are_bounded_in_number() {
    const CALLS: usize = 8;
    let bounds = ConnectionBounds {
        max_call_bytes: bounds::CONNECTION_PARTS * CALLS * memory::CALL_LEN,
        ..ConnectionBounds::default()
    };
    let served = Served::with(Listener::Grpc, 100, bounds, None).await;
    let (mut sender, connection) = hello(&served, 0).await;
    tokio::spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..CALLS {
        let answer = sender.send_request(call("/healthz")).await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
        while served.memory.bytes() < unread.len() * memory::CALL_LEN {
            tokio::task::yield_now().await;
        }
    }
    let refused = sender.send_request(call("/healthz")).await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8", "RESOURCE_EXHAUSTED");
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn who_holds_most_of_the_memory_is_closed_when_there_is_none_for_others() {
    let bounds = ConnectionBounds {
        max_call_bytes: LARGE,
        response_timeout: Duration::from_secs(3600),
        ..ConnectionBounds::default()
    };
    let served = Served::with(Listener::Http, 100, bounds, None).await;
    let mut unread = served.said(&request("/large")).await;
    while served.memory.bytes() < LARGE {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.get("/work").await.0, "503");
    assert_eq!(served.get("/healthz").await.0, "200", "a probe passes");
    while served.memory.bytes() > 0 {
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
    closed(&mut unread).await;
    assert_eq!(served.dropped(Listener::Http, "memory"), 1);
    assert_eq!(served.get("/large").await.0, "200");
}

#[tokio::test]
async fn a_stop_waits_for_the_calls_that_are_under_way() {
    let served = Served::start(Listener::Http, 100).await;
    let put = "PUT /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n12";
    let mut late = served.said(put).await;
    let (_, mut idle) = served.get("/healthz").await;
    let mut silent = served.connect().await;
    while served.metric("connections{listener=\"http\"}") < 3 || served.memory.bytes() == 0 {
        tokio::task::yield_now().await;
    }
    served.stop.send(()).unwrap();
    closed(&mut idle).await;
    closed(&mut silent).await;
    late.write_all(b"34").await.unwrap();
    assert_eq!(status(&mut late).await, "200");
    served.ended.await.unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

/// How a listener speaks TLS with a certificate of its own, and the counts of its errors.
fn tls() -> (ListenerTls, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).unwrap();
    let files = ServerFiles {
        cert: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
        client_ca: None,
    };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let mut registry = Registry::default();
    let metrics = TlsMetrics::register(&mut registry);
    let identity = files.start(Listener::Http, &metrics).unwrap();
    let tls = ListenerTls {
        listener: Listener::Http,
        identity,
        metrics,
    };
    (tls, registry)
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_bounded_in_number_and_time() {
    let (tls, registry) = tls();
    let bounds = ConnectionBounds::default();
    let served = Served::with(Listener::Http, 8, bounds, Some(tls)).await;
    let before = Instant::now();
    let mut silent = Vec::new();
    let places = 8 + table::PROBE_PLACES;
    for _ in 0..=places {
        silent.push(served.connect().await);
    }
    closed(&mut silent[0]).await;
    assert!(before.elapsed() < bounds.handshake_timeout, "it made room");
    for stream in &mut silent {
        closed(stream).await;
    }
    assert!(before.elapsed() >= bounds.handshake_timeout);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (reason, count) in [("busy", 1), ("timeout", places), ("failed", 0)] {
        let line = format!(
            "tls_handshake_errors_total{{listener=\"http\",reason=\"{reason}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}
