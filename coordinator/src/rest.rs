//! The door for people and Prometheus: health, metrics, and the books as JSON.
//!
//! The paths are in the README of this crate, and in the OpenAPI description that is made from the
//! routes below. Errors are `application/problem+json` (RFC 9457).

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::sync::Arc;

use axum::http::Uri;
use axum::{Router, middleware};
use serde_json::Value;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::count::{count, named};
use self::guard::{Gate, guard};
use self::problem::RestError;
use crate::config::Config;
use crate::driver::Handle;
use crate::metrics::Metrics;

mod count;
mod extract;
mod guard;
mod health;
mod openapi;
mod problem;
mod scopes;

/// What the handlers work with.
#[derive(Clone, Debug)]
struct App {
    driver: Handle,
    metrics: Metrics,
    openapi: Arc<Value>,
}

/// Serves the books behind `driver` to whom the newest `config` lets in.
pub fn router(driver: Handle, metrics: Metrics, config: watch::Receiver<Arc<Config>>) -> Router {
    let (router, api) = routes().split_for_parts();
    let gate = Gate {
        config,
        metrics: metrics.clone(),
    };
    let app = App {
        driver,
        metrics: metrics.clone(),
        openapi: Arc::new(openapi::document(api)),
    };
    router
        .fallback(async |uri: Uri| RestError::NoPath(uri.path().to_owned()))
        .method_not_allowed_fallback(async || RestError::NoMethod)
        .layer(middleware::from_fn_with_state(gate, guard))
        .layer(middleware::from_fn_with_state(metrics, count))
        .with_state(app)
}

/// All routes, each with what OpenAPI says of it.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(named(routes!(health::healthz)))
        .routes(named(routes!(health::readyz)))
        .routes(named(routes!(health::metrics)))
        .routes(named(routes!(openapi::get)))
        .routes(named(routes!(scopes::list)))
        .routes(named(routes!(scopes::get)))
}
