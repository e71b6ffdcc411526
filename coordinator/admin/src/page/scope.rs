//! Page of one scope: its throttled clients, the shares of all, and its limits.

use std::collections::BTreeMap;

use axum::extract::State;
use maud::{Markup, html};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_proto::v1;

use super::chart::Chart;
use super::client_table::{ClientQuery, ClientTable};
use super::overview::unanswered;
use super::text::{amount, date, duration, group_path, name, owner, unit_words};
use super::verdict::{traffic, verdict};
use super::{Page, bar, legend, past, quota};
use crate::App;
use crate::extract::{ENTRIES_MAX, Path, Query};
use crate::history::ScopeHistory;
use crate::history::route;
use crate::lease_view::{Amount, ScopeDetail, UnitDetail};
use crate::limits::{LimitView, ScopeLimits, SourceView};
use crate::openapi::{BadRequest, ReadLeases};
use crate::peers::Caller;
use crate::problem::RestError;
use crate::scopes;

/// The page of one scope.
#[utoipa::path(
    get, path = "/scopes/{*scope}", operation_id = "getScopePage", tag = "pages",
    params(
        (
            "scope" = String, Path, description = "The scope; `/` may stand as it is",
            min_length = 1, max_length = 256
        ),
        ClientQuery
    ),
    responses(
        (status = 200, description = "HTML", body = str, content_type = "text/html"),
        ReadLeases, BadRequest
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    Path(scope): Path<String>,
    Query(query): Query<ClientQuery>,
    caller: Caller,
) -> Result<Page, RestError> {
    let id = ResourceId::new(&scope, Unit::Requests);
    let id = id.map_err(|error| RestError::parameter("scope", &scope, error))?;
    let message = v1::GetScopeRequest {
        scope: scope.clone(),
        clients: ENTRIES_MAX as u32,
        page: true,
    };
    let (detail, past) = tokio::join!(
        scopes::find(&app, &caller, message),
        route::scope_history(&app, &caller, scope.clone(), true),
    );
    let limits = ScopeLimits::from(app.parts.writer.catalog().resolve(&id.scope));
    let detail = detail?;
    let scope_page = ScopePage {
        limits: &limits,
        detail: detail.as_ref(),
        past: &past,
        query,
    };
    Ok(Page::live(scope, scope_page.main()))
}

/// One scope with its limits, clients and past.
#[derive(Clone, Copy, Debug)]
struct ScopePage<'a> {
    limits: &'a ScopeLimits,
    /// `None` if no client has or wants a lease of it.
    detail: Option<&'a ScopeDetail>,
    past: &'a ScopeHistory,
    query: ClientQuery,
}

// === impl ScopePage ===

impl ScopePage<'_> {
    /// Returns the content of the page.
    fn main(&self) -> Markup {
        let scope = &self.limits.scope;
        html! {
            h1 { small.kind { "scope" } (name(scope)) }
            @match self.detail {
                Some(detail) => {
                    (unanswered(&detail.unanswered))
                    @for (unit, detail) in detail.by_trouble() { (self.unit(unit, detail)) }
                }
                None => { p data-key="none" { "No client has or wants a lease of it." } }
            }
            (origin(self.limits))
        }
    }

    fn unit(&self, unit: &str, detail: &UnitDetail) -> Markup {
        let table = ClientTable {
            scope: &self.limits.scope,
            unit,
            detail,
            query: self.query,
        };
        html! {
            section.wide data-key=(unit) {
                h2 { (unit) small { (unit_words(unit)) } }
                (traffic(unit, &detail.summary.traffic))
                (verdict(unit, detail))
                (facts(unit, detail))
                (bar::bar(&detail.summary))
                (legend::bars())
                (quota::quotas(unit, &detail.summary.quotas))
                // Clients that draw have no shares.
                @if let Some(chart) = past::of_clients(self.past, unit).filter(Chart::has_bands) {
                    h3 { "Leased in the last 10 minutes" }
                    (chart.figure(&format!("Leased {unit} of each client, one above the other")))
                }
                (table.table())
            }
        }
    }
}

// === free functions ===

/// Limits of the scope with their origin, and its group.
fn origin(limits: &ScopeLimits) -> Markup {
    html! {
        section.wide data-key="limits" {
            h2 { "Limits" }
            @if limits.canonical != limits.scope {
                p { "Its requests use the capacity of " (name(&limits.canonical)) " as well." }
            }
            @if limits.own.is_none() && limits.group.is_none() { p { "Nothing limits it." } }
            @if let Some(own) = &limits.own {
                p { "Its own limits come from " (source(&own.source)) "." }
                (limit_table(&own.units))
            }
            @if let Some(group) = &limits.group {
                p {
                    "It is a member of the group "
                    a href=(group_path(&group.name)) { (name(&group.name)) }
                    ", which is divided between " (group.fair_between) ", with a weight of "
                    (group.weight) "."
                    @if let Some(until) = group.raised_until { " Its limits are raised until " (date(until)) "." }
                }
                (limit_table(&group.units))
            }
        }
    }
}

fn source(source: &SourceView) -> Markup {
    html! {
        @match source {
            SourceView::File { r#match } => { "the file, where it matches " code { (name(r#match)) } }
            SourceView::Override { revision } => { "an override of revision " (revision) }
            SourceView::Raise { until } => { "a raise, until " (date(*until)) }
            SourceView::Group => { "its group" }
        }
    }
}

/// Returns a table of `limits` by unit.
pub(super) fn limit_table(limits: &BTreeMap<String, LimitView>) -> Markup {
    html! {
        table.rows.plain {
            thead { tr {
                th scope="col" { "unit" } th.num scope="col" { "capacity" }
                th.num scope="col" { "burst" } th scope="col" { "quota" } th scope="col" { "divided by" }
                th.num scope="col" { "lease" } th.num scope="col" { "refresh" }
            } }
            tbody { @for (unit, limit) in limits {
                tr {
                    th scope="row" { (unit) }
                    td.num data-label="capacity" { (limit.text(unit, limit.capacity)) }
                    td.num data-label="burst" {
                        @if limit.capacity == Amount::Unlimited { "none" } @else { (amount(unit, limit.burst)) }
                    }
                    td data-label="quota" { (limit.quota_text(unit)) }
                    td data-label="divided by" { (limit.algorithm) }
                    td.num data-label="lease" { (duration(limit.lease_ms)) }
                    td.num data-label="refresh" { (duration(limit.refresh_ms)) }
                }
            } }
        }
    }
}

fn facts(unit: &str, detail: &UnitDetail) -> Markup {
    let summary = &detail.summary;
    let amount = |value| amount(unit, value);
    let rate = |value| summary.text(unit, value);
    html! {
        dl.facts {
            @if summary.traffic.attempts > 0 {
                @let traffic = &summary.traffic;
                div { dt { "admitted a second" } dd { (amount(traffic.admitted_per_second().into())) } }
                div { dt { "refused a second" } dd { (amount(traffic.refused_per_second.into())) } }
            }
            div { dt { "leased" } dd { (rate(summary.sum_has)) } }
            div { dt { "limit" } dd { (rate(summary.at_most())) } }
            div { dt { "wanted" } dd { (rate(summary.sum_wants)) } }
            @if let Some(bucket) = &summary.bucket {
                div { dt { "tokens left" } dd { (amount(Amount::Number(bucket.left))) } }
                div { dt { "tokens with clients" } dd { (amount(Amount::Number(bucket.held))) } }
                div { dt { "tokens drawn" } dd { (amount(Amount::Number(bucket.drawn))) } }
            }
            div {
                dt { "limited by" }
                dd {
                    @match &summary.limited_by {
                        Some(limited_by) => { (owner(&limited_by.whose)) }
                        None if !summary.quotas.is_empty() => { "its quota" }
                        None => { "nothing" }
                    }
                }
            }
            @if let Some(safe) = summary.safe {
                div { dt { "safe capacity of a client" } dd { (rate(safe)) } }
            }
            @if summary.learning_ms > 0 {
                div { dt { "learning for" } dd { (duration(summary.learning_ms)) } }
            }
        }
    }
}
