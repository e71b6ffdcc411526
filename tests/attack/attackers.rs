//! Attacks on a coordinator's listeners.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use hyper::body::{Body, Bytes};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_proto::envoy::service::rate_limit_quota::v3 as rlqs;
use tollgate_proto::v1;

use crate::bodies::{RepeatedBody, SentBody};
use crate::client::{Targets, refresh_request};

/// Somewhat more connections than the coordinator accepts at its HTTP listener.
const HTTP_CONNECTIONS: u32 = 600;

/// Somewhat more connections than it accepts at its gRPC listener.
const GRPC_CONNECTIONS: u32 = 8300;

/// Number of half-open TLS handshakes.
const HANDSHAKES: u32 = 2000;

/// Connections whose answers are not read, and concurrent calls on each: as many as hyper would serve.
const UNREAD: (u32, u32) = (60, 200);

/// Connections with streams for nudges, and streams on each: more than there may be.
const WATCHES: (u32, u32) = (300, 64);

/// Connections with streams of reports, and streams on each: as many as there may be.
const REPORTS: (u32, u32) = (16, 64);

/// Buckets of each such stream, with names as long as they may be.
const BUCKETS: u32 = 256;

/// The length of a tenant in a report, in bytes.
const TENANT_LEN: usize = 500;

/// Connections with streams of health, and streams on each: as many as there may be on a connection.
const HEALTH: (u32, u32) = (1000, 64);

/// The length of each of the thousand ids in a large call: four less than is allowed.
const ID_LEN: usize = 252;

/// Connections opened at a time, as many as fit into the kernel's queue, and the pause between bursts.
const BURST: (u32, Duration) = (100, Duration::from_millis(20));

/// Pause of an attacker before its next attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Pause after a refused call.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The lease service.
const LEASES: &str = "tollgate.v1.LeaseService";

/// The preface of HTTP/2 and an empty SETTINGS frame.
const HTTP2_HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// A kind of attack on a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// No attack: the figures to compare with.
    None,
    /// HTTP connections that send nothing.
    Silent,
    /// HTTP requests with endless headers.
    Header,
    /// HTTP requests with endless bodies.
    Body,
    /// HTTP connections held open after one answer.
    KeepAlive,
    /// HTTP connections that request the metrics without pause.
    Metrics,
    /// gRPC connections without a call.
    IdleGrpc,
    /// gRPC connections that send nothing.
    SilentGrpc,
    /// Unfinished TLS handshakes.
    Handshake,
    /// Calls whose answers are not read.
    Unread,
    /// gRPC requests without an end.
    HalfSent,
    /// Streams for nudges, of as many clients.
    Watches,
    /// Streams of reports with many buckets, whose assignments are not read.
    Reports,
    /// Streams of the server's health, which are not read.
    Health,
}

// === impl Attack ===

impl Attack {
    pub(crate) const ALL: [Self; 14] = [
        Self::None,
        Self::Silent,
        Self::Header,
        Self::Body,
        Self::KeepAlive,
        Self::Metrics,
        Self::IdleGrpc,
        Self::SilentGrpc,
        Self::Handshake,
        Self::Unread,
        Self::HalfSent,
        Self::Watches,
        Self::Reports,
        Self::Health,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Silent => "silent HTTP",
            Self::Header => "slow headers",
            Self::Body => "slow bodies",
            Self::KeepAlive => "idle keep-alive",
            Self::Metrics => "all ask for metrics",
            Self::IdleGrpc => "idle gRPC",
            Self::SilentGrpc => "silent gRPC",
            Self::Handshake => "half-open TLS",
            Self::Unread => "unread answers",
            Self::HalfSent => "half-sent calls",
            Self::Watches => "streams",
            Self::Reports => "unread assignments",
            Self::Health => "watched health",
        }
    }

    /// Whether the HTTP listener has to speak TLS.
    pub(crate) fn needs_tls(self) -> bool {
        self == Self::Handshake
    }

    /// Starts all attackers.
    pub(crate) fn start(self, attackers: &mut JoinSet<()>, targets: &Targets) {
        let (count, to) = match self {
            Self::None => return,
            Self::Silent | Self::Header | Self::Body | Self::KeepAlive | Self::Metrics => {
                (HTTP_CONNECTIONS, targets.http)
            }
            Self::Handshake => (HANDSHAKES, targets.http),
            Self::IdleGrpc | Self::SilentGrpc => (GRPC_CONNECTIONS, targets.grpc),
            Self::Unread | Self::HalfSent => (UNREAD.0, targets.grpc),
            Self::Watches => (WATCHES.0, targets.grpc),
            Self::Reports => (REPORTS.0, targets.grpc),
            Self::Health => (HEALTH.0, targets.grpc),
        };
        let message = Bytes::from(match self {
            Self::Reports => report(),
            _ => big_call(),
        });
        for number in 0..count {
            let message = message.clone();
            attackers.spawn(async move {
                sleep(number / BURST.0 * BURST.1).await;
                loop {
                    // Ends with an error when the coordinator closes the connection.
                    let _ = self.hold(to, &message).await;
                    sleep(PAUSE).await;
                }
            });
        }
    }

    /// Opens a connection and holds it until it is closed.
    async fn hold(self, to: SocketAddr, message: &Bytes) -> Result<()> {
        let mut stream = TcpStream::connect(to).await?;
        match self {
            Self::None | Self::Silent | Self::SilentGrpc | Self::Handshake => {}
            Self::Header => {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await?;
                return drip(stream, Duration::from_secs(4)).await;
            }
            Self::Body => {
                let head = "PUT /v1/overrides/a HTTP/1.1\r\nhost: localhost\r\n\
                    content-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
                stream.write_all(head.as_bytes()).await?;
                return drip(stream, Duration::from_secs(1)).await;
            }
            Self::KeepAlive => stream.write_all(&get("/healthz")).await?,
            Self::Metrics => {
                let mut answer = vec![0; 64 << 10];
                loop {
                    stream.write_all(&get("/metrics")).await?;
                    if stream.read(&mut answer).await? == 0 {
                        return Ok(());
                    }
                }
            }
            Self::IdleGrpc => stream.write_all(HTTP2_HELLO).await?,
            Self::Unread => return calls(stream, message, true).await,
            Self::HalfSent => return calls(stream, message, false).await,
            Self::Watches => return watches(stream).await,
            Self::Reports => return reports(stream, message).await,
            Self::Health => return health(stream).await,
        }
        until_closed(&mut stream).await
    }
}

// === free functions ===

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

async fn until_closed(stream: &mut TcpStream) -> Result<()> {
    let mut bytes = [0; 256];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// Sends one byte per `interval` until the connection is closed.
async fn drip(mut stream: TcpStream, interval: Duration) -> Result<()> {
    loop {
        let closed = tokio::time::timeout(interval, until_closed(&mut stream)).await;
        if let Ok(closed) = closed {
            return closed;
        }
        stream.write_all(b"x").await?;
    }
}

/// A gRPC message for a thousand scopes with long ids, with its prefix.
fn big_call() -> Vec<u8> {
    let digits = ID_LEN - "tenant/".len();
    let ids = (0..1000).map(|i| format!("tenant/{i:0>digits$}"));
    let request: v1::RefreshRequest = refresh_request("attacker/a", ids);
    framed(&request)
}

/// A gRPC message with its prefix.
fn framed(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap_or_default();
    let mut bytes = vec![0];
    bytes.extend(length.to_be_bytes());
    bytes.extend(message.encode_to_vec());
    bytes
}

/// A report on buckets with long names.
fn report() -> Vec<u8> {
    let usage = |number: u32| BucketQuotaUsage {
        bucket_id: Some(rlqs::BucketId {
            bucket: [("tenant".to_owned(), format!("{number:0>TENANT_LEN$}"))].into(),
        }),
        num_requests_allowed: 1,
        ..BucketQuotaUsage::default()
    };
    framed(&rlqs::RateLimitQuotaUsageReports {
        domain: "edge".to_owned(),
        bucket_quota_usages: (0..BUCKETS).map(usage).collect(),
    })
}

/// Sends a report on each of as many streams as one connection may have, again and again, and reads no
/// assignments.
async fn reports(stream: TcpStream, message: &Bytes) -> Result<()> {
    let path = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    let bodies = (0..REPORTS.1).map(|_| RepeatedBody::new(message.clone()));
    hold_calls(stream, path, bodies).await
}

/// Watches the server's health on as many streams as one connection may have, and reads nothing.
async fn health(stream: TcpStream) -> Result<()> {
    // A request for the health of the whole server has no bytes.
    let message = Bytes::from_static(&[0; 5]);
    let bodies = (0..HEALTH.1).map(|_| SentBody::new(message.clone(), true));
    hold_calls(stream, "grpc.health.v1.Health/Watch", bodies).await
}

/// Calls `path` with each of `bodies`, and reads no answers.
async fn hold_calls<B>(stream: TcpStream, path: &str, bodies: impl Iterator<Item = B>) -> Result<()>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut streams = JoinSet::new();
    for body in bodies {
        let mut sender = sender.clone();
        let request = grpc(path, body)?;
        streams.spawn(async move {
            if sender.ready().await.is_ok()
                && let Ok(answer) = sender.send_request(request).await
            {
                let _never_read = answer;
                std::future::pending::<()>().await;
            }
        });
    }
    connection.await?;
    Ok(())
}

/// Opens as many streams for nudges as one connection may have, each for another client, and holds
/// them.
async fn watches(stream: TcpStream) -> Result<()> {
    let port = stream.local_addr()?.port();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let mut streams = JoinSet::new();
    for number in 0..WATCHES.1 {
        let mut sender = sender.clone();
        let watch = v1::WatchRequest {
            client_id: format!("attacker-{port}/{number}"),
            incarnation: 1,
            term: 0,
        };
        let body = SentBody::new(Bytes::from(framed(&watch)), true);
        let request = grpc(&format!("{LEASES}/Watch"), body)?;
        streams.spawn(async move {
            if sender.ready().await.is_ok()
                && let Ok(answer) = sender.send_request(request).await
            {
                let _held = answer;
                std::future::pending::<()>().await;
            }
        });
    }
    connection.await?;
    Ok(())
}

/// A call of the method at `path`.
fn grpc<B>(path: &str, body: B) -> Result<hyper::Request<B>> {
    let request = hyper::Request::post(format!("http://localhost/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    Ok(request.body(body)?)
}

/// Makes as many calls as one connection may have, and reads no answers. With `ends` false the requests
/// have no end.
async fn calls(stream: TcpStream, message: &Bytes, ends: bool) -> Result<()> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut streams = JoinSet::new();
    for _ in 0..UNREAD.1 {
        let (mut sender, message) = (sender.clone(), message.clone());
        streams.spawn(async move {
            loop {
                let request = grpc(
                    &format!("{LEASES}/Refresh"),
                    SentBody::new(message.clone(), ends),
                );
                let Ok(request) = request else { return };
                if sender.ready().await.is_err() {
                    return;
                }
                match sender.send_request(request).await {
                    // Refused, without a body: try again.
                    Ok(answer) if answer.headers().contains_key("grpc-status") => {}
                    Ok(answer) => {
                        let _never_read = answer;
                        std::future::pending::<()>().await;
                    }
                    Err(_) => {}
                }
                sleep(REFUSED_PAUSE).await;
            }
        });
    }
    connection.await?;
    Ok(())
}
