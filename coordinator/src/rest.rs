//! The door for people and Prometheus: health, metrics, and the books as JSON.
//!
//! The paths are in the README of this crate. Errors are `application/problem+json` (RFC 9457).

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::driver::{DriverError, Handle};
use crate::metrics::Metrics;
use crate::view::{ScopeDetail, ScopePage};

/// Scopes on a page if the request does not say.
const SCOPES_DEFAULT: usize = 100;

/// The most scopes on a page, and clients of a scope: views are made inside the driver, which
/// answers no client meanwhile.
const ENTRIES_MAX: usize = 1000;

#[derive(Clone, Debug)]
struct App {
    driver: Handle,
    metrics: Metrics,
}

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
enum RestError {
    #[error("nothing is served at {0}")]
    NoPath(String),
    #[error("no client has or wants a lease of {0}")]
    NoScope(String),
    #[error("{0}")]
    Query(String),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the metrics cannot be written")]
    Metrics,
}

#[derive(Debug, Serialize)]
struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopesQuery {
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeQuery {
    clients: Option<usize>,
}

/// Serves the books behind `driver`.
pub fn router(driver: Handle, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/v1/scopes", get(scopes))
        .route("/v1/scopes/{*id}", get(scope))
        .fallback(async |uri: Uri| RestError::NoPath(uri.path().to_owned()))
        .with_state(App { driver, metrics })
}

async fn readyz(State(app): State<App>) -> Result<&'static str, RestError> {
    // The cheapest question: a probe comes often, and sums would walk all books.
    app.driver.scopes(String::new(), 1).await?;
    Ok("ready\n")
}

async fn metrics_text(State(app): State<App>) -> Result<Response, RestError> {
    let totals = app.driver.totals().await?;
    let text = app
        .metrics
        .encode(&totals)
        .map_err(|_| RestError::Metrics)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn scopes(
    State(app): State<App>,
    query: Result<Query<ScopesQuery>, QueryRejection>,
) -> Result<Json<ScopePage>, RestError> {
    let Query(query) = query?;
    let limit = entries("limit", query.limit, SCOPES_DEFAULT)?;
    let after = query.after.unwrap_or_default();
    Ok(Json(app.driver.scopes(after, limit).await?))
}

async fn scope(
    State(app): State<App>,
    Path(id): Path<String>,
    query: Result<Query<ScopeQuery>, QueryRejection>,
) -> Result<Json<ScopeDetail>, RestError> {
    let Query(query) = query?;
    let clients = entries("clients", query.clients, ENTRIES_MAX)?;
    let detail = app.driver.scope(id.clone(), clients).await?;
    detail.map(Json).ok_or(RestError::NoScope(id))
}

fn entries(name: &str, asked: Option<usize>, default: usize) -> Result<usize, RestError> {
    let entries = asked.unwrap_or(default);
    if !(1..=ENTRIES_MAX).contains(&entries) {
        let text = format!("{name}: {entries} is not between 1 and {ENTRIES_MAX}");
        return Err(RestError::Query(text));
    }
    Ok(entries)
}

// === impl RestError ===

impl From<QueryRejection> for RestError {
    fn from(rejection: QueryRejection) -> Self {
        Self::Query(rejection.body_text())
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NoPath(_) | Self::NoScope(_) => StatusCode::NOT_FOUND,
            Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Driver(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Metrics => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Problem {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: self.to_string(),
        };
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, kind, Json(problem)).into_response()
    }
}
