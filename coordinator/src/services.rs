//! Services on the listeners, until the shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::sync::{mpsc, watch};
use tollgate_admin::PeerApi;
use tollgate_apis::doorman;
use tollgate_apis::grpc::{CallerCheck, ForwardApi, Service, StrictDecoding};
use tollgate_apis::health::HealthApi;
use tollgate_apis::rlqs;
use tollgate_apis::rls;
use tollgate_config::Config;
use tollgate_config::reload::Reload;
use tollgate_leases::router::Router;
use tollgate_net::clock::Clock;
use tollgate_net::connections::Acceptor;
use tollgate_net::wire::{
    CapacityServer, ForwardServiceServer, LeaseServiceServer, PeerServiceServer,
    RateLimitQuotaServiceServer, RateLimitServiceServer,
};
use tollgate_observe::trace;
use tollgate_proto::timeout::grpc_timeout;
use tonic::Status;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tracing::Instrument as _;

use super::ServerError;
use super::metrics::Metrics;

/// Time that a call may take before it fails.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Services of the gRPC listener.
pub(super) struct Services {
    pub(super) lease: StrictDecoding<LeaseServiceServer<Service>>,
    /// For the other nodes of a cluster, as is `peer`.
    pub(super) forward: Option<StrictDecoding<ForwardServiceServer<ForwardApi>>>,
    pub(super) health: StrictDecoding<HealthServer<HealthApi>>,
    pub(super) doorman: StrictDecoding<CapacityServer<doorman::Service>>,
    pub(super) rls: StrictDecoding<RateLimitServiceServer<rls::Service>>,
    pub(super) rlqs: StrictDecoding<RateLimitQuotaServiceServer<rlqs::Service>>,
    pub(super) peer: Option<StrictDecoding<PeerServiceServer<PeerApi>>>,
}

// === impl Services ===

impl Services {
    /// All services but the reads of other nodes, which answer as the admin API does.
    pub(super) fn new(
        router: &Router,
        clock: Clock,
        metrics: &Metrics,
        config: &watch::Receiver<Arc<Config>>,
        health: HealthServer<HealthApi>,
    ) -> Self {
        let (leases, doorman) = (metrics.leases.clone(), metrics.doorman.clone());
        let callers = CallerCheck::new(&config.borrow().tls.callers);
        let forward = ForwardApi::new(router.clone(), clock, leases.clone(), callers.clone());
        let [doorman_config, rls_config, rlqs_config] = [(); 3].map(|()| config.clone());
        let doorman = doorman::Service::new(router.clone(), clock, doorman, doorman_config);
        let rls = rls::Service::new(router.clone(), clock, metrics.rls.clone(), rls_config);
        let rlqs = metrics.rlqs.clone();
        let rlqs = rlqs::Service::new(router.clone(), clock, rlqs, rlqs_config);
        Self {
            lease: StrictDecoding(Service::new(router.clone(), clock, leases, callers)),
            forward: router.me.is_some().then(|| StrictDecoding(forward)),
            health: StrictDecoding(health),
            doorman: StrictDecoding(doorman),
            rls: StrictDecoding(rls),
            rlqs: StrictDecoding(rlqs),
            peer: None,
        }
    }
}

// === free functions ===

/// Serves `services` on `connections` until the shutdown.
pub(super) async fn serve_grpc(
    connections: Acceptor,
    services: Services,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    let mut routes = Routes::new(services.lease)
        .add_service(services.health)
        .add_service(services.doorman)
        .add_service(services.rls)
        .add_service(services.rlqs);
    if let Some(forward) = services.forward {
        routes = routes.add_service(forward);
    }
    if let Some(peer) = services.peer {
        routes = routes.add_service(peer);
    }
    let router = routes.into_axum_router().layer(middleware::from_fn(call));
    connections
        .serve(router.with_state(()), until(stopped))
        .await;
    Ok("gRPC server")
}

/// Answers a gRPC call in a span of its own and in time.
async fn call(request: Request, next: Next) -> Response {
    let span = trace::grpc(request.uri().path());
    let timeout = request.headers().get("grpc-timeout");
    let timeout = timeout.and_then(|timeout| grpc_timeout(timeout.as_bytes()));
    let timeout = timeout.unwrap_or(CALL_TIMEOUT).min(CALL_TIMEOUT);
    let answer = tokio::time::timeout(timeout, next.run(request));
    let answer = answer.instrument(span).await;
    answer.unwrap_or_else(|_| {
        let text = format!("the call took longer than {timeout:?}");
        Status::deadline_exceeded(text).into_http()
    })
}

/// Serves `router` on `connections` until the shutdown.
pub(super) async fn serve_http(
    connections: Acceptor,
    router: axum::Router,
    stopped: watch::Receiver<()>,
) -> Result<&'static str, ServerError> {
    connections
        .serve(router.with_state(()), until(stopped))
        .await;
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
