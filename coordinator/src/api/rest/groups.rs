//! Groups: limits that all attached tenants and namespaces share.

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
use super::stored::{self, DefinedBy, page, writable};
use crate::catalog::spec::GroupSpec;
use crate::catalog::{CatalogEntry, name};

/// A group.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupView {
    /// Its name; its scope is `group/<name>`.
    pub name: String,
    /// Where it is defined.
    pub defined_by: DefinedBy,
    /// Its revision, if it was written here; the entity tag is the same.
    pub revision: Option<u64>,
    /// Its limits.
    pub spec: GroupSpec,
}

/// A group with its number of members.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupDetail {
    /// The group.
    #[serde(flatten)]
    pub group: GroupView,
    /// The number of tenants and namespaces that are attached to it.
    pub attached_count: usize,
}

/// Some groups, by name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupPage {
    /// The groups.
    pub groups: Vec<GroupView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

/// Groups, by name.
#[utoipa::path(
    get, path = "/v1/groups", operation_id = "listGroups", tag = "groups", params(PageQuery),
    responses((status = 200, description = "A page", body = GroupPage), Read, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<GroupPage>, RestError> {
    let (limit, after) = query.checked()?;
    let catalog = app.writer.catalog();
    let groups = catalog.groups(&after);
    let groups = groups.map(|entry| GroupView::from(entry.map(|group| group.spec())));
    let (groups, next) = page(limit, groups, |group| &group.name);
    Ok(Json(GroupPage { groups, next }))
}

/// One group.
#[utoipa::path(
    get, path = "/v1/groups/{name}", operation_id = "getGroup", tag = "groups",
    params(("name" = String, Path, description = "Its name", min_length = 1, max_length = 250)),
    responses(
        (
            status = 200, description = "The group", body = GroupDetail,
            headers(("etag" = String, description = "Its revision, if it was written here"))
        ),
        Read, BadRequest, Missing, Unchanged
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
    tags: Tags,
) -> Result<Response, RestError> {
    let catalog = app.writer.catalog();
    let missing = || RestError::NotFound(format!("no group is called {name:?}"));
    let entry = catalog.group(&name).ok_or_else(missing)?;
    let revision = entry.revision;
    let detail = GroupDetail {
        attached_count: catalog.attached_count(&name),
        group: entry.map(|group| group.spec()).into(),
    };
    Ok(tags.answer(revision, Json(detail)))
}

/// Creates a group, or replaces it as a whole.
///
/// A unit that is absent or null has no limit.
#[utoipa::path(
    put, path = "/v1/groups/{name}", operation_id = "putGroup", tag = "groups",
    params(
        ("name" = String, Path, description = "Its name", min_length = 1, max_length = 250), Tags
    ),
    request_body = GroupSpec,
    responses(
        (
            status = 200, description = "Replaced", body = GroupView,
            headers(("etag" = String, description = "Its new revision"))
        ),
        (
            status = 201, description = "Created", body = GroupView,
            headers(("etag" = String, description = "Its revision"))
        ),
        Write, BadWrite, Conflict, Stale
    )
)]
pub(super) async fn put_one(
    State(app): State<App>,
    Path(name): Path<String>,
    tags: Tags,
    body: Body<GroupSpec>,
) -> Result<Response, RestError> {
    writable("name", &name, name::check_one(&name))?;
    let found = app.writer.catalog().group(&name);
    let found = found.and_then(|entry| entry.revision);
    let write = |spec, expect| app.writer.put_group(&name, spec, expect);
    stored::put::<_, GroupView, _>(&name, found, &tags, body, write).await
}

/// Deletes a group that nothing is attached to.
#[utoipa::path(
    delete, path = "/v1/groups/{name}", operation_id = "deleteGroup", tag = "groups",
    params(
        ("name" = String, Path, description = "Its name", min_length = 1, max_length = 250), Tags
    ),
    responses(
        (status = 204, description = "Deleted"),
        Write, BadRequest, Missing, Conflict, Stale
    )
)]
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    tags: Tags,
) -> Result<StatusCode, RestError> {
    let found = app.writer.catalog().group(&name);
    let found = found.and_then(|entry| entry.revision);
    let write = |expect| app.writer.delete_group(&name, expect);
    stored::delete(found, &tags, write).await
}

// === impl GroupView ===

impl From<CatalogEntry<GroupSpec>> for GroupView {
    fn from(entry: CatalogEntry<GroupSpec>) -> Self {
        Self {
            name: entry.name.as_ref().to_owned(),
            defined_by: DefinedBy::of(entry.revision),
            revision: entry.revision,
            spec: entry.value,
        }
    }
}
