//! OpenAPI description of the API, made from its routes.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, Info, OpenApi, OpenApiBuilder, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{IntoResponses, PartialSchema as _, ToSchema};

use super::App;
use super::count::plain;
use super::problem::{FieldFault, Problem};

const DESCRIPTION: &str = "\
Reading needs a token of role `viewer`, writing one of role `admin`; if the configuration has no \
tokens, neither is needed. Amounts are per second for the units `requests`, `request_bytes` and \
`response_bytes`, and a number in flight for `concurrency`. What the configuration file defines \
cannot be changed here.";

/// Statuses of problems, with their descriptions.
pub(super) type Statuses = [(u16, &'static str)];

pub(super) const READ: &Statuses = &[
    (401, "No token, or an unknown one"),
    (403, "A request that another site made a browser send"),
];

pub(super) const WRITE: &Statuses = &[
    (401, "No token, or an unknown one"),
    (403, "A token of role viewer, or a page of another site"),
];

pub(super) const BAD_REQUEST: &Statuses =
    &[(400, "A part of the path or of the query breaks a rule")];

pub(super) const BAD_WRITE: &Statuses = &[
    (400, "A body that is no JSON, or a bad path or header"),
    (413, "A body that is too large"),
    (415, "A body that is not said to be JSON"),
    (
        422,
        "Values that break rules, each with field, value and rule",
    ),
];

pub(super) const MISSING: &Statuses = &[(404, "What the path names is not there")];

pub(super) const CONFLICT: &Statuses = &[(409, "Defined in the file, in use, or one too many")];

pub(super) const STALE: &Statuses = &[(412, "What is there is not what the headers expect")];

pub(super) const UNAVAILABLE: &Statuses = &[(503, "Overloaded, or shutting down")];

/// Declares sets of answers for the descriptions of routes.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident = $statuses:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    problems($statuses)
                }
            }
        )*
    };
}

answers! {
    /// Answers that any route which reads can give.
    Read = READ;
    /// Answers of any route that reads leases.
    ReadLeases = &[READ, UNAVAILABLE].concat();
    /// Answers that any route which writes can give.
    Write = &[WRITE, UNAVAILABLE].concat();
    /// Answers to a body that breaks rules.
    BadWrite = BAD_WRITE;
    /// Answer to a write that contradicts the stored state.
    Conflict = CONFLICT;
    /// The answer to a path or a query that breaks a rule.
    BadRequest = BAD_REQUEST;
    /// Answer where the path names nothing.
    Missing = MISSING;
    /// The answer while the coordinator cannot answer.
    Unavailable = UNAVAILABLE;
}

/// This description.
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "getOpenApi", tag = "meta",
    responses((status = 200, description = "OpenAPI 3.1", body = Value), Read)
)]
pub(super) async fn get(State(app): State<App>) -> Json<Value> {
    Json(Value::clone(&app.openapi))
}

/// Returns the part of the description that does not depend on routes.
pub(super) fn frame() -> OpenApi {
    let mut info = Info::new("Tollgate's admin API", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_owned());
    let mut schemas = Vec::new();
    Problem::schemas(&mut schemas);
    schemas.push((Problem::name().into_owned(), Problem::schema()));
    schemas.push((FieldFault::name().into_owned(), FieldFault::schema()));
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = utoipa::openapi::ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("token", SecurityScheme::Http(bearer))
        .build();
    let none: [&str; 0] = [];
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some([SecurityRequirement::new("token", none)]))
        .build()
}

/// `api` as it is served. The router writes the rest of a path as `{*id}`, OpenAPI as `{id}`.
pub(super) fn document(mut api: OpenApi) -> Value {
    let paths = std::mem::take(&mut api.paths.paths);
    let plain = |(path, item): (String, _)| (plain(&path), item);
    api.paths.paths = paths.into_iter().map(plain).collect();
    // Only derived `Serialize`s of maps with text for keys, which cannot fail.
    serde_json::to_value(api).unwrap_or_default()
}

// === free functions ===

/// Returns the answers of `statuses`, each with its description.
pub(super) fn problems(statuses: &Statuses) -> BTreeMap<String, RefOr<Response>> {
    let schema = Ref::from_schema_name(Problem::name());
    let one = |&(status, description): &(u16, &'static str)| {
        let content = Content::new(Some(schema.clone()));
        let response = ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content)
            .build();
        (status.to_string(), RefOr::T(response))
    };
    statuses.iter().map(one).collect()
}
