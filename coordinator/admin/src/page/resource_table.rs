//! Table of resources, with the form that searches it.

use maud::{Markup, html};
use tollgate_core::lease::Unit;

use super::bar::bar;
use super::legend;
use super::query::{LIMITS, SORTS, TableQuery, column, orders};
use super::sorting::order_name;
use super::text::{Text, amount, count, counted, duration, name, owner, scope_path};
use crate::lease_view::BusyResource;
use crate::stats::ResourceSort;

/// Some resources, as a table.
#[derive(Clone, Copy)]
pub(super) struct ResourceTable<'a> {
    /// The path of the page with the table.
    pub(super) path: &'a str,
    /// The query that they are the answer to.
    pub(super) query: &'a TableQuery,
    /// The first that the query selects.
    pub(super) resources: &'a [BusyResource],
    /// Number of those that it selects.
    pub(super) match_count: usize,
    /// The weights of members of a group; none of other scopes.
    pub(super) weight: Option<Weight<'a>>,
}

/// Tells the weight of a member by its scope.
pub(super) type Weight<'a> = &'a dyn Fn(&str) -> Option<u32>;

// === impl ResourceTable ===

impl ResourceTable<'_> {
    /// Returns the form and the table.
    pub(super) fn section(&self, title: &str) -> Markup {
        html! {
            section.wide data-key="resources" {
                h2 { (title) }
                (self.form())
                p #count data-key="count" { (self.count()) }
                @if !self.resources.is_empty() {
                    (legend::bars())
                    (self.table(title))
                }
            }
        }
    }

    /// `50 of 2 004 resources`.
    fn count(&self) -> String {
        let (shown, all) = (self.resources.len(), self.match_count);
        let matching = match (self.query.is_restricted(), all) {
            (false, _) => "",
            (true, 1) => " that matches",
            (true, _) => " that match",
        };
        match (shown, all) {
            (_, 0) if self.query.is_restricted() => "No resource matches.".to_owned(),
            (_, 0) => "No client has or wants a lease.".to_owned(),
            _ if shown == all => format!("{}{matching}", counted(all, "resource")),
            _ => format!("{} of {}{matching}", count(shown), counted(all, "resource")),
        }
    }

    fn form(&self) -> Markup {
        let query = self.query;
        let sort = query.sort().name();
        let units = Unit::ALL.map(|unit| (unit.name(), unit.name()));
        let unit = query.unit().map_or("", Unit::name);
        let sorts = SORTS.map(|(sort, title)| (sort.name(), title));
        let limits = LIMITS.map(|limit| limit.to_string());
        let limits = limits.each_ref().map(|limit| (&**limit, &**limit));
        let all = [("", "all units")];
        html! {
            form role="search" method="get" action=(self.path) data-key="search" {
                label.grow {
                    span { "search scopes" }
                    input #q type="search" name="q" value=(Text(query.search())) maxlength="256"
                        autocomplete="off" spellcheck="false" placeholder="tenant/acme";
                }
                label { span { "unit" } (select("unit", all.into_iter().chain(units), unit)) }
                label { span { "sort by" } (select("sort", sorts, sort)) }
                label { span { "order" } (select("order", orders(), order_name(query.order()))) }
                label { span { "show" } (select("limit", limits, &query.limit().to_string())) }
                label.check {
                    input type="checkbox" name="only" value="throttled"
                        checked[query.is_throttled_only()];
                    span { "throttled only" }
                }
                noscript { button { "Search" } }
            }
        }
    }

    fn table(&self, title: &str) -> Markup {
        let sorting = self.query.sorting(self.path);
        let head = |sort: ResourceSort| sorting.head(column(sort));
        html! {
            table.rows aria-label=(title) {
                thead { tr {
                    (head(ResourceSort::Scope))
                    th scope="col" { "unit" }
                    @if self.weight.is_some() { th.num scope="col" { "weight" } }
                    (head(ResourceSort::Leased))
                    (head(ResourceSort::Capacity))
                    (head(ResourceSort::Wanted))
                    (head(ResourceSort::Pressure))
                    (head(ResourceSort::Clients))
                    (head(ResourceSort::Waiting))
                    th scope="col" { "limited by" }
                } }
                tbody { @for resource in self.resources { (self.row(resource)) } }
            }
        }
    }

    fn row(&self, resource: &BusyResource) -> Markup {
        let BusyResource {
            scope,
            unit,
            summary,
            waiting_count,
            ..
        } = resource;
        let amount = |value| summary.text(unit, value);
        let path = scope_path(scope);
        html! {
            tr.throttled[*waiting_count > 0 || summary.traffic.refused_per_second > 0.0] data-key={ (unit) " " (path) } {
                th scope="row" { a href=(path) { (name(scope)) } }
                td.unit { (Text(unit)) }
                @if let Some(weight) = self.weight {
                    td.num data-label="weight" { @if let Some(weight) = weight(scope) { (weight) } }
                }
                td.num data-label="leased" { (amount(summary.sum_has)) }
                td.num data-label="limit" { (amount(summary.at_most())) }
                td.num data-label="wanted" { (amount(summary.sum_wants)) }
                td.shape { (bar(summary)) }
                td.num data-label="clients" { (count(summary.client_count)) }
                td.num.mark data-label="throttled" { (throttled(resource)) }
                td.owner data-label="limited by" {
                    @if let Some(limited_by) = &summary.limited_by { (owner(&limited_by.whose)) }
                    @if summary.learning_ms > 0 {
                        small { "learning for " (duration(summary.learning_ms)) }
                    }
                }
            }
        }
    }
}

// === free functions ===

/// Refused requests, and the clients that get less than they want, and since when.
fn throttled(resource: &BusyResource) -> Markup {
    let refused = resource.summary.traffic.refused_per_second;
    if refused > 0.0 {
        let refused = amount(&resource.unit, refused.into());
        return html! { strong.flag { (refused) " refused" } small { "a second" } };
    }
    if resource.waiting_count == 0 {
        return html! { span.dim { "none" } };
    }
    html! {
        strong.flag { (count(resource.waiting_count)) " throttled" }
        @if let Some(time) = resource.throttled_for_ms {
            small { "for " (duration(time)) }
        }
    }
}

/// Returns a choice of `options`, values with their names, of which `chosen` is chosen.
fn select<'a>(
    field: &str,
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
    chosen: &str,
) -> Markup {
    html! {
        select name=(field) {
            @for (value, title) in options {
                option value=(value) selected[value == chosen] { (title) }
            }
        }
    }
}
