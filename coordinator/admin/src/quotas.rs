//! Quotas of scopes and groups: what is used of them, and changes of that by people.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tollgate_core::fleet::QuotaChangeRequest;
use tollgate_leases::{ScopeQuotas, ScopeQuotasPage};
use tollgate_observe::logging::AUDIT;
use tollgate_proto::v1;
use utoipa::ToSchema;

use super::App;
use super::body::Body;
use super::extract::{PageQuery, Path, Query};
use super::guard::Operator;
use super::openapi::{BadRequest, BadWrite, Conflict, Missing, ReadLeases, Write};
use super::peers::{Caller, view};
use super::problem::RestError;
use crate::lease_view::QuotaView;

mod change;

use self::change::{ChangeOutcome, quota_names};
pub use self::change::{CreditSpec, QuotaChangeSpec};

/// Quotas of a scope or a group.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct QuotasView {
    /// The scope; that of a group is `group/NAME`.
    pub scope: String,
    /// Its quotas by unit.
    pub units: BTreeMap<String, Vec<QuotaView>>,
}

/// Quotas of some scopes and groups, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct QuotasPage {
    /// The scopes; there may be fewer than the limit although more follow.
    pub scopes: Vec<QuotasView>,
    /// Value of `after` for the next page; none on the last page.
    pub next: Option<String>,
    /// Nodes of the cluster that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unanswered: Vec<String>,
}

/// Quotas of which something is used, or was in the window before, by scope.
#[utoipa::path(
    get, path = "/v1/quotas", operation_id = "listQuotas", tag = "quotas", params(PageQuery),
    responses((status = 200, description = "A page", body = QuotasPage), ReadLeases, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Json<QuotasPage>, RestError> {
    let (limit, after) = query.checked()?;
    let own = own_page(&app, &after, limit).await?;
    let message = v1::ListPeerRequest {
        after,
        limit: limit as u32,
    };
    let answers = app.ask(
        &caller,
        message,
        |mut client, request| async move { client.list_quotas(request).await },
        view::<QuotasPage>,
    );
    let (there, unanswered) = answers.await;
    let pages = std::iter::once(own).chain(there);
    let pages = pages.map(|page| (page.scopes, page.next));
    Ok(Json(QuotasPage {
        unanswered,
        ..merged(pages.collect(), limit)
    }))
}

/// Quotas of one scope or group, also of a caller that nobody has asked for.
#[utoipa::path(
    get, path = "/v1/quotas/{*scope}", operation_id = "getQuotas", tag = "quotas",
    params(("scope" = String, Path, description = "The scope, or `group/NAME`; `/` may stand as it is", min_length = 1)),
    responses(
        (status = 200, description = "Its quotas", body = QuotasView), ReadLeases, BadRequest, Missing
    )
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(scope): Path<String>,
    caller: Caller,
) -> Result<Json<QuotasView>, RestError> {
    // Of a scope without one no master has to be found.
    quota_names(&app.parts.writer.catalog(), &scope)?;
    if let Some(own) = own(&app, &scope).await? {
        return Ok(Json(own));
    }
    let answers = app.ask(
        &caller,
        v1::GetQuotasRequest { scope },
        |mut client, request| async move { client.get_quotas(request).await },
        view::<QuotasView>,
    );
    let (there, unanswered) = answers.await;
    let found = there.into_iter().next();
    found.map(Json).ok_or(RestError::NoMaster { unanswered })
}

/// Says what is used of a quota, or gives a credit.
///
/// The answer comes when the change is durable. A credit is given once, however often it is asked for with the same id.
#[utoipa::path(
    post, path = "/v1/quotas/{*scope}", operation_id = "changeQuota", tag = "quotas",
    params(("scope" = String, Path, description = "The scope, or `group/NAME`; `/` may stand as it is", min_length = 1)),
    request_body = QuotaChangeSpec,
    responses(
        (status = 200, description = "Its quotas afterwards", body = QuotasView),
        Write, BadWrite, Missing, Conflict
    )
)]
pub(super) async fn change(
    State(app): State<App>,
    Path(scope): Path<String>,
    caller: Caller,
    Extension(Operator(by)): Extension<Operator>,
    Body(spec): Body<QuotaChangeSpec>,
) -> Result<Json<QuotasView>, RestError> {
    let json = serde_json::to_vec(&spec).map_err(|_| RestError::Text("the change"))?;
    if let Some(own) = change_here(&app, &scope, by, &spec).await? {
        return Ok(Json(own));
    }
    let answers = app.ask(
        &caller,
        v1::ChangeQuotaRequest { scope, json },
        |mut client, request| async move { client.change_quota(request).await },
        view::<ChangeOutcome>,
    );
    let (there, unanswered) = answers.await;
    // One that is not the master may not know the quota yet.
    let best = there.into_iter().min_by_key(ChangeOutcome::status);
    match best {
        Some(ChangeOutcome::Changed(quotas)) => Ok(Json(quotas)),
        Some(ChangeOutcome::Refused { status, detail }) => {
            Err(RestError::AtPeer { status, detail })
        }
        None => Err(RestError::NoMaster { unanswered }),
    }
}

/// Changes a quota of `scope`, if this node is master of its shard. Returns its quotas then.
async fn change_here(
    app: &App,
    scope: &str,
    by: Option<String>,
    spec: &QuotaChangeSpec,
) -> Result<Option<QuotasView>, RestError> {
    let (resource, request) = spec.request(&app.parts.writer.catalog(), scope, by)?;
    let Some(changed) = app.parts.shards.change_quota(&resource, &request).await? else {
        return Ok(None);
    };
    let QuotaChangeRequest { quota, by, change } = request;
    let (unit, is_done) = (resource.unit.name(), changed.is_ok());
    tracing::info!(target: AUDIT, by, ?scope, unit, quota, ?change, is_done, "quota: change");
    changed?;
    own(app, scope).await
}

/// The same for another node, which tells what it refuses.
pub(super) async fn change_for_peer(
    app: &App,
    scope: &str,
    by: Option<String>,
    json: &[u8],
) -> Result<Option<ChangeOutcome>, RestError> {
    let spec = Body::read(json)?.0;
    match change_here(app, scope, by, &spec).await {
        Ok(changed) => Ok(changed.map(ChangeOutcome::Changed)),
        Err(error) => Ok(Some(ChangeOutcome::Refused {
            status: error.status().as_u16(),
            detail: error.to_string(),
        })),
    }
}

/// Returns the quotas of `scope`, if it has any and this node is master of its shard.
pub(super) async fn own(app: &App, scope: &str) -> Result<Option<QuotasView>, RestError> {
    let quotas = app.parts.shards.scope_quotas(&Arc::from(scope)).await?;
    Ok(quotas.as_ref().map(QuotasView::from))
}

/// Returns the quotas of the first `limit` scopes of this node after `after`.
pub(super) async fn own_page(
    app: &App,
    after: &str,
    limit: usize,
) -> Result<QuotasPage, RestError> {
    let pages = app.parts.shards.quota_pages(after, limit).await?;
    let pages = pages.into_iter().map(|page| {
        let ScopeQuotasPage { scopes, next } = page;
        let views = scopes.iter().map(QuotasView::from).collect();
        (views, next.map(|next| next.as_ref().to_owned()))
    });
    Ok(merged(pages.collect(), limit))
}

/// Returns the first `limit` scopes of lists that each may go on after a scope.
fn merged(pages: Vec<(Vec<QuotasView>, Option<String>)>, limit: usize) -> QuotasPage {
    let end = pages.iter().filter_map(|(_, next)| next.clone()).min();
    let views = pages.into_iter().flat_map(|(views, _)| views);
    let mut scopes = BTreeMap::new();
    for view in views.filter(|view| end.as_ref().is_none_or(|end| view.scope <= *end)) {
        scopes.entry(view.scope.clone()).or_insert(view);
    }
    let is_cut = scopes.len() > limit;
    let scopes: Vec<_> = scopes.into_values().take(limit).collect();
    let last = scopes.last().map(|last| last.scope.clone());
    QuotasPage {
        next: if is_cut { last } else { end },
        scopes,
        unanswered: Vec::new(),
    }
}

// === impl QuotasView ===

impl From<&ScopeQuotas> for QuotasView {
    fn from(quotas: &ScopeQuotas) -> Self {
        let units = quotas.units.iter();
        let units = units.map(|(unit, usage)| (unit.name().to_owned(), QuotaView::all(usage)));
        Self {
            scope: quotas.scope.as_ref().to_owned(),
            units: units.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_go_on_at_different_scopes_become_one_without_gaps() {
        /// Scopes of a list, and the scope after which it goes on.
        type List = (&'static [&'static str], Option<&'static str>);
        let rows: [(&[List], &[&str], Option<&str>); 5] = [
            (&[(&["b"], None), (&["a"], None)], &["a", "b"], None),
            (&[(&["a", "b", "c"], None)], &["a", "b"], Some("b")),
            // The first list may have more between b and d.
            (&[(&["a"], Some("b")), (&["d"], None)], &["a"], Some("b")),
            (&[(&[], Some("b")), (&["d"], None)], &[], Some("b")),
            (&[(&["a"], Some("a")), (&["a"], None)], &["a"], Some("a")),
        ];
        for (lists, want, next) in rows {
            let quotas = |scope: &&str| QuotasView {
                scope: (*scope).to_owned(),
                units: BTreeMap::new(),
            };
            let lists = lists.iter().map(|(scopes, next)| {
                (scopes.iter().map(quotas).collect(), next.map(str::to_owned))
            });
            let page = merged(lists.collect(), 2);
            let scopes: Vec<&str> = page.scopes.iter().map(|one| &*one.scope).collect();
            assert_eq!((&*scopes, page.next.as_deref()), (want, next));
        }
    }
}
