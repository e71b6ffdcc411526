//! Health and metrics, for machines.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tollgate_observe::metrics::Exposition;
use utoipa::IntoParams;

use super::App;
use super::extract::{Query, count};
use super::openapi::{BadRequest, ReadLeases, Unavailable};
use super::problem::RestError;
use crate::lease_view::ScopePage;
use crate::stats::ResourceSelection;

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
    ScopePage::of_shards(&app.parts.shards, "", 1).await?;
    Ok("ready\n")
}

/// The most scopes that a scrape may ask for by [`MetricsQuery::top`].
const TOP_MAX: usize = 100;

/// Parameters of a scrape.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MetricsQuery {
    /// Number of the busiest resources that get series of their own. Requests decide which scopes
    /// these are, so each scrape may add series to the database that stores them.
    #[param(minimum = 1, maximum = 100)]
    top: Option<usize>,
}

/// The metrics, as Prometheus text or OpenMetrics: by the `Accept` header.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics", tag = "health", params(MetricsQuery),
    responses(
        (
            status = 200, description = "All of them",
            content((String = "text/plain"), (String = "application/openmetrics-text"))
        ),
        ReadLeases, BadRequest
    )
)]
pub(super) async fn metrics(
    State(app): State<App>,
    Query(query): Query<MetricsQuery>,
    headers: HeaderMap,
) -> Result<Response, RestError> {
    let format = Exposition::negotiate(&accept(&headers));
    let top = query.top.map_or(Ok(0), |top| count("top", top, TOP_MAX))?;
    let stats = app.lease_stats(ResourceSelection::busiest(), top).await?;
    let text = app
        .parts
        .exporter
        .encode(format, |registry| stats.register(registry));
    let text = text.map_err(|_| RestError::Text("the metrics"))?;
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::VARY, "accept"),
    ];
    Ok((headers, text).into_response())
}

/// All `Accept` headers as one; one that is no text is left out.
fn accept(headers: &HeaderMap) -> String {
    let values = headers.get_all(header::ACCEPT).iter();
    let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(",")
}
