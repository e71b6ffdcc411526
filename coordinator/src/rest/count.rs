//! Counts the requests of each route by status.

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use utoipa_axum::router::{UtoipaMethodRouter, UtoipaMethodRouterExt as _};

use super::App;
use crate::metrics::Metrics;

/// Which route answered, as the router knows it; never the path of a request, which a caller could
/// invent.
#[derive(Clone, Debug)]
struct Route(String);

/// Counts a request and its answer.
pub(super) async fn count(
    State(metrics): State<Metrics>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let response = next.run(request).await;
    let route = response.extensions().get::<Route>();
    let route = route.map_or("other", |route| route.0.as_str());
    metrics.count_rest(&method, route, response.status());
    response
}

/// `routes`, whose answers say which route they are of.
pub(super) fn named(routes: UtoipaMethodRouter<App>) -> UtoipaMethodRouter<App> {
    let path = routes.1.paths.keys().next().cloned().unwrap_or_default();
    let route = Route(path.replace("{*", "{"));
    routes.layer(middleware::map_response(move |mut response: Response| {
        let route = route.clone();
        async move {
            response.extensions_mut().insert(route);
            response
        }
    }))
}
