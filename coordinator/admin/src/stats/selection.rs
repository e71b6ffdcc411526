//! Choice and order of the resources that a scan returns.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Deserialize;
use tollgate_config::catalog::Catalog;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::resource::Resource;
use tollgate_core::units::{Capacity, MICRO};
use utoipa::ToSchema;

use super::rank::{Rank, RankedId};
use crate::lease_view::{Amount, BusyResource};

/// Resources that a scan returns, and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceSelection {
    /// Part of the scope's id in lower case, see [`Self::searching`]; empty for all scopes.
    pub search: String,
    /// The only unit; `None` for all units.
    pub unit: Option<Unit>,
    /// Whether only resources with clients that get less than they want are returned.
    pub throttled_only: bool,
    /// The only group; `None` for all scopes.
    pub group: Option<GroupScopes>,
    /// Order of the resources.
    pub sort: ResourceSort,
    /// Whether the order is the other way round than [`ResourceSort`] says.
    pub is_reversed: bool,
}

/// Scopes that share a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupScopes {
    catalog: Arc<Catalog>,
    name: Arc<str>,
}

/// Order of resources. Ties are in the order of scopes and units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResourceSort {
    /// By the wanted part of the binding limit, then by the wanted amount; the busiest first.
    #[default]
    Pressure,
    /// By scope, then by unit.
    Scope,
    /// By the most that the binding limit lets clients have; the largest first.
    Capacity,
    /// By the amount that clients have; the largest first.
    Leased,
    /// By the amount that clients want; the largest first.
    Wanted,
    /// By the number of clients that get less than they want; the largest first.
    Waiting,
    /// By the number of clients; the largest first.
    Clients,
}

/// Direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SortOrder {
    /// The smallest first.
    Asc,
    /// The largest first.
    Desc,
}

/// Figures by which resources are ordered; amounts in micro-units.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SortFigures {
    /// The most that the binding limit lets clients have.
    pub(super) at_most: u128,
    pub(crate) has: u128,
    pub(crate) wants: u128,
    pub(super) waiting: usize,
    pub(super) clients: usize,
}

// === impl ResourceSelection ===

impl ResourceSelection {
    /// All resources, the busiest first.
    pub(crate) const fn busiest() -> Self {
        Self {
            search: String::new(),
            unit: None,
            throttled_only: false,
            group: None,
            sort: ResourceSort::Pressure,
            is_reversed: false,
        }
    }

    /// Returns the same of scopes with `text` in their ids, whatever the case.
    #[must_use]
    pub(crate) fn searching(self, text: &str) -> Self {
        let search = text.to_lowercase();
        Self { search, ..self }
    }

    /// Returns the same in the order of `sort`: in its own direction unless `order` names one.
    #[must_use]
    pub(crate) fn sorted_by(self, sort: ResourceSort, order: Option<SortOrder>) -> Self {
        let is_reversed = order.is_some_and(|order| order != sort.first_order());
        Self {
            sort,
            is_reversed,
            ..self
        }
    }

    /// Whether the resource of `scope` and `unit` with so many `waiting` clients is in it.
    pub(super) fn admits(&self, scope: &str, unit: Unit, waiting: usize) -> bool {
        self.unit.is_none_or(|only| only == unit)
            && (waiting > 0 || !self.throttled_only)
            && has_text(scope, &self.search)
            && self.group.as_ref().is_none_or(|group| group.has(scope))
    }

    /// Whether `resource` is in it.
    fn contains(&self, resource: &BusyResource) -> bool {
        let unit = Unit::from_name(&resource.unit);
        unit.is_some_and(|unit| self.admits(&resource.scope, unit, resource.waiting_count))
    }

    /// Place of the resource called `id` in the order.
    pub(crate) fn rank(&self, figures: &SortFigures, id: ResourceId) -> Rank {
        let is_descending = (self.sort.first_order() == SortOrder::Desc) != self.is_reversed;
        let figures = self.sort.figures(figures);
        Rank {
            // In descending order the larger figure has the smaller rank.
            figures: figures.map(|figure| if is_descending { !figure } else { figure }),
            id: match self.sort {
                ResourceSort::Scope if is_descending => RankedId::Descending(Reverse(id)),
                _ => RankedId::Ascending(id),
            },
        }
    }

    /// Brings `resources` of several nodes into the order, without those that are not in it.
    pub(crate) fn arrange(&self, resources: &mut Vec<BusyResource>) {
        resources.retain(|resource| self.contains(resource));
        resources.sort_by_cached_key(|resource| {
            // A resource with a unit of a later version is not in any selection.
            let unit = Unit::from_name(&resource.unit).unwrap_or(Unit::Requests);
            let scope = resource.scope.as_str().into();
            self.rank(&SortFigures::from(resource), ResourceId { scope, unit })
        });
    }
}

// === impl GroupScopes ===

impl GroupScopes {
    /// The scopes that share the group called `name` by `catalog`.
    pub(crate) fn new(catalog: Arc<Catalog>, name: &str) -> Self {
        let name = name.into();
        Self { catalog, name }
    }

    /// The name of the group.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether `scope` shares the group.
    pub(crate) fn has(&self, scope: &str) -> bool {
        self.catalog.shares(scope, &self.name)
    }
}

impl PartialEq for GroupScopes {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for GroupScopes {}

// === impl ResourceSort ===

impl ResourceSort {
    /// The name in queries.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pressure => "pressure",
            Self::Scope => "scope",
            Self::Capacity => "capacity",
            Self::Leased => "leased",
            Self::Wanted => "wanted",
            Self::Waiting => "waiting",
            Self::Clients => "clients",
        }
    }

    /// The direction in which people first want it.
    pub(crate) const fn first_order(self) -> SortOrder {
        match self {
            Self::Scope => SortOrder::Asc,
            _ => SortOrder::Desc,
        }
    }

    fn figures(self, figures: &SortFigures) -> [u128; 2] {
        match self {
            Self::Pressure => [figures.wanted_milli(), figures.wants],
            Self::Scope => [0, 0],
            Self::Capacity => [figures.at_most, 0],
            Self::Leased => [figures.has, 0],
            Self::Wanted => [figures.wants, 0],
            Self::Waiting => [figures.waiting as u128, 0],
            Self::Clients => [figures.clients as u128, 0],
        }
    }
}

// === impl SortFigures ===

impl SortFigures {
    /// Figures of `resource`, of which the clients may have `at_most` and so many are `waiting`.
    pub(crate) fn of(resource: &Resource, at_most: Capacity, waiting: usize) -> Self {
        Self {
            at_most: at_most.as_micros().into(),
            has: resource.sum_has(),
            wants: resource.sum_wants(),
            waiting,
            clients: resource.client_count(),
        }
    }

    /// Wanted part of the binding limit, in thousandths; 0 without a limit.
    fn wanted_milli(&self) -> u128 {
        let wanted = self.wants.saturating_mul(1000);
        match wanted.checked_div(self.at_most) {
            _ if self.at_most >= u128::from(Capacity::UNLIMITED.as_micros()) => 0,
            Some(part) => part,
            // A blocked scope that is wanted is as busy as can be.
            None if self.wants > 0 => u128::MAX,
            None => 0,
        }
    }
}

impl From<&BusyResource> for SortFigures {
    fn from(resource: &BusyResource) -> Self {
        let micros = |amount| match amount {
            // A float that is too large becomes the largest number.
            Amount::Number(units) => (units * MICRO as f64) as u128,
            Amount::Unlimited => Capacity::UNLIMITED.as_micros().into(),
        };
        Self {
            at_most: micros(resource.summary.at_most()),
            has: micros(resource.summary.sum_has),
            wants: micros(resource.summary.sum_wants),
            waiting: resource.waiting_count,
            clients: resource.summary.client_count,
        }
    }
}

// === free functions ===

/// Whether `text`, which is in lower case, is in `scope`, whatever its case. The driver asks for each
/// resource of a scan, so nothing is allocated for a scope in ASCII, as nearly all are.
fn has_text(scope: &str, text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    if !scope.is_ascii() {
        return scope.to_lowercase().contains(text);
    }
    let (scope, text) = (scope.as_bytes(), text.as_bytes());
    let mut parts = scope.windows(text.len());
    parts.any(|part| part.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests;
