//! An upstream that records its requests in order.
//!
//! It speaks HTTP/2, so that each worker of an Envoy has one connection to it and requests arrive in the
//! order in which a worker releases them. Several connections would not keep that order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn};
use tokio::time::Instant;

use crate::filter::TENANT_HEADER;

/// Most concurrent streams of a connection; with fewer, an Envoy would open another connection.
const STREAMS_MAX: u32 = 10_000;

type RecordedRequests = Arc<Mutex<Vec<RecordedRequest>>>;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The tenant.
    pub tenant: String,
    /// The mark of a rule that would have refused it, if there is one.
    pub mark: Option<String>,
    /// The path.
    pub path: String,
    /// Time of arrival.
    pub at: Instant,
}

/// A running upstream that answers 200. It ends when it is dropped.
#[derive(Debug)]
pub struct RecordingUpstream {
    address: SocketAddr,
    requests: RecordedRequests,
    accepting: JoinHandle<()>,
}

// === impl RecordingUpstream ===

impl RecordingUpstream {
    /// Starts an upstream on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = RecordedRequests::default();
        let accepting = spawn(accept(listener, requests.clone()));
        Ok(Self {
            address,
            requests,
            accepting,
        })
    }

    /// Address of its listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that have arrived so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RecordingUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, requests: RecordedRequests) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn(serve(stream, requests.clone()));
    }
}

async fn serve(stream: TcpStream, requests: RecordedRequests) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        let header = |name: &str| {
            let value = request.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let request = RecordedRequest {
            tenant: header(TENANT_HEADER).unwrap_or_default(),
            mark: header("tollgate-mark"),
            path: request.uri().path().to_owned(),
            at: Instant::now(),
        };
        let all = requests.lock();
        all.unwrap_or_else(PoisonError::into_inner).push(request);
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok\n")))) }
    });
    let _ = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
