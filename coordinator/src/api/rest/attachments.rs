//! Attachments: which tenant or namespace shares which group.

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
use crate::catalog::spec::AttachmentSpec;
use crate::catalog::{CatalogEntry, MemberKind, name};

/// Attachment of a tenant or a namespace to a group.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Attachment)]
pub struct AttachmentView {
    /// The tenant, or `tenant/namespace`.
    pub name: String,
    /// Where it is defined.
    pub defined_by: DefinedBy,
    /// Its revision, if it was written here; the entity tag is the same.
    pub revision: Option<u64>,
    /// The group and the weight in it.
    pub spec: AttachmentSpec,
}

/// Some attachments, by name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AttachmentPage {
    /// The attachments.
    pub attachments: Vec<AttachmentView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

/// Tenants that are attached to a group, by name.
#[utoipa::path(
    get, path = "/v1/attachments/tenants", operation_id = "listTenants", tag = "attachments",
    params(PageQuery),
    responses((status = 200, description = "A page", body = AttachmentPage), Read, BadRequest)
)]
pub(super) async fn list_tenants(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<AttachmentPage>, RestError> {
    list(&app, MemberKind::Tenant, query)
}

/// Namespaces that are attached to a group themselves, by name.
#[utoipa::path(
    get, path = "/v1/attachments/namespaces", operation_id = "listNamespaces",
    tag = "attachments", params(PageQuery),
    responses((status = 200, description = "A page", body = AttachmentPage), Read, BadRequest)
)]
pub(super) async fn list_namespaces(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<AttachmentPage>, RestError> {
    list(&app, MemberKind::Namespace, query)
}

/// Group of a tenant.
#[utoipa::path(
    get, path = "/v1/attachments/tenants/{tenant}", operation_id = "getTenant",
    tag = "attachments",
    params(("tenant" = String, Path, description = "Its name", min_length = 1, max_length = 249)),
    responses(
        (
            status = 200, description = "Its attachment", body = AttachmentView,
            headers(("etag" = String, description = "Its revision, if it was written here"))
        ),
        Read, BadRequest, Missing, Unchanged
    )
)]
pub(super) async fn get_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    tags: Tags,
) -> Result<Response, RestError> {
    get(&app, MemberKind::Tenant, &tenant, &tags)
}

/// Group of a namespace itself, not through its tenant.
#[utoipa::path(
    get, path = "/v1/attachments/namespaces/{tenant}/{namespace}", operation_id = "getNamespace",
    tag = "attachments",
    params(
        ("tenant" = String, Path, description = "Its tenant", min_length = 1, max_length = 244),
        ("namespace" = String, Path, description = "Its name", min_length = 1, max_length = 244)
    ),
    responses(
        (
            status = 200, description = "Its attachment", body = AttachmentView,
            headers(("etag" = String, description = "Its revision, if it was written here"))
        ),
        Read, BadRequest, Missing, Unchanged
    )
)]
pub(super) async fn get_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    tags: Tags,
) -> Result<Response, RestError> {
    get(
        &app,
        MemberKind::Namespace,
        &join(&tenant, &namespace),
        &tags,
    )
}

/// Attaches a tenant to a group, whatever it was attached to.
#[utoipa::path(
    put, path = "/v1/attachments/tenants/{tenant}", operation_id = "putTenant",
    tag = "attachments",
    params(
        ("tenant" = String, Path, description = "Its name", min_length = 1, max_length = 249),
        Tags
    ),
    request_body = AttachmentSpec,
    responses(
        (
            status = 200, description = "Attached anew", body = AttachmentView,
            headers(("etag" = String, description = "Its new revision"))
        ),
        (
            status = 201, description = "Attached", body = AttachmentView,
            headers(("etag" = String, description = "Its revision"))
        ),
        Write, BadWrite, Conflict, Stale
    )
)]
pub(super) async fn put_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    tags: Tags,
    body: Body<AttachmentSpec>,
) -> Result<Response, RestError> {
    put_one(&app, MemberKind::Tenant, tenant, &tags, body).await
}

/// Attaches a namespace to a group, whatever it or its tenant was attached to.
#[utoipa::path(
    put, path = "/v1/attachments/namespaces/{tenant}/{namespace}", operation_id = "putNamespace",
    tag = "attachments",
    params(
        ("tenant" = String, Path, description = "Its tenant", min_length = 1, max_length = 244),
        ("namespace" = String, Path, description = "Its name", min_length = 1, max_length = 244),
        Tags
    ),
    request_body = AttachmentSpec,
    responses(
        (
            status = 200, description = "Attached anew", body = AttachmentView,
            headers(("etag" = String, description = "Its new revision"))
        ),
        (
            status = 201, description = "Attached", body = AttachmentView,
            headers(("etag" = String, description = "Its revision"))
        ),
        Write, BadWrite, Conflict, Stale
    )
)]
pub(super) async fn put_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    tags: Tags,
    body: Body<AttachmentSpec>,
) -> Result<Response, RestError> {
    let name = join(&tenant, &namespace);
    put_one(&app, MemberKind::Namespace, name, &tags, body).await
}

/// Detaches a tenant from its group.
#[utoipa::path(
    delete, path = "/v1/attachments/tenants/{tenant}", operation_id = "deleteTenant",
    tag = "attachments",
    params(
        ("tenant" = String, Path, description = "Its name", min_length = 1, max_length = 249),
        Tags
    ),
    responses(
        (status = 204, description = "Detached"),
        Write, BadRequest, Missing, Conflict, Stale
    )
)]
pub(super) async fn delete_tenant(
    State(app): State<App>,
    Path(tenant): Path<String>,
    tags: Tags,
) -> Result<StatusCode, RestError> {
    delete(&app, MemberKind::Tenant, &tenant, &tags).await
}

/// Detaches a namespace from its group; it then uses what its tenant is attached to.
#[utoipa::path(
    delete, path = "/v1/attachments/namespaces/{tenant}/{namespace}",
    operation_id = "deleteNamespace", tag = "attachments",
    params(
        ("tenant" = String, Path, description = "Its tenant", min_length = 1, max_length = 244),
        ("namespace" = String, Path, description = "Its name", min_length = 1, max_length = 244),
        Tags
    ),
    responses(
        (status = 204, description = "Detached"),
        Write, BadRequest, Missing, Conflict, Stale
    )
)]
pub(super) async fn delete_namespace(
    State(app): State<App>,
    Path((tenant, namespace)): Path<(String, String)>,
    tags: Tags,
) -> Result<StatusCode, RestError> {
    delete(
        &app,
        MemberKind::Namespace,
        &join(&tenant, &namespace),
        &tags,
    )
    .await
}

// === free functions ===

fn join(tenant: &str, namespace: &str) -> String {
    format!("{tenant}/{namespace}")
}

fn list(app: &App, kind: MemberKind, query: PageQuery) -> Result<Json<AttachmentPage>, RestError> {
    let (limit, after) = query.checked()?;
    let catalog = app.writer.catalog();
    let attachments = catalog.attachments(kind, &after);
    let attachments = attachments.map(|entry| AttachmentView::from(entry.map(|one| one.spec())));
    let (attachments, next) = page(limit, attachments, |attachment| &attachment.name);
    Ok(Json(AttachmentPage { attachments, next }))
}

fn get(app: &App, kind: MemberKind, name: &str, tags: &Tags) -> Result<Response, RestError> {
    let entry = app.writer.catalog().attachment(kind, name);
    let missing = || {
        let kind = kind.name();
        RestError::NotFound(format!("no {kind} {name:?} is attached to a group"))
    };
    let entry = entry.ok_or_else(missing)?;
    let entry = entry.map(|attachment| attachment.spec());
    Ok(stored::get::<_, AttachmentView>(entry, tags))
}

async fn put_one(
    app: &App,
    kind: MemberKind,
    name: String,
    tags: &Tags,
    body: Body<AttachmentSpec>,
) -> Result<Response, RestError> {
    writable("name", &name, name::check_one(&name))?;
    let found = found(app, kind, &name);
    let write = |spec, expect| app.writer.put_attachment(kind, &name, spec, expect);
    stored::put::<_, AttachmentView, _>(&name, found, tags, body, write).await
}

async fn delete(
    app: &App,
    kind: MemberKind,
    name: &str,
    tags: &Tags,
) -> Result<StatusCode, RestError> {
    let write = |expect| app.writer.delete_attachment(kind, name, expect);
    stored::delete(found(app, kind, name), tags, write).await
}

/// The revision of what is there.
fn found(app: &App, kind: MemberKind, name: &str) -> Option<u64> {
    let entry = app.writer.catalog().attachment(kind, name);
    entry.and_then(|entry| entry.revision)
}

// === impl AttachmentView ===

impl From<CatalogEntry<AttachmentSpec>> for AttachmentView {
    fn from(entry: CatalogEntry<AttachmentSpec>) -> Self {
        Self {
            name: entry.name.as_ref().to_owned(),
            defined_by: DefinedBy::of(entry.revision),
            revision: entry.revision,
            spec: entry.value,
        }
    }
}
