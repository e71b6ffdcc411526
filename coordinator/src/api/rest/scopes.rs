//! The books as JSON: scopes with their resources and clients.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::App;
use super::extract::{ENTRIES_MAX, PageQuery, Path, Query, count};
use super::gather::{Gathered, join_units};
use super::openapi::{BadRequest, Missing, ReadBooks};
use super::others::Asked;
use super::problem::RestError;
use crate::leases::view::{ScopeDetail, ScopePage};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ScopeQuery {
    /// How many clients at most of each resource.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    clients: Option<usize>,
}

/// Scopes with clients, by id.
#[utoipa::path(
    get, path = "/v1/scopes", operation_id = "listScopes", tag = "books", params(PageQuery),
    responses((status = 200, description = "A page", body = ScopePage), ReadBooks, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
    asked: Asked,
) -> Result<Json<Value>, RestError> {
    let (limit, after) = query.checked()?;
    let own = app.shards.scopes(&after, limit).await?;
    let pages = Gathered::of(&app, &asked, own).await?;
    Ok(Json(pages.page(("scopes", "scope"), limit, join_units)))
}

/// One scope with its clients.
#[utoipa::path(
    get, path = "/v1/scopes/{*scope}", operation_id = "getScope", tag = "books",
    params(
        ("scope" = String, Path, description = "The scope; `/` may stand as it is", min_length = 1),
        ScopeQuery
    ),
    responses(
        (status = 200, description = "Its books", body = ScopeDetail), ReadBooks, BadRequest, Missing
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<ScopeQuery>,
    asked: Asked,
) -> Result<Json<Value>, RestError> {
    let clients = count("clients", query.clients.unwrap_or(ENTRIES_MAX), ENTRIES_MAX)?;
    let own = app.shards.scope(&id, clients).await?;
    let detail = Gathered::of(&app, &asked, own).await?.one(join_units);
    let missing = || RestError::NotFound(format!("no client has or wants a lease of {id}"));
    detail.map(Json).ok_or_else(missing)
}
