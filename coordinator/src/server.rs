//! Puts the doors and the driver together, and takes them apart in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_core::lease::Epoch;
use tollgate_core::node::Start;

use crate::clock::Clock;
use crate::config::{Config, Listen};
use crate::connections::Acceptor;
use crate::driver::{Driver, Handle};
use crate::grpc::Service;
use crate::metrics::Metrics;
use crate::survey::Named;
use crate::{rest, trace};

/// Connections of Envoys at a time: far more than one coordinator serves, and below the usual limit
/// of file descriptors for a service.
const GRPC_CONNECTIONS_MAX: usize = 8192;

/// Connections of people and Prometheus at a time.
const HTTP_CONNECTIONS_MAX: usize = 512;

/// Calls at a time on one connection. An Envoy has a few; the rest waits in HTTP/2.
const CALLS_PER_CONNECTION: usize = 64;

/// How long a call may take before its client hears that it failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// After how much silence a connection is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The most bytes of headers in a call; the service reads none of its own.
const HEADERS_LEN_MAX: u32 = 16 << 10;

/// How long calls have to end after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Open sockets, not yet served.
#[derive(Debug)]
pub struct Listeners {
    grpc: TcpListener,
    http: TcpListener,
}

/// Why the coordinator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// The gRPC server failed.
    #[error("the gRPC server failed: {0}")]
    Grpc(#[from] tonic::transport::Error),
    /// The HTTP server failed.
    #[error("the HTTP server failed: {0}")]
    Http(io::Error),
    /// A part ended that never should.
    #[error("the {0} ended by itself")]
    Ended(&'static str),
    /// A part panicked.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

// === impl Listeners ===

impl Listeners {
    /// Listens on both addresses.
    ///
    /// # Errors
    /// If one of them cannot be listened on.
    pub async fn bind(listen: Listen) -> Result<Self, ServerError> {
        Ok(Self {
            grpc: bind(listen.grpc).await?,
            http: bind(listen.http).await?,
        })
    }

    /// The addresses, with the ports that the system chose where the configuration says 0.
    ///
    /// # Errors
    /// If the system does not know them.
    pub fn addresses(&self) -> io::Result<Listen> {
        Ok(Listen {
            grpc: self.grpc.local_addr()?,
            http: self.http.local_addr()?,
        })
    }
}

// === free functions ===

async fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|cause| ServerError::Bind { address, cause })
}

/// Serves `config` on `listeners` until `shutdown` resolves; then stops accepting, lets calls end
/// within five seconds, and returns.
///
/// # Errors
/// If a part fails or ends before `shutdown`.
pub async fn serve(
    listeners: Listeners,
    config: Config,
    epoch: Epoch,
    start: Start,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let clock = Clock::start();
    let metrics = Metrics::new(epoch, config.limits.count());
    if config.admin.tokens.is_empty() {
        tracing::warn!("no admin.tokens: whoever reaches the HTTP port may read and write");
    }
    let (_admin, admin) = watch::channel(Arc::new(config.admin.clone()));
    let (driver, handle) = Driver::new(config, epoch, start, clock, metrics.clone());
    let (stop, stopped) = watch::channel(());
    let mut parts = JoinSet::new();
    parts.spawn(async move {
        driver.run().await;
        Ok("driver")
    });
    let service = (handle.clone(), clock, metrics.clone());
    parts.spawn(serve_grpc(listeners.grpc, service, stopped.clone()));
    let router = rest::router(rest::Parts {
        driver: handle,
        metrics,
        clock,
        named: Named::default(),
        admin,
    });
    parts.spawn(serve_http(listeners.http, router, stopped));

    tokio::select! {
        () = shutdown => {}
        Some(ended) = parts.join_next() => {
            return Err(ServerError::Ended(ended??));
        }
    }
    tracing::info!("shutting down");
    drop(stop);
    let all = async {
        while let Some(ended) = parts.join_next().await {
            ended??;
        }
        Ok(())
    };
    tokio::time::timeout(SHUTDOWN_GRACE, all)
        .await
        .unwrap_or_else(|_| {
            tracing::warn!("some calls did not end in time");
            Ok(())
        })
}

async fn serve_grpc(
    listener: TcpListener,
    (driver, clock, metrics): (Handle, Clock, Metrics),
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    let connections = Acceptor::new(listener, GRPC_CONNECTIONS_MAX).into_stream();
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
        .max_concurrent_streams(CALLS_PER_CONNECTION as u32)
        .timeout(CALL_TIMEOUT)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .http2_max_header_list_size(HEADERS_LEN_MAX)
        .trace_fn(|call| trace::grpc(call.uri().path()))
        .add_service(Service::new(driver, clock, metrics))
        .serve_with_incoming_shutdown(connections, until(stopped))
        .await?;
    Ok("gRPC server")
}

async fn serve_http(
    listener: TcpListener,
    router: axum::Router,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    let connections = Acceptor::new(listener, HTTP_CONNECTIONS_MAX);
    axum::serve(connections, router)
        .with_graceful_shutdown(until(stopped))
        .await
        .map_err(ServerError::Http)?;
    Ok("HTTP server")
}

/// Resolves when the other end is dropped.
async fn until(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}
