//! The cheapest possible service for Envoy's global rate limiter: it answers OK to every call.
//!
//! The benchmark measures Envoy's cost of the call; a real service costs more on top.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn};

/// A gRPC frame with `RateLimitResponse { overall_code: OK }`.
const OK_FRAME: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];

/// A running service. It ends when it is dropped.
pub(crate) struct RateLimitService {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

// === impl RateLimitService ===

impl RateLimitService {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(serve(stream));
            }
        });
        Ok(Self { address, accepting })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RateLimitService {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| async {
        let _ = request.into_body().collect().await;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let body = Full::new(Bytes::from_static(OK_FRAME))
            .with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
        let mut response = Response::new(body);
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", grpc);
        Ok::<_, Infallible>(response)
    });
    let server = http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}
