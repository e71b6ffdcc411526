//! Overrides: limits of one scope in place of the file's globs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::body::Body;
use super::extract::{PageQuery, Path, Query};
use super::openapi::{BadRequest, BadWrite, Conflict, Missing, Read, Stale, Unchanged, Write};
use super::problem::RestError;
use super::revision::Tags;
use super::stored::{self, page, writable};
use crate::catalog::spec::LimitsSpec;
use crate::catalog::{CatalogEntry, name};

/// The limits of one scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Override)]
pub struct OverrideView {
    /// The scope.
    pub scope: String,
    /// Its revision; the entity tag is the same.
    pub revision: Option<u64>,
    /// Its limits.
    pub spec: LimitsSpec,
}

/// Some overrides, by scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OverridePage {
    /// The overrides.
    pub overrides: Vec<OverrideView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

/// Overrides, by scope.
#[utoipa::path(
    get, path = "/v1/overrides", operation_id = "listOverrides", tag = "overrides",
    params(PageQuery),
    responses((status = 200, description = "A page", body = OverridePage), Read, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<OverridePage>, RestError> {
    let (limit, after) = query.checked()?;
    let catalog = app.writer.catalog();
    let overrides = catalog.overrides(&after);
    let overrides = overrides.map(|entry| OverrideView::from(entry.map(|one| one.spec())));
    let (overrides, next) = page(limit, overrides, |one| &one.scope);
    Ok(Json(OverridePage { overrides, next }))
}

/// The override of a scope.
#[utoipa::path(
    get, path = "/v1/overrides/{*scope}", operation_id = "getOverride", tag = "overrides",
    params((
        "scope" = String, Path, description = "The scope; `/` may stand as it is",
        min_length = 1, max_length = 256
    )),
    responses(
        (
            status = 200, description = "The override", body = OverrideView,
            headers(("etag" = String, description = "Its revision"))
        ),
        Read, BadRequest, Missing, Unchanged
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(scope): Path<String>,
    tags: Tags,
) -> Result<Response, RestError> {
    let entry = app.writer.catalog().overridden(&scope);
    let missing = || RestError::NotFound(format!("the limits of {scope:?} are not overridden"));
    let entry = entry.ok_or_else(missing)?;
    let entry = entry.map(|one| one.spec());
    Ok(stored::get::<_, OverrideView>(entry, &tags))
}

/// Replaces the limits that the file's globs give a scope, all of them.
///
/// A unit that is absent or null has no limit.
#[utoipa::path(
    put, path = "/v1/overrides/{*scope}", operation_id = "putOverride", tag = "overrides",
    params(
        (
            "scope" = String, Path, description = "The scope; `/` may stand as it is",
            min_length = 1, max_length = 256
        ),
        Tags
    ),
    request_body = LimitsSpec,
    responses(
        (
            status = 200, description = "Replaced", body = OverrideView,
            headers(("etag" = String, description = "Its new revision"))
        ),
        (
            status = 201, description = "Created", body = OverrideView,
            headers(("etag" = String, description = "Its revision"))
        ),
        Write, BadWrite, Conflict, Stale
    )
)]
pub(super) async fn put_one(
    State(app): State<App>,
    Path(scope): Path<String>,
    tags: Tags,
    body: Body<LimitsSpec>,
) -> Result<Response, RestError> {
    writable("scope", &scope, name::check_one_scope(&scope))?;
    let found = found(&app, &scope);
    let write = |spec, expect| app.writer.put_override(&scope, spec, expect);
    stored::put::<_, OverrideView, _>(&scope, found, &tags, body, write).await
}

/// Gives a scope back the limits of the file's globs.
#[utoipa::path(
    delete, path = "/v1/overrides/{*scope}", operation_id = "deleteOverride", tag = "overrides",
    params(
        (
            "scope" = String, Path, description = "The scope; `/` may stand as it is",
            min_length = 1, max_length = 256
        ),
        Tags
    ),
    responses(
        (status = 204, description = "Deleted"),
        Write, BadRequest, Missing, Conflict, Stale
    )
)]
pub(super) async fn delete(
    State(app): State<App>,
    Path(scope): Path<String>,
    tags: Tags,
) -> Result<StatusCode, RestError> {
    let write = |expect| app.writer.delete_override(&scope, expect);
    stored::delete(found(&app, &scope), &tags, write).await
}

// === free functions ===

/// The revision of what is there.
fn found(app: &App, scope: &str) -> Option<u64> {
    let entry = app.writer.catalog().overridden(scope);
    entry.and_then(|entry| entry.revision)
}

// === impl OverrideView ===

impl From<CatalogEntry<LimitsSpec>> for OverrideView {
    fn from(entry: CatalogEntry<LimitsSpec>) -> Self {
        Self {
            scope: entry.name.as_ref().to_owned(),
            revision: entry.revision,
            spec: entry.value,
        }
    }
}
