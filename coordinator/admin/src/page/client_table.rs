//! Table of the clients of one resource.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::sorting::{Column, Sorting};
use super::text::{amount, client_name, count, counted, duration, scope_path};
use super::verdict::since_when;
use crate::lease_view::{Amount, ResourceClient, UnitDetail};
use crate::stats::SortOrder;

/// The order of the clients on the page of a scope.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ClientQuery {
    /// The column that the clients are sorted by.
    #[serde(default)]
    #[param(inline)]
    sort: ClientSort,
    /// The direction; each column has its own by default.
    #[param(inline)]
    order: Option<SortOrder>,
}

/// Order of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClientSort {
    /// By the time for which they have been throttled; the longest first.
    #[default]
    Throttled,
    /// By id.
    Client,
    /// By the amount that they have; the largest first.
    Leased,
    /// By the amount that they want; the largest first.
    Wanted,
    /// By the time until their leases expire.
    Expires,
}

/// Clients of one resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientTable<'a> {
    pub(super) scope: &'a str,
    pub(super) unit: &'a str,
    pub(super) detail: &'a UnitDetail,
    pub(super) query: ClientQuery,
}

// === impl ClientSort ===

impl ClientSort {
    const fn column(self) -> Column {
        let (key, title, first) = match self {
            Self::Throttled => ("throttled", "throttled", SortOrder::Desc),
            Self::Client => ("client", "client", SortOrder::Asc),
            Self::Leased => ("leased", "has", SortOrder::Desc),
            Self::Wanted => ("wanted", "wants", SortOrder::Desc),
            Self::Expires => ("expires", "lease expires in", SortOrder::Desc),
        };
        Column { key, title, first }
    }

    /// Compares two clients by this column alone.
    fn compare(self, one: &ResourceClient, other: &ResourceClient) -> Ordering {
        let number = |amount| match amount {
            Amount::Number(value) => value,
            Amount::Unlimited => f64::INFINITY,
        };
        match self {
            // Those that are throttled come after those that are not.
            Self::Throttled => one.throttled_for_ms.cmp(&other.throttled_for_ms),
            Self::Client => one.client.cmp(&other.client),
            Self::Leased => number(one.has).total_cmp(&number(other.has)),
            Self::Wanted => number(one.wants).total_cmp(&number(other.wants)),
            Self::Expires => one.expires_in_ms.cmp(&other.expires_in_ms),
        }
    }
}

// === impl ClientTable ===

impl ClientTable<'_> {
    /// Returns the table, with the number of clients.
    pub(super) fn table(&self) -> Markup {
        let sorting = self.sorting();
        let head = |sort: ClientSort| sorting.head(sort.column());
        let (shown, all) = (self.detail.clients.len(), self.detail.summary.client_count);
        html! {
            p {
                @if shown == all {
                    (counted(all, "client"))
                } @else {
                    (count(shown)) " of " (counted(all, "client")) ", those throttled for longest, then those with most"
                }
            }
            table.rows aria-label={ "clients of " (self.unit) } {
                thead { tr {
                    (head(ClientSort::Client)) (head(ClientSort::Leased)) (head(ClientSort::Wanted))
                    (head(ClientSort::Throttled)) (head(ClientSort::Expires))
                } }
                tbody { @for (run, client) in self.sorted() { (self.row(run, client)) } }
            }
        }
    }

    fn sorting(&self) -> Sorting {
        let column = self.query.sort.column();
        Sorting {
            path: scope_path(self.scope),
            hidden: Vec::new(),
            by: column.key,
            order: self.query.order.unwrap_or(column.first),
        }
    }

    /// Returns the clients in the order of the query. One that has started again has a row for each
    /// run, with numbers from 1.
    fn sorted(&self) -> Vec<(usize, &ResourceClient)> {
        let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
        let clients = self.detail.clients.iter().map(|client| {
            let run = runs.entry(&client.client).or_default();
            *run += 1;
            (*run, client)
        });
        let mut clients: Vec<_> = clients.collect();
        let sort = self.query.sort;
        let first = sort.column().first;
        match self.query.order.unwrap_or(first) {
            SortOrder::Asc => clients.sort_by(|(_, one), (_, other)| sort.compare(one, other)),
            SortOrder::Desc => clients.sort_by(|(_, one), (_, other)| sort.compare(other, one)),
        }
        clients
    }

    fn row(&self, run: usize, client: &ResourceClient) -> Markup {
        let amount = |value| amount(self.unit, value);
        html! {
            tr.throttled[client.throttled_for_ms.is_some()] data-key={ (run) " " (client.client) } {
                th scope="row" { (client_name(&client.client)) }
                td.num data-label="has" { (amount(client.has)) }
                td.num data-label="wants" { (amount(client.wants)) }
                td.num.mark data-label="throttled" {
                    @match client.throttled_for_ms {
                        Some(time) => {
                            strong.flag { "throttled" }
                            small { "for " (duration(time)) ", since " (since_when(time)) }
                        }
                        None => { span.dim { "no" } }
                    }
                }
                td.num data-label="lease expires in" { (duration(client.expires_in_ms)) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
