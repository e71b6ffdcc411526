//! Admin API for operators and Prometheus: health, metrics, leases and configuration.
//!
//! The paths are in docs/api.md, and in the OpenAPI description that is made from the
//! routes below. Errors are `application/problem+json` (RFC 9457).

#![forbid(unsafe_code)]
#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::Uri;
use axum::{Router, middleware};
use serde_json::Value;
use tokio::sync::watch;
use tollgate_config::Config;
use tollgate_config::writer;
use tollgate_leases::metrics::LeaseMetrics;
use tollgate_leases::parent::Parent;
use tollgate_leases::shards::Shards;
use tollgate_net::clock::Clock;
use tollgate_observe::metrics::Exporter;
use tollgate_observe::trace;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::count::count;
use self::guard::{Gate, guard};
use self::problem::RestError;
use self::rate::RefreshRate;
use crate::history::History;
use crate::stats::{LeaseStats, NamedScopes, ResourceSelection};

mod body;
mod clients;
mod count;
mod extract;
mod guard;
mod health;
pub mod history;
mod lease_view;
mod limits;
mod merge;
mod metrics;
mod openapi;
mod page;
mod peers;
mod problem;
mod quotas;
mod rate;
mod revision;
mod scopes;
mod stats;
mod status;
mod stored;
pub mod view;

pub use self::metrics::{AdminMetrics, AuthFault};
pub use self::page::STYLE;
pub use self::peers::{PeerApi, Peers};

/// State of the API that its handlers share.
#[derive(Clone, Debug)]
pub struct App {
    parts: Parts,
    gate: Gate,
    rate: RefreshRate,
    /// One stats scan at a time: the driver has clients to answer.
    scans: Arc<tokio::sync::Mutex<()>>,
    openapi: Arc<Value>,
}

// === impl App ===

impl App {
    /// Makes the state of `parts`.
    pub fn new(parts: Parts) -> Self {
        Self {
            gate: Gate {
                config: parts.config.clone(),
                metrics: parts.metrics.clone(),
            },
            rate: RefreshRate::of(&parts.leases, parts.clock),
            parts,
            scans: Arc::default(),
            openapi: Arc::default(),
        }
    }

    /// Scans all lease tables; see [`LeaseStats::of`].
    async fn lease_stats(
        &self,
        selection: ResourceSelection,
        first_max: usize,
    ) -> Result<LeaseStats, RestError> {
        let _one = self.scans.lock().await;
        let named = NamedScopes::of(&self.parts.writer.catalog());
        let stats = LeaseStats::of(&self.parts.shards, named, selection, first_max);
        Ok(stats.await?)
    }
}

/// Parts that the API needs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Shards of this node.
    pub shards: Shards,
    /// History of these shards.
    pub history: History,
    /// The other nodes of the cluster, if there is one.
    pub peers: Option<Peers>,
    /// The coordinator above, if there is one.
    pub parent: Option<Parent>,
    /// Metrics of the API.
    pub metrics: AdminMetrics,
    /// Metrics of leases.
    pub leases: LeaseMetrics,
    /// All metrics.
    pub exporter: Exporter,
    /// Clock of the coordinator.
    pub clock: Clock,
    /// Handle of the catalog writer.
    pub writer: writer::CatalogHandle,
    /// Newest configuration, which has the tokens.
    pub config: watch::Receiver<Arc<Config>>,
}

/// Serves the API of `app`.
pub fn router(mut app: App) -> Router {
    let (router, api) = routes().split_for_parts();
    let mut document = openapi::document(api);
    let router = stored::add(router, &mut document);
    app.openapi = Arc::new(document);
    let gate = app.gate.clone();
    let metrics = gate.metrics.clone();
    router
        .fallback(async |uri: Uri| RestError::NoPath(uri.path().to_owned()))
        .method_not_allowed_fallback(async || RestError::NoMethod)
        .layer(DefaultBodyLimit::max(body::BODY_LEN_MAX))
        .layer(middleware::from_fn_with_state(gate, guard))
        .layer(middleware::from_fn(page::error::for_people))
        .layer(middleware::from_fn_with_state(metrics, count))
        .layer(middleware::from_fn(trace::http))
        .with_state(app)
}

/// Returns the routes of everything that is not stored, each with its OpenAPI description.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::get))
        .routes(routes!(page::overview::get))
        .routes(routes!(page::scope::get))
        .routes(routes!(page::group::get))
        .routes(routes!(status::get))
        .routes(routes!(history::route::get))
        .routes(routes!(scopes::list))
        .routes(routes!(scopes::get))
        .routes(routes!(clients::list))
        .routes(routes!(clients::get))
        .routes(routes!(clients::drain, clients::undrain))
        .routes(routes!(quotas::list))
        .routes(routes!(quotas::get, quotas::change))
        .routes(routes!(limits::list))
        .routes(routes!(limits::get))
}
