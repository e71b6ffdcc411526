//! Health and metrics, for machines.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::openapi::{ReadLeases, Unavailable};
use super::problem::RestError;

/// Whether the process lives.
#[utoipa::path(
    get, path = "/healthz", operation_id = "getHealth", tag = "health", security(()),
    responses((status = 200, description = "It does", body = str, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the coordinator can answer.
#[utoipa::path(
    get, path = "/readyz", operation_id = "getReadiness", tag = "health", security(()),
    responses(
        (status = 200, description = "It can", body = str, content_type = "text/plain"),
        Unavailable
    )
)]
pub(super) async fn readyz(State(app): State<App>) -> Result<&'static str, RestError> {
    // The cheapest request: a probe comes often, and sums would scan all lease tables.
    app.parts.shards.scopes("", 1).await?;
    Ok("ready\n")
}

/// The metrics, in the OpenMetrics text format.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics", tag = "health",
    responses(
        (
            status = 200, description = "All of them", body = str,
            content_type = "application/openmetrics-text"
        ),
        ReadLeases
    )
)]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, RestError> {
    let stats = app.lease_stats(0).await?;
    let text = app
        .parts
        .exporter
        .encode(|registry| stats.register(registry));
    let text = text.map_err(|_| RestError::Text("the metrics"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
