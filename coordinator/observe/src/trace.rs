//! Spans of the calls that come in, in the words of OpenTelemetry's conventions.
//!
//! They have a target of their own, so that one comparison switches them off. What a caller makes
//! up goes into attributes and not into names: collectors keep an index of names.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// The target of all spans.
pub const TARGET: &str = "tollgate::trace";

/// The methods that spans are named after.
const GRPC_METHODS: [&str; 10] = [
    "tollgate.v1.LeaseService/Refresh",
    "tollgate.v1.ForwardService/Forward",
    "tollgate.v1.LeaseService/Release",
    "tollgate.v1.LeaseService/Watch",
    "doorman.Capacity/Discovery",
    "doorman.Capacity/GetCapacity",
    "doorman.Capacity/GetServerCapacity",
    "doorman.Capacity/ReleaseCapacity",
    "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas",
];

/// The methods of HTTP that spans are named after.
const HTTP_METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"];

/// Name of all other calls.
const OTHER: &str = "_OTHER";

/// The span of a gRPC call to `path`, such as `/tollgate.v1.LeaseService/Refresh`.
pub fn grpc(path: &str) -> Span {
    let path = path.strip_prefix('/').unwrap_or(path);
    let method = known(&GRPC_METHODS, path);
    tracing::info_span!(
        target: TARGET,
        "grpc",
        otel.name = method,
        otel.kind = "server",
        rpc.system.name = "grpc",
        rpc.method = path,
        tollgate.client = Empty,
        tollgate.scopes = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// Writes the client and the number of scopes of a call into the current span.
pub fn record_call(client: &str, scopes: usize) {
    let span = Span::current();
    span.record("tollgate.client", client);
    span.record("tollgate.scopes", scopes);
}

/// Writes into the current span that its call failed.
pub fn record_error(error: &str) {
    let span = Span::current();
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", error);
}

/// Answers `request` in a span of its own.
pub async fn http(request: Request, next: Next) -> Response {
    let span = http_span(&request);
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

fn http_span(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or(OTHER, MatchedPath::as_str);
    let method = known(&HTTP_METHODS, request.method().as_str());
    tracing::info_span!(
        target: TARGET,
        "http",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        url.path = request.uri().path(),
        http.response.status_code = Empty,
        otel.status_code = Empty,
    )
}

/// `name` if it is one of `names`.
fn known(names: &[&'static str], name: &str) -> &'static str {
    let known = names.iter().find(|known| **known == name);
    known.copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::{GRPC_METHODS, known};

    #[test]
    fn a_span_is_named_after_what_there_is_and_not_after_what_a_caller_makes_up() {
        let refresh = "tollgate.v1.LeaseService/Refresh";
        assert_eq!(known(&GRPC_METHODS, refresh), refresh);
        for path in ["", "tollgate.v1.LeaseService/refresh", "a/b"] {
            assert_eq!(known(&GRPC_METHODS, path), "_OTHER", "{path}");
        }
    }
}
