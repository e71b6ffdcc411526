//! Status page: how the coordinator is doing, over the last minutes and now.

use axum::extract::State;
use maud::{Markup, html};
use tollgate_core::lease::Unit;

use super::Page;
use super::chart::BANDS_MAX;
use super::query::TableQuery;
use super::resource_table::ResourceTable;
use super::text::{Text, amount, count, duration, group_path, name, number, unit_words};
use super::{cluster, parent, past};
use crate::App;
use crate::extract::Query;
use crate::history::HistoryOverview;
use crate::history::route;
use crate::lease_view::Amount;
use crate::openapi::{BadRequest, ReadLeases};
use crate::peers::Caller;
use crate::problem::RestError;
use crate::stats::ResourceStats;
use crate::status::{GroupStatus, GroupUnit, Shown, Status};

/// Clients of each row: the table shows none, but the query has no smaller number.
pub(super) const CLIENTS: usize = 1;

/// Resources whose past each node is asked for: as many as the chart has bands, for each unit, since
/// the status decides about the unit.
const OF_PAST: usize = BANDS_MAX * Unit::ALL.len();

/// The status page.
#[utoipa::path(
    get, path = "/", operation_id = "getStatusPage", tag = "pages", params(TableQuery),
    responses(
        (status = 200, description = "HTML", body = str, content_type = "text/html"),
        ReadLeases, BadRequest
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    Query(query): Query<TableQuery>,
    caller: Caller,
) -> Result<Page, RestError> {
    let (selection, resources) = query.checked()?;
    let shown = Shown {
        resources,
        clients: CLIENTS,
        selection,
    };
    let of_past = (OF_PAST, query.unit());
    let (status, past) = tokio::join!(
        Status::everywhere(&app, &caller, shown, true),
        route::overview(&app, &caller, of_past, true),
    );
    Ok(Page::live("Status", main(&status?, &past, &query)))
}

/// Returns the content of the page.
pub(super) fn main(status: &Status, past: &HistoryOverview, query: &TableQuery) -> Markup {
    let table = ResourceTable {
        path: "/",
        query,
        resources: &status.busiest,
        match_count: status.match_count,
        weight: None,
    };
    html! {
        h1 { "Status" }
        (unanswered(&status.unanswered))
        (facts(status))
        (shares(status, past, query))
        (units(status))
        (groups(status))
        (unmatched(status))
        @if let Some(parent) = &status.parent { (parent::parent(parent)) }
        @if let Some(cluster) = &status.cluster { (cluster::cluster(cluster)) }
        (table.section("Resources"))
    }
}

/// Names the nodes of the cluster that are missing on a page.
pub(super) fn unanswered(nodes: &[String]) -> Markup {
    html! {
        @if !nodes.is_empty() {
            p.alert data-key="unanswered" {
                "These nodes did not answer, so their part is missing: " (Text(&nodes.join(", ")))
            }
        }
    }
}

fn facts(status: &Status) -> Markup {
    let sum = |part: fn(&ResourceStats) -> usize| {
        let parts = status.units.values().map(part);
        count(parts.sum::<usize>())
    };
    let facts = [
        ("refreshes per second", number(status.refreshes_per_second)),
        ("resources", sum(|unit| unit.resources)),
        ("clients", count(status.client_count)),
        ("throttled leases", sum(|unit| unit.waiting)),
        ("learning resources", sum(|unit| unit.learning)),
        ("groups", count(status.group_count)),
        ("up", duration(status.uptime_ms)),
        ("epoch", status.epoch.to_string()),
    ];
    html! {
        dl.facts data-key="facts" {
            @for (name, value) in facts { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// The chart of the shares: of the unit that is searched, else of the one with the most resources.
fn shares(status: &Status, past: &HistoryOverview, query: &TableQuery) -> Markup {
    let most = status.units.iter().max_by_key(|(_, sums)| sums.resources);
    let most = most.map(|(unit, _)| &**unit);
    let unit = query.unit().map(Unit::name).or(most);
    let chart = unit.and_then(|unit| past::of_scopes(past, unit));
    html! {
        @if let (Some(unit), Some(chart)) = (unit, chart) {
            section.wide data-key="shares" {
                h2 { "Leased in the last 10 minutes" small { (unit_words(unit)) } }
                (chart.figure(&format!("Leased {unit} of the busiest scopes, one above the other")))
            }
        }
    }
}

fn units(status: &Status) -> Markup {
    if status.units.is_empty() {
        return html! {};
    }
    let mut units: Vec<_> = status.units.iter().collect();
    units.sort_by_key(|(_, sums)| sums.waiting == 0);
    html! {
        section.side data-key="units" {
            h2 { "Units" }
            table {
                thead { tr {
                    th scope="col" { "unit" }
                    th.num scope="col" { "leased" } th.num scope="col" { "limits" }
                    th.num scope="col" { "wanted" } th.num scope="col" { "throttled" }
                } }
                tbody { @for (unit, sums) in units { (unit_row(unit, sums)) } }
            }
        }
    }
}

fn unit_row(unit: &str, sums: &ResourceStats) -> Markup {
    let amount = |value: f64| amount(unit, value.into());
    html! {
        tr {
            th scope="row" { (Text(unit)) }
            td.num { (amount(sums.has)) }
            td.num { (amount(sums.capacity)) }
            td.num { (amount(sums.wants)) }
            td.num { @if sums.waiting > 0 { strong.flag { (count(sums.waiting)) } } @else { "none" } }
        }
    }
}

fn groups(status: &Status) -> Markup {
    if status.groups.is_empty() {
        return html! {};
    }
    let more = status.group_count.saturating_sub(status.groups.len());
    html! {
        section.side data-key="groups" {
            h2 { "Groups" }
            table {
                thead { tr {
                    th scope="col" { "group" } th.num scope="col" { "attached" }
                    th scope="col" { "fair between" } th.num scope="col" { "leased, or left, of limit" }
                } }
                tbody { @for group in &status.groups { (group_row(group)) } }
            }
            @if more > 0 {
                p { (count(status.groups.len())) " of " (count(status.group_count)) " groups" }
            }
        }
    }
}

/// The limits that match no rule of any client.
fn unmatched(status: &Status) -> Markup {
    let limits = &status.unmatched_limits;
    let Some(rules) = status.rules.as_ref().filter(|_| !limits.is_empty()) else {
        return html! {};
    };
    let time = duration(rules.known_for_ms);
    html! {
        section.wide data-key="unmatched" {
            h2 { "Limits of unknown rules" }
            table {
                thead { tr {
                    th scope="col" { "match" } th scope="col" { "written as" } th scope="col" { "reason" }
                } }
                tbody { @for limit in limits { tr {
                    th scope="row" { strong.flag { (name(&limit.r#match)) } }
                    td { (limit.source.name()) }
                    td { (Text(&limit.reason(&time))) }
                } } }
            }
            @if status.unmatched_limit_count > limits.len() {
                p { (count(limits.len())) " of " (count(status.unmatched_limit_count)) " limits" }
            }
        }
    }
}

fn group_row(group: &GroupStatus) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(group_path(&group.name)) { (name(&group.name)) } }
            td.num { (count(group.attached_count)) }
            td { (Text(&group.fair_between)) }
            td.num { @for (unit, used) in &group.units { (group_unit(unit, used)) } }
        }
    }
}

fn group_unit(unit: &str, used: &GroupUnit) -> Markup {
    html! {
        div {
            @match &used.bucket {
                Some(bucket) => { (amount(unit, bucket.left.into())) " left of " (amount(unit, bucket.burst.into())) " " }
                None => {
                    @let written = used.written.as_deref();
                    (Amount::from(used.sum_has).text_as(unit, written)) " of " (used.capacity.text_as(unit, written)) " "
                }
            }
            span.dim { (Text(unit)) }
        }
    }
}
