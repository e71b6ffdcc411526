//! Counts the requests of each route by status.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::metrics::ApiMetrics;

/// Counts a request and its answer by the route, as the router knows it; never by the path of a
/// request, which a caller could invent.
pub(super) async fn count(
    State(metrics): State<ApiMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(|| "other".to_owned(), |route| plain(route.as_str()));
    let response = next.run(request).await;
    metrics.count_rest(&method, &route, response.status());
    response
}

/// A route as OpenAPI writes it; the router writes the rest of a path as `{*id}`.
pub(super) fn plain(route: &str) -> String {
    route.replace("{*", "{")
}
