//! Query of the table of resources: what a person searches, and in which order.

use serde::Deserialize;
use tollgate_core::lease::Unit;
use utoipa::{IntoParams, ToSchema};

use super::sorting::{Column, Sorting, order_name};
use crate::extract::count;
use crate::problem::RestError;
use crate::stats::{ResourceSelection, ResourceSort, SortOrder};
use crate::status::RESOURCES_MAX;

/// The longest search, in characters: no scope is longer.
const SEARCH_LEN_MAX: usize = 256;

/// Choices for the number of rows.
pub(super) const LIMITS: [usize; 3] = [50, 100, 200];

/// Orders of the table, each with its name for people.
pub(super) const SORTS: [(ResourceSort, &str); 7] = [
    (ResourceSort::Pressure, "wanted of limit"),
    (ResourceSort::Scope, "scope"),
    (ResourceSort::Leased, "leased"),
    (ResourceSort::Capacity, "limit"),
    (ResourceSort::Wanted, "wanted"),
    (ResourceSort::Clients, "clients"),
    (ResourceSort::Waiting, "throttled"),
];

/// The search, order and size of the table of resources.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TableQuery {
    /// Only scopes with this text in them, whatever the case.
    #[serde(default)]
    #[param(max_length = 256)]
    q: String,
    /// The order.
    #[serde(default)]
    #[param(inline)]
    sort: ResourceSort,
    /// The direction; each order has its own by default.
    #[param(inline)]
    order: Option<SortOrder>,
    /// Only resources of this unit; empty for all.
    #[serde(default)]
    #[param(
        value_type = String, pattern = "^(requests|request_bytes|response_bytes|concurrency)?$"
    )]
    unit: UnitChoice,
    /// Only resources with throttled clients.
    #[param(inline)]
    only: Option<Only>,
    /// The most resources.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

/// A unit, or all of them, as a form says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UnitChoice {
    #[default]
    #[serde(rename = "")]
    All,
    Requests,
    RequestBytes,
    ResponseBytes,
    Concurrency,
}

/// A restriction of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Only {
    /// Resources with throttled clients.
    Throttled,
}

// === impl TableQuery ===

impl TableQuery {
    /// Returns what the query selects, and how many of it.
    ///
    /// # Errors
    /// If the search is too long, or too many resources are to be shown.
    pub(super) fn checked(&self) -> Result<(ResourceSelection, usize), RestError> {
        if self.q.chars().count() > SEARCH_LEN_MAX {
            let rule = format!("has more than {SEARCH_LEN_MAX} characters");
            return Err(RestError::parameter("q", &self.q, rule));
        }
        let mut selection = ResourceSelection::busiest();
        selection.unit = self.unit();
        selection.throttled_only = self.is_throttled_only();
        let selection = selection
            .searching(self.q.trim())
            .sorted_by(self.sort, self.order);
        Ok((selection, count("limit", self.limit(), RESOURCES_MAX)?))
    }

    /// The searched text.
    pub(super) fn search(&self) -> &str {
        &self.q
    }

    /// The only unit, if there is one.
    pub(super) fn unit(&self) -> Option<Unit> {
        match self.unit {
            UnitChoice::All => None,
            UnitChoice::Requests => Some(Unit::Requests),
            UnitChoice::RequestBytes => Some(Unit::RequestBytes),
            UnitChoice::ResponseBytes => Some(Unit::ResponseBytes),
            UnitChoice::Concurrency => Some(Unit::Concurrency),
        }
    }

    /// Whether only resources with throttled clients are shown.
    pub(super) fn is_throttled_only(&self) -> bool {
        self.only == Some(Only::Throttled)
    }

    /// The most resources.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMITS[0])
    }

    /// Whether not all resources may be shown because the query says so.
    pub(super) fn is_restricted(&self) -> bool {
        !self.q.trim().is_empty() || self.unit != UnitChoice::All || self.is_throttled_only()
    }

    /// The order.
    pub(super) fn sort(&self) -> ResourceSort {
        self.sort
    }

    /// The direction.
    pub(super) fn order(&self) -> SortOrder {
        let first = self.sort.first_order();
        self.order.unwrap_or(first)
    }

    /// Returns the order of the table on the page of `path`.
    pub(super) fn sorting(&self, path: &str) -> Sorting {
        let only = if self.is_throttled_only() {
            "throttled"
        } else {
            ""
        };
        let limit = self.limit.map(|limit| limit.to_string());
        let hidden = vec![
            ("q", self.q.clone()),
            ("unit", self.unit().map_or("", Unit::name).to_owned()),
            ("only", only.to_owned()),
            ("limit", limit.unwrap_or_default()),
        ];
        Sorting {
            path: path.to_owned(),
            hidden,
            by: self.sort.name(),
            order: self.order(),
        }
    }
}

// === free functions ===

/// Returns the column of the table that `sort` is for.
pub(super) fn column(sort: ResourceSort) -> Column {
    let found = SORTS.iter().find(|(one, _)| *one == sort);
    Column {
        key: sort.name(),
        title: found.map_or("", |(_, title)| title),
        first: sort.first_order(),
    }
}

/// Returns the values of `order`, each with its name for people.
pub(super) fn orders() -> [(&'static str, &'static str); 2] {
    [SortOrder::Desc, SortOrder::Asc].map(|order| {
        let name = match order {
            SortOrder::Asc => "least first",
            SortOrder::Desc => "most first",
        };
        (order_name(order), name)
    })
}
