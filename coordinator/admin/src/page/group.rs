//! Page of one group: its limits, how they are used, and what each member has.

use axum::extract::State;
use maud::{Markup, html};

use super::chart::Chart;
use super::overview::{CLIENTS, unanswered};
use super::query::TableQuery;
use super::resource_table::{ResourceTable, Weight};
use super::scope::limit_table;
use super::text::{amount, counted, date, group_path, name, unit_words, unit_words_alone};
use super::{Page, past, quota};
use crate::App;
use crate::extract::{Path, Query};
use crate::history::{RESOURCES_MAX, route};
use crate::lease_view::Amount;
use crate::limits::{OwnView, ScopeLimits, SourceView};
use crate::openapi::{BadRequest, Missing, ReadLeases};
use crate::peers::Caller;
use crate::problem::RestError;
use crate::stats::GroupScopes;
use crate::status::{GroupStatus, GroupUnit, Shown, Status};

/// The page of one group.
#[utoipa::path(
    get, path = "/groups/{name}", operation_id = "getGroupPage", tag = "pages",
    params(
        ("name" = String, Path, description = "Its name", min_length = 1, max_length = 250),
        TableQuery
    ),
    responses(
        (status = 200, description = "HTML", body = str, content_type = "text/html"),
        ReadLeases, BadRequest, Missing
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    Path(group): Path<String>,
    Query(query): Query<TableQuery>,
    caller: Caller,
) -> Result<Page, RestError> {
    let (mut selection, resources) = query.checked()?;
    let catalog = app.parts.writer.catalog();
    // Before the scan of the whole cluster, so that a wrong name costs none.
    let missing = || RestError::NotFound(format!("no group is called {group:?}"));
    let found = catalog.group(&group).ok_or_else(missing)?;
    selection.group = Some(GroupScopes::new(catalog.clone(), &group));
    let members = GroupScopes::new(catalog.clone(), &group);
    let shown = Shown {
        resources,
        clients: CLIENTS,
        selection,
    };
    let (status, past) = tokio::join!(
        Status::everywhere(&app, &caller, shown, true),
        route::overview(&app, &caller, (RESOURCES_MAX, None), true),
    );
    let status = status?;
    let limits = ScopeLimits::from(catalog.resolve(found.value.scope()));
    let charts = status.groups.iter().flat_map(|group| group.units.keys());
    let charts = charts.filter_map(|unit| {
        let chart = past::of_members(&past, unit, |scope| members.has(scope))?;
        Some((unit.clone(), chart))
    });
    let weight = |scope: &str| Some(catalog.resolve(&scope.into()).member?.weight.get());
    let page = GroupPage {
        group: &group,
        limits: &limits,
        status: &status,
        charts: charts.collect(),
        weight: &weight,
        query: &query,
    };
    Ok(Page::live(format!("group {group}"), page.main()))
}

/// One group with its limits, members and past.
pub(super) struct GroupPage<'a> {
    pub(super) group: &'a str,
    pub(super) limits: &'a ScopeLimits,
    pub(super) status: &'a Status,
    /// Shares of the members by unit.
    pub(super) charts: Vec<(String, Chart)>,
    pub(super) weight: Weight<'a>,
    pub(super) query: &'a TableQuery,
}

// === impl GroupPage ===

impl GroupPage<'_> {
    /// Returns the content of the page.
    pub(super) fn main(&self) -> Markup {
        let Self {
            group,
            limits,
            status,
            ..
        } = self;
        let table = ResourceTable {
            path: &group_path(group),
            query: self.query,
            resources: &status.busiest,
            match_count: status.match_count,
            weight: Some(self.weight),
        };
        html! {
            h1 { small.kind { "group" } (name(group)) }
            (unanswered(&status.unanswered))
            @for group in &status.groups { (used(group)) }
            @if let Some(OwnView { source: SourceView::Raise { until }, .. }) = &limits.own {
                p { "Its limits are raised until " (date(*until)) "." }
            }
            @if let Some(own) = &limits.own {
                section.wide data-key="limits" { h2 { "Limits" } (limit_table(&own.units)) }
            }
            @for (unit, chart) in &self.charts {
                section.wide data-key={ "past " (unit) } {
                    h2 { "Leased in the last 10 minutes" small { (unit_words(unit)) } }
                    (chart.figure(&format!("Leased {unit} of the busiest members, one above the other")))
                }
            }
            (table.section("Members"))
        }
    }
}

// === free functions ===

/// Use of the group's capacity, and its first division.
fn used(group: &GroupStatus) -> Markup {
    html! {
        p {
            (counted(group.attached_count, "attachment"))
            " of tenants and namespaces; its capacity is divided between " (group.fair_between)
            " first."
        }
        @for (unit, sums) in &group.units {
            p.verdict data-key=(unit) { (sentence(unit, sums)) }
            (quota::quotas(unit, &sums.quotas))
        }
    }
}

fn sentence(unit: &str, used: &GroupUnit) -> Markup {
    let amount = |value| amount(unit, value);
    let rate = |value: Amount| value.text_as(unit, used.written.as_deref());
    let words = match used.written {
        None => unit_words(unit),
        Some(_) => unit_words_alone(unit),
    };
    let wants = rate(used.sum_wants.into());
    html! {
        @match &used.bucket {
            Some(bucket) => {
                strong { (amount(bucket.left.into())) " of " (amount(bucket.burst.into())) " tokens" } " are left, "
                (amount(bucket.held.into())) " are with clients; of " (rate(used.capacity)) " " (words) " "
                (wants) " are wanted"
            }
            None => {
                strong { (rate(used.sum_has.into())) " of " (rate(used.capacity)) } " " (words)
                " are leased, and " (wants) " are wanted"
            }
        }
        @if used.member_count > 0 { " by " (counted(used.member_count, "member")) }
        "."
    }
}
