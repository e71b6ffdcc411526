//! An upstream that writes down what reached it, in order.
//!
//! It speaks HTTP/2, so that each worker of an Envoy has one connection to it: what a worker lets go first
//! arrives first, which several connections would not keep.

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

/// The most requests of a connection that are answered at a time; with more an Envoy would open another.
const STREAMS_MAX: u32 = 10_000;

type Entries = Arc<Mutex<Vec<Entry>>>;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whose it was.
    pub tenant: String,
    /// Its path.
    pub path: String,
    /// When it came.
    pub at: Instant,
}

/// A running upstream that answers 200. It ends when it is dropped.
#[derive(Debug)]
pub struct Roll {
    address: SocketAddr,
    entries: Entries,
    accepting: JoinHandle<()>,
}

// === impl Roll ===

impl Roll {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let entries = Entries::default();
        let accepting = spawn(accept(listener, entries.clone()));
        Ok(Self {
            address,
            entries,
            accepting,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has arrived so far.
    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.entries.lock();
        entries.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Roll {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, entries: Entries) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn(serve(stream, entries.clone()));
    }
}

async fn serve(stream: TcpStream, entries: Entries) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        let tenant = request.headers().get(TENANT_HEADER);
        let tenant = tenant.and_then(|value| value.to_str().ok());
        let entry = Entry {
            tenant: tenant.unwrap_or_default().to_owned(),
            path: request.uri().path().to_owned(),
            at: Instant::now(),
        };
        let all = entries.lock();
        all.unwrap_or_else(PoisonError::into_inner).push(entry);
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok\n")))) }
    });
    let _ = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
