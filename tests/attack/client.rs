//! Good clients, which record their latencies and failures.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::v1;
use tonic::transport::{Channel, Endpoint};

use crate::tls::TlsTrust;

/// Pause between two attempts of a client.
const INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of an attempt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest gap between two successes that counts as locked out.
const GAP: Duration = Duration::from_secs(1);

/// A coordinator's listeners.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Trust in the HTTP listener's certificate, if it speaks TLS.
    pub(crate) trust: Option<TlsTrust>,
}

/// The running good clients.
pub(crate) struct GoodClients {
    stop: watch::Sender<()>,
    clients: [JoinHandle<ServiceRecord>; 3],
}

/// Service that one client got.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceRecord {
    /// Latencies of the successful attempts, in milliseconds.
    pub(crate) latencies_ms: Vec<f64>,
    /// Number of failed attempts.
    pub(crate) failed: usize,
    /// Sum of the gaps of more than a second without a success.
    pub(crate) locked_out: Duration,
}

// === impl GoodClients ===

impl GoodClients {
    /// Starts a health probe and a lease client that open a connection each time, and a lease client that
    /// keeps its connection.
    pub(crate) fn start(targets: &Targets) -> Self {
        let (stop, stopped) = watch::channel(());
        let (probe, newcomer) = (targets.clone(), targets.grpc);
        let shared = endpoint(targets.grpc).map(|endpoint| endpoint.connect_lazy());
        let clients = [
            tokio::spawn(repeat(stopped.clone(), async move || {
                probe_health(&probe).await
            })),
            tokio::spawn(repeat(stopped.clone(), async move || {
                refresh(endpoint(newcomer)?.connect().await?).await
            })),
            tokio::spawn(repeat(stopped, async move || {
                refresh(
                    shared
                        .as_ref()
                        .ok()
                        .context("the connection that is shared")?
                        .clone(),
                )
                .await
            })),
        ];
        Self { stop, clients }
    }

    /// Stops the clients, and returns the service that each got.
    pub(crate) async fn stop(self) -> Vec<ServiceRecord> {
        drop(self.stop);
        let mut served = Vec::new();
        for client in self.clients {
            served.push(client.await.unwrap_or_default());
        }
        served
    }
}

// === free functions ===

/// Creates a request for `scopes` that wants one request per second of each.
pub(crate) fn refresh_request(
    client: &str,
    scopes: impl Iterator<Item = String>,
) -> v1::RefreshRequest {
    let scope = |scope| v1::ScopeRequest {
        scope,
        units: vec![v1::UnitRequest {
            unit: v1::Unit::Requests.into(),
            sequence: 1,
            wants: 1.0,
            ..v1::UnitRequest::default()
        }],
    };
    v1::RefreshRequest {
        client_id: client.to_owned(),
        incarnation: 1,
        term: 0,
        scopes: scopes.map(scope).collect(),
    }
}

async fn repeat(
    mut stopped: watch::Receiver<()>,
    attempt: impl AsyncFn() -> Result<()>,
) -> ServiceRecord {
    let mut served = ServiceRecord::default();
    let mut last = Instant::now();
    loop {
        let begin = Instant::now();
        let result = tokio::select! {
            result = timeout(TIMEOUT, attempt()) => result,
            _ = stopped.changed() => break,
        };
        if matches!(result, Ok(Ok(()))) {
            served
                .latencies_ms
                .push(begin.elapsed().as_secs_f64() * 1e3);
            served.note_gap(last.elapsed());
            last = Instant::now();
        } else {
            served.failed += 1;
        }
        sleep(INTERVAL).await;
    }
    served.note_gap(last.elapsed());
    served
}

// === impl ServiceRecord ===

impl ServiceRecord {
    fn note_gap(&mut self, gap: Duration) {
        if gap > GAP {
            self.locked_out += gap;
        }
    }
}

// === free functions of clients ===

fn endpoint(to: SocketAddr) -> Result<Endpoint> {
    Ok(Endpoint::try_from(format!("http://{to}"))?)
}

async fn refresh(channel: Channel) -> Result<()> {
    let request = refresh_request("good/a", std::iter::once("tenant/good".to_owned()));
    LeaseServiceClient::new(channel).refresh(request).await?;
    Ok(())
}

async fn probe_health(targets: &Targets) -> Result<()> {
    let stream = TcpStream::connect(targets.http).await?;
    match &targets.trust {
        Some(trust) => get_health(trust.connect(stream).await?).await,
        None => get_health(stream).await,
    }
}

async fn get_health(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    ensure!(&head == b"HTTP/1.1 200", "refused");
    Ok(())
}
