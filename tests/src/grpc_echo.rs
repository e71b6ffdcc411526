//! A gRPC upstream that sends every message back, for any method, unary or streaming.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn};

/// A running upstream. It ends when it is dropped.
#[derive(Debug)]
pub struct GrpcEcho {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

// === impl GrpcEcho ===

impl GrpcEcho {
    /// Starts an upstream on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = spawn(accept(listener));
        Ok(Self { address, accepting })
    }

    /// Address of its listener, for HTTP/2 without TLS.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for GrpcEcho {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn(serve(stream));
    }
}

/// Serves one connection until Envoy closes it.
async fn serve(stream: TcpStream) {
    let echo = service_fn(|request: Request<Incoming>| async {
        let mut ok = HeaderMap::new();
        ok.insert("grpc-status", HeaderValue::from_static("0"));
        let body = request.into_body().with_trailers(async { Some(Ok(ok)) });
        let mut response = Response::new(body);
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok::<_, Infallible>(response)
    });
    let _ = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), echo)
        .await;
}
