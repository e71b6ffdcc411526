//! Leases by scope, with their resources and clients.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tollgate_proto::v1;
use utoipa::IntoParams;

use super::App;
use super::extract::{ENTRIES_MAX, PageQuery, Path, Query, count};
use super::merge;
use super::openapi::{BadRequest, Missing, ReadLeases};
use super::peers::{Caller, view};
use super::problem::RestError;
use crate::lease_view::{ScopeDetail, ScopePage};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ScopeQuery {
    /// The most clients of each resource: those throttled for longest, then those with the largest
    /// leases.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    clients: Option<usize>,
}

/// Scopes with clients, by id.
#[utoipa::path(
    get, path = "/v1/scopes", operation_id = "listScopes", tag = "leases", params(PageQuery),
    responses((status = 200, description = "A page", body = ScopePage), ReadLeases, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Json<ScopePage>, RestError> {
    let (limit, after) = query.checked()?;
    let own = ScopePage::of_shards(&app.parts.shards, &after, limit).await?;
    let message = v1::ListPeerRequest {
        after,
        limit: limit as u32,
    };
    let answers = app.ask(
        &caller,
        message,
        |mut client, request| async move { client.list_scopes(request).await },
        view::<ScopePage>,
    );
    let (there, unanswered) = answers.await;
    let pages = own.into_iter().chain(there);
    Ok(Json(ScopePage {
        unanswered,
        ..merged(pages, limit)
    }))
}

/// One scope with its clients.
#[utoipa::path(
    get, path = "/v1/scopes/{*scope}", operation_id = "getScope", tag = "leases",
    params(
        ("scope" = String, Path, description = "The scope; `/` may stand as it is", min_length = 1),
        ScopeQuery
    ),
    responses(
        (status = 200, description = "Its resources", body = ScopeDetail), ReadLeases, BadRequest, Missing
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Json<ScopeDetail>, RestError> {
    let clients = count("clients", query.clients.unwrap_or(ENTRIES_MAX), ENTRIES_MAX)?;
    let message = v1::GetScopeRequest {
        scope: id.clone(),
        clients: clients as u32,
        page: false,
    };
    let missing = || RestError::NotFound(format!("no client has or wants a lease of {id}"));
    let detail = find(&app, &caller, message).await?;
    detail.map(Json).ok_or_else(missing)
}

/// Returns the scope that `message` asks for, with its clients in the whole cluster; none if no
/// client has or wants a lease of it.
pub(super) async fn find(
    app: &App,
    caller: &Caller,
    message: v1::GetScopeRequest,
) -> Result<Option<ScopeDetail>, RestError> {
    let clients = message.clients as usize;
    let own = ScopeDetail::of_shards(&app.parts.shards, &message.scope, clients).await?;
    let answers = app.ask(
        caller,
        message,
        |mut client, request| async move { client.get_scope(request).await },
        view::<ScopeDetail>,
    );
    let (there, unanswered) = answers.await;
    let detail = merge::one(own.into_iter().chain(there));
    Ok(detail.map(|one| ScopeDetail { unanswered, ..one }))
}

/// Returns the first `limit` scopes of `pages`.
pub(super) fn merged(pages: impl IntoIterator<Item = ScopePage>, limit: usize) -> ScopePage {
    let pages = pages.into_iter();
    let pages = pages.map(|page| (page.scopes, page.next.is_some()));
    let (scopes, next) = merge::page(pages, limit);
    ScopePage {
        scopes,
        next,
        unanswered: Vec::new(),
    }
}
