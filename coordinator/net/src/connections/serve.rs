//! Serves the calls of one connection.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::transport::server::TcpConnectInfo;

use super::activity::Activity;
use super::body::{RequestBody, ResponseBody};
use super::bounds::IDLE_TIMEOUT_MIN;
use super::call::{Call, CallRefusal};
use super::end::ConnectionEnd;
use super::table::{ConnectionEntry, ConnectionTable};
use crate::tls::{Listener, PeerNames};

/// Calls at a time on one HTTP/2 connection. An Envoy has a few; the rest waits there.
const STREAMS_MAX: u32 = 64;

/// After how much silence an HTTP/2 client is asked whether it lives, and how long it has to answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

// Or clients that live would be taken for idle.
const _: () = assert!(KEEPALIVE.0.as_secs() + KEEPALIVE.1.as_secs() < IDLE_TIMEOUT_MIN.as_secs());

/// The most bytes of the header of a gRPC call; the services read none of their own.
const HEADER_LEN_MAX: u32 = 16 << 10;

/// The most bytes of the header of an HTTP/1 request, and of what is read ahead of its body.
const BUFFER_LEN_MAX: usize = 64 << 10;

/// Bytes that HTTP/2 counts for a header field beside its name and value (RFC 9113, 6.5.2).
const HEADER_LINE_LEN: usize = 32;

/// Answers the calls of one connection.
#[derive(Clone, Debug)]
struct ConnectionService {
    router: Router,
    table: Arc<ConnectionTable>,
    activity: Arc<Activity>,
    addresses: TcpConnectInfo,
    names: PeerNames,
}

// === impl ConnectionService ===

impl ConnectionService {
    /// Answers one request.
    async fn answer(
        mut self,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let listener = self.table.limits.listener;
        let probe = is_probe(listener, request.uri().path());
        let bytes = len(request.headers()) + request.uri().path().len();
        let call = match Call::begin(&self.table, &self.activity, bytes, probe) {
            Ok(call) => call,
            Err(refusal) => return Ok(self.refuse(listener, refusal)),
        };
        let mut request = request.map(|body| RequestBody::new(body, Arc::clone(&call), listener));
        let end = ConnectionEnd::new(&self.activity);
        request.extensions_mut().insert(self.addresses);
        request.extensions_mut().insert(self.names);
        request.extensions_mut().insert(end);
        // A router is always ready.
        let Ok(response) = self.router.call(request).await;
        call.answered();
        let call = Some(call);
        Ok(response.map(|body| ResponseBody { body, call }))
    }

    fn refuse(&self, listener: Listener, refusal: CallRefusal) -> Response<ResponseBody> {
        self.table.metrics.count_refused_call(listener);
        tracing::warn!(
            listener = listener.name(),
            source = ?self.activity.source,
            %refusal,
            "listener: refused a call"
        );
        if refusal == CallRefusal::ProbesOnly {
            // Its next connection may find a place for calls.
            self.activity.finish();
        }
        let response = match listener {
            Listener::Grpc => Status::resource_exhausted(refusal.to_string()).into_http(),
            Listener::Http => unavailable(refusal),
        };
        response.map(|body| ResponseBody { body, call: None })
    }
}

// === free functions ===

/// Serves calls over `io`, a connection between `addresses` with a client that has shown a certificate
/// with `names`, until it ends.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (addresses, names): (TcpConnectInfo, PeerNames),
    entry: &ConnectionEntry,
    router: Router,
) {
    let callee = ConnectionService {
        router,
        table: Arc::clone(&entry.table),
        activity: Arc::clone(&entry.activity),
        addresses,
        names,
    };
    let service = service_fn(move |request| callee.clone().answer(request));
    let io = TokioIo::new(io);
    let result = match entry.table.limits.listener {
        Listener::Grpc => {
            let connection = http2_builder().serve_connection(io, service);
            until_closed(connection, &entry.activity).await
        }
        Listener::Http => {
            let connection = http1_builder().serve_connection(io, service);
            until_closed(connection, &entry.activity).await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "listener: connection failed");
    }
}

/// Serves `connection` until it ends, or until its client has left after being asked to.
async fn until_closed<C: GracefulConnection>(
    connection: C,
    activity: &Activity,
) -> Result<(), C::Error> {
    let mut served = pin!(connection);
    tokio::select! {
        result = served.as_mut() => result,
        () = activity.closing() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    }
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .max_header_list_size(HEADER_LEN_MAX);
    builder
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The sweep has the deadlines: this one would count the time between two requests as well.
    builder
        .header_read_timeout(None)
        .max_buf_size(BUFFER_LEN_MAX);
    builder
}

/// Whether a request for `path` is a health check.
fn is_probe(listener: Listener, path: &str) -> bool {
    match listener {
        Listener::Grpc => path == "/grpc.health.v1.Health/Check",
        Listener::Http => matches!(path, "/healthz" | "/readyz"),
    }
}

fn len(headers: &HeaderMap) -> usize {
    let lines = headers.iter();
    let lines = lines.map(|(name, value)| name.as_str().len() + value.len() + HEADER_LINE_LEN);
    lines.sum()
}

/// The refusal of a request of the admin API.
fn unavailable(refusal: CallRefusal) -> Response<Body> {
    let text = serde_json::json!({
        "title": "Service Unavailable",
        "status": 503,
        "detail": refusal.to_string(),
    });
    let mut response = Response::new(Body::from(text.to_string()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    let problem = HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, problem);
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
