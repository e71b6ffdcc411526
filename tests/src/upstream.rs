//! An upstream that answers 200 to everything and counts its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn};

use crate::filter::TENANT_HEADER;

/// Numbers of requests by tenant; the empty name counts those without a tenant.
type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// A running upstream. It ends when it is dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    counts: Counts,
    accepting: JoinHandle<()>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts an upstream on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counts = Counts::default();
        let accepting = spawn(accept(listener, counts.clone()));
        Ok(Self {
            address,
            counts,
            accepting,
        })
    }

    /// Address of its listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests of a tenant that have arrived.
    pub fn arrived(&self, tenant: &str) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(tenant).copied().unwrap_or(0)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, counts: Counts) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn(serve(stream, counts.clone()));
    }
}

/// Serves one connection until Envoy closes it.
async fn serve(stream: TcpStream, counts: Counts) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        count(&counts, request.headers().get(TENANT_HEADER));
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok\n")))) }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

fn count(counts: &Counts, tenant: Option<&HeaderValue>) {
    let tenant = tenant.and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    match counts.get_mut(tenant) {
        Some(count) => *count += 1,
        None => {
            counts.insert(tenant.to_owned(), 1);
        }
    }
}
