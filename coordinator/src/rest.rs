//! The door for people and Prometheus: health, metrics, and the books as JSON.
//!
//! The paths are in the README of this crate, and in the OpenAPI description that is made from the
//! routes below. Errors are `application/problem+json` (RFC 9457).

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::sync::{Arc, Mutex};

use axum::http::Uri;
use axum::{Router, middleware};
use serde_json::Value;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::count::{count, named};
use self::guard::{Gate, guard};
use self::problem::RestError;
use self::rate::RefreshRate;
use crate::clock::Clock;
use crate::config::Config;
use crate::driver::Handle;
use crate::metrics::Metrics;
use crate::survey::{Named, Survey};
use crate::trace;

mod count;
mod extract;
mod guard;
mod health;
mod openapi;
mod page;
mod problem;
mod rate;
mod scopes;
mod status;

/// What the handlers work with.
#[derive(Clone, Debug)]
struct App {
    driver: Handle,
    metrics: Metrics,
    clock: Clock,
    named: Named,
    rate: Arc<Mutex<RefreshRate>>,
    /// One survey at a time: the driver has others to answer.
    surveys: Arc<tokio::sync::Mutex<()>>,
    openapi: Arc<Value>,
}

// === impl App ===

impl App {
    /// Looks at all books; see [`Survey::of`].
    async fn survey(&self, busiest_max: usize) -> Result<Survey, RestError> {
        let _one = self.surveys.lock().await;
        let survey = Survey::of(&self.driver, self.named.clone(), busiest_max);
        Ok(survey.await?)
    }
}

/// What the API is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The way to the books.
    pub driver: Handle,
    /// What is counted.
    pub metrics: Metrics,
    /// When it is.
    pub clock: Clock,
    /// The scopes whose figures are told one by one.
    pub named: Named,
    /// The configuration, newest first: who may enter.
    pub config: watch::Receiver<Arc<Config>>,
}

/// Serves what the doors to the coordinator are for.
pub fn router(parts: Parts) -> Router {
    let Parts {
        driver,
        metrics,
        clock,
        named,
        config,
    } = parts;
    let (router, api) = routes().split_for_parts();
    let gate = Gate {
        config,
        metrics: metrics.clone(),
    };
    let app = App {
        driver,
        metrics: metrics.clone(),
        clock,
        named,
        rate: Arc::default(),
        surveys: Arc::default(),
        openapi: Arc::new(openapi::document(api)),
    };
    router
        .fallback(async |uri: Uri| RestError::NoPath(uri.path().to_owned()))
        .method_not_allowed_fallback(async || RestError::NoMethod)
        .layer(middleware::from_fn_with_state(gate, guard))
        .layer(middleware::from_fn_with_state(metrics, count))
        .layer(middleware::from_fn(trace::http))
        .with_state(app)
}

/// All routes, each with what OpenAPI says of it.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(named(routes!(health::healthz)))
        .routes(named(routes!(health::readyz)))
        .routes(named(routes!(health::metrics)))
        .routes(named(routes!(openapi::get)))
        .routes(named(routes!(page::get)))
        .routes(named(routes!(status::get)))
        .routes(named(routes!(scopes::list)))
        .routes(named(routes!(scopes::get)))
}
