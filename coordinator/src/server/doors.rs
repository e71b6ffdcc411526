//! What is served behind the doors, and for how long.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::ServerError;
use crate::connections::Incoming;
use crate::doorman::{self, CapacityServer};
use crate::grpc::{LeaseServiceServer, Service, StrictDecoding};
use crate::reload::Reload;
use crate::trace;

/// Calls at a time on one connection. An Envoy has a few; the rest waits in HTTP/2.
const CALLS_PER_CONNECTION: usize = 64;

/// How long a call may take before its client hears that it failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// After how much silence a connection is asked whether it lives, and how long it has to say so.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The most bytes of headers in a call; the service reads none of its own.
const HEADERS_LEN_MAX: u32 = 16 << 10;

/// What is served at the gRPC door.
pub(super) struct Services {
    pub(super) lease: StrictDecoding<LeaseServiceServer<Service>>,
    pub(super) health: StrictDecoding<HealthServer<HealthService>>,
    pub(super) doorman: StrictDecoding<CapacityServer<doorman::Service>>,
}

// === free functions ===

/// Serves `services` on `connections` until the shutdown.
pub(super) async fn serve_grpc(
    connections: Incoming,
    services: Services,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
        .max_concurrent_streams(CALLS_PER_CONNECTION as u32)
        .timeout(CALL_TIMEOUT)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .http2_max_header_list_size(HEADERS_LEN_MAX)
        .trace_fn(|call| trace::grpc(call.uri().path()))
        .add_service(services.lease)
        .add_service(services.health)
        .add_service(services.doorman)
        .serve_with_incoming_shutdown(connections, until(stopped))
        .await?;
    Ok("gRPC server")
}

/// Serves `router` on `connections` until the shutdown.
pub(super) async fn serve_http(
    connections: Incoming,
    router: axum::Router,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    axum::serve(connections, router)
        .with_graceful_shutdown(until(stopped))
        .await
        .map_err(ServerError::Http)?;
    Ok("HTTP server")
}

/// Follows the configuration file until the shutdown.
pub(super) async fn follow(
    reload: Reload,
    asked: mpsc::Receiver<()>,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    tokio::select! {
        () = reload.run(asked) => {}
        () = until(stopped) => {}
    }
    Ok("reload")
}

/// Resolves when the other end is dropped.
pub(super) async fn until(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}
