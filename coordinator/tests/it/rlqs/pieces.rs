//! Streams that say nothing, or half of a message.

use std::convert::Infallible;

use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::StreamExt as _;

use super::*;

const LIMITS: &str = "- {match: 'tenant/*', requests: {rate: 100}}";

/// A stream whose client sends any bytes.
struct RawStream {
    pieces: mpsc::Sender<Vec<u8>>,
    connection: JoinHandle<()>,
}

// === impl RawStream ===

impl RawStream {
    /// Opens a stream over a connection of its own.
    async fn open(coordinator: &Coordinator) -> Self {
        let io = TokioIo::new(TcpStream::connect(coordinator.grpc).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        let (pieces, sent) = mpsc::channel::<Vec<u8>>(4);
        let frames = ReceiverStream::new(sent)
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let path = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
        let request = axum::http::Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(frames))
            .unwrap();
        tokio::spawn(async move {
            let answer = sender.send_request(request).await;
            // The answer is kept, or the stream would be reset.
            std::future::pending::<()>().await;
            drop((answer, sender));
        });
        Self { pieces, connection }
    }

    async fn send(&self, piece: &[u8]) {
        self.pieces.send(piece.to_vec()).await.unwrap();
    }
}

// === free functions ===

/// A report on one bucket, as it goes over the wire.
fn message() -> Vec<u8> {
    let body = report("edge", &[("acme", 0, 1)]).encode_to_vec();
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], &len[..], &body].concat()
}

/// Bytes that calls hold, that of this look among them.
async fn call_memory(coordinator: &Coordinator) -> u64 {
    let metrics = coordinator.get("/metrics").await.body;
    let mut lines = metrics.lines();
    let held = lines.find_map(|line| line.strip_prefix("tollgate_call_memory_bytes "));
    held.unwrap().parse().unwrap()
}

async fn impatient() -> Coordinator {
    let yaml = format!("connections: {{request_timeout: 300ms}}\n{DOMAINS}\nlimits:\n{LIMITS}");
    Coordinator::with(&yaml, Start::Fresh).await
}

#[tokio::test]
async fn a_message_that_has_begun_must_come_in_time() {
    let coordinator = impatient().await;
    let whole = message();
    let (half, rest) = whole.split_at(whole.len() / 2);
    let rows = [
        vec![half.to_vec()],
        vec![whole.clone(), half.to_vec()],
        // A whole message and the first byte of the next come together.
        vec![[&whole[..], &[0]].concat()],
        vec![half.to_vec(), [rest, half].concat()],
        // More than the calls of this test hold at its end.
        vec![whole.clone(), [&[0, 0, 1, 0, 0][..], &[0; 9999]].concat()],
    ];
    let count = rows.len();
    for pieces in rows {
        let stream = RawStream::open(&coordinator).await;
        for piece in &pieces {
            stream.send(piece).await;
            sleep(Duration::from_millis(20)).await;
        }
        let closed = timeout(NEVER, stream.connection).await;
        closed.expect("the connection is open").unwrap();
    }
    let metrics = coordinator.get("/metrics").await.body;
    for line in [
        &format!(
            "tollgate_connections_dropped_total{{listener=\"grpc\",reason=\"request\"}} {count}"
        ),
        "tollgate_rlqs_streams 0",
        "tollgate_rlqs_buckets 0",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    // The last connection may end before its bytes are given back.
    let given_back = async {
        while call_memory(&coordinator).await >= 1024 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let given_back = timeout(NEVER, given_back).await;
    given_back.expect("the bytes of messages are not given back");
}

#[tokio::test]
async fn a_stream_of_whole_messages_may_be_silent_between_them() {
    let coordinator = impatient().await;
    let whole = message();
    let (half, rest) = whole.split_at(whole.len() / 2);
    let stream = RawStream::open(&coordinator).await;
    stream.send(&whole).await;
    for _ in 0..2 {
        sleep(Duration::from_millis(700)).await;
        stream.send(half).await;
        sleep(Duration::from_millis(20)).await;
        stream.send(rest).await;
    }
    sleep(Duration::from_millis(700)).await;
    assert!(!stream.connection.is_finished());
    let metrics = coordinator.get("/metrics").await.body;
    for line in ["tollgate_rlqs_streams 1", "tollgate_rlqs_reports_total 3"] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
}

#[tokio::test]
async fn silent_streams_take_no_place_of_others() {
    let coordinator = coordinator(LIMITS).await;
    let mut silent = JoinSet::new();
    let mut channel = connect(&coordinator);
    for i in 0..1024 {
        if i % 60 == 0 {
            channel = connect(&coordinator);
        }
        let mut stub = RateLimitQuotaServiceClient::new(channel.clone());
        silent.spawn(async move {
            let stream = stub.stream_rate_limit_quotas(tokio_stream::pending());
            stream.await.map(|answer| answer.into_inner())
        });
    }
    let early = timeout(Duration::from_millis(500), silent.join_next()).await;
    assert!(early.is_err(), "a silent stream was answered: {early:?}");
    let mut proxy = Proxy::start(&coordinator, "edge", &[("acme", 0, 1)]).await;
    assert!(proxy.rate("acme").await > 0.0);
}

#[tokio::test]
async fn a_stream_that_ends_before_its_first_report_is_cancelled() {
    let coordinator = coordinator(LIMITS).await;
    let mut stub = RateLimitQuotaServiceClient::new(connect(&coordinator));
    let ended = stub.stream_rate_limit_quotas(tokio_stream::empty()).await;
    assert_eq!(ended.unwrap_err().code(), Code::Cancelled);
}
