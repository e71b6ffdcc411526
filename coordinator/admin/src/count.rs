//! Counts the requests of each route by status.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::metrics::AdminMetrics;

/// Counts a request and its answer by the route, as the router knows it; never by the path of a
/// request, which a caller could invent.
pub(super) async fn count(
    State(metrics): State<AdminMetrics>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(|| "other".to_owned(), |route| plain(route.as_str()));
    let response = next.run(request).await;
    metrics.count(&method, &route, response.status());
    response
}

/// A route as OpenAPI writes it; the router writes the rest of a path as `{*id}`.
pub(super) fn plain(route: &str) -> String {
    route.replace("{*", "{")
}
