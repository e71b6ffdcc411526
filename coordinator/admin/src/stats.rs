//! Sums over all lease tables of a node, and the first resources in some order.
//!
//! The driver answers no client while somebody looks at its lease table, so a scan goes in steps
//! and clients are answered between them. Its result is therefore not one state of the table:
//! changes made meanwhile may be in it or not.

#![allow(unused_qualifications, reason = "utoipa's macros name types twice")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::{Catalog, GroupKind, OverrideKind};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Demand, ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::pool::Pool;
use tollgate_core::resource::Resource;
use tollgate_core::tree::ParentLeaseView;
use tollgate_core::units::{Capacity, Instant};
use tollgate_leases::DriverError;
use tollgate_leases::shards::Shards;
use utoipa::ToSchema;

use crate::lease_view::{TrafficView, tokens, units, waiting};

mod metrics;
mod rank;
mod scan;
mod selection;
mod unit_sums;

pub(super) use self::rank::FirstResources;
use self::scan::StatsScan;
pub(super) use self::selection::SortFigures;
pub(crate) use self::selection::{GroupScopes, ResourceSelection, ResourceSort, SortOrder};
pub(super) use self::unit_sums::UnitSums;

/// The most scopes with figures of their own.
pub(crate) const NAMED_MAX: usize = 200;

/// Scopes with figures of their own: those that the file or the API names. Requests can add none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedScopes(Arc<BTreeSet<Arc<str>>>);

/// Result of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseStats {
    /// Sums over all resources of a unit, in which a group's capacity counts once.
    pub units: BTreeMap<Unit, ResourceStats>,
    /// The resources of named scopes.
    pub named: BTreeMap<ResourceId, ResourceStats>,
    /// Sums over all resources that are not named.
    pub other: BTreeMap<Unit, ResourceStats>,
    /// The first resources of the selection, in its order, with their figures.
    pub first: Vec<(ResourceId, ResourceStats)>,
    /// Number of resources in the selection.
    pub matching: usize,
    /// Number of clients, each counted once.
    pub clients: usize,
    /// Number of resources in learning mode, by shard of this node.
    pub learning: BTreeMap<ShardId, usize>,
    /// Sums of leases from the parent.
    pub borrowed: BTreeMap<Unit, BorrowedStats>,
    /// Tokens that clients have drawn of limits that are not leased.
    pub drawn: f64,
}

/// Sums of leases from the parent, for one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BorrowedStats {
    /// Capacity lent by the parent now, in units, over the resources that it limits.
    pub capacity: f64,
    /// Number of resources that it does not limit.
    pub unlimited: usize,
    /// Wants, in units, by priority.
    pub wants: BTreeMap<u8, f64>,
}

/// Figures of one resource, or sums over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[schema(as = UnitStatus, description = "Sums over all resources of a unit.")]
pub struct ResourceStats {
    /// Resources with clients.
    #[serde(rename = "resource_count")]
    pub resources: usize,
    /// Those of them without a limit of their own, a group or a parent that limits them.
    #[serde(rename = "unlimited_count")]
    pub unlimited: usize,
    /// Their clients; a client of two resources counts twice.
    #[serde(rename = "client_count")]
    pub clients: usize,
    /// Clients that get less than they want.
    #[serde(rename = "waiting_count")]
    pub waiting: usize,
    /// Resources in learning mode.
    #[serde(rename = "learning_count")]
    pub learning: usize,
    /// The capacity of those with a limit.
    #[schema(minimum = 0)]
    pub capacity: f64,
    /// The amount that the clients of those may be using.
    #[serde(rename = "sum_has")]
    #[schema(minimum = 0)]
    pub has: f64,
    /// The amount that all clients want.
    #[serde(rename = "sum_wants")]
    #[schema(minimum = 0)]
    pub wants: f64,
    /// Attempts at clients in the last ten to twenty seconds, a second.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub attempts_per_second: f64,
    /// The part of these that was refused.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub refused_per_second: f64,
}

// === impl NamedScopes ===

impl NamedScopes {
    /// The scopes that `catalog` names: exact ids of the file, groups, overrides.
    pub(crate) fn of(catalog: &Catalog) -> Self {
        let mut exact: Vec<Arc<str>> = catalog
            .file()
            .limits
            .exact_scopes()
            .map(Arc::from)
            .collect();
        exact.sort_unstable();
        let groups = catalog
            .list(GroupKind, "")
            .map(|entry| entry.value.scope().clone());
        let overrides = catalog.list(OverrideKind, "").map(|entry| entry.name);
        Self::new(exact.into_iter().chain(groups).chain(overrides))
    }

    /// Figures of the pools of named groups.
    fn pools(&self, node: &LeaseServer) -> Vec<(ResourceId, ResourceStats)> {
        let ids = self.0.iter().flat_map(|scope| {
            let id = |unit| ResourceId {
                scope: scope.clone(),
                unit,
            };
            Unit::ALL.map(id)
        });
        let pool = |id: ResourceId| Some((id.clone(), ResourceStats::of_pool(node.pool(&id)?)));
        ids.filter_map(pool).collect()
    }

    /// Takes the first [`NAMED_MAX`] of `scopes`.
    pub(crate) fn new(scopes: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self(Arc::new(scopes.into_iter().take(NAMED_MAX).collect()))
    }
}

// === impl LeaseStats ===

impl LeaseStats {
    /// Scans the lease tables of `shards`, and remembers the first `first_max` resources of
    /// `selection`.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub(crate) async fn of(
        shards: &Shards,
        named: NamedScopes,
        selection: ResourceSelection,
        first_max: usize,
    ) -> Result<Self, DriverError> {
        let scan = StatsScan::new(named.clone(), selection, first_max);
        let mut stats = shards.visit(scan).await?.end();
        let of_node = move |node: &LeaseServer, _: Instant| (named.pools(node), node.drawn());
        for (pools, drawn) in shards.view(of_node).await? {
            // A pool is not a resource: its figures are those of its members, which are in the sums.
            stats.named.extend(pools);
            stats.drawn += tokens(drawn);
        }
        Ok(stats)
    }
}

// === impl BorrowedStats ===

impl BorrowedStats {
    fn add(&mut self, loan: ParentLeaseView, demand: Option<&Demand>) {
        match loan.capacity {
            Some(capacity) if capacity.is_unlimited() => self.unlimited += 1,
            capacity => self.capacity += capacity.map_or(0.0, Capacity::as_f64),
        }
        for band in demand.map(Demand::bands).unwrap_or_default() {
            *self.wants.entry(band.priority.level()).or_default() += band.wants.as_f64();
        }
    }
}

// === impl ResourceStats ===

impl ResourceStats {
    /// Figures of `resource`, of which the clients may have `at_most`.
    pub(super) fn of(resource: &Resource, now: Instant, at_most: Capacity) -> Self {
        let learning = resource.learning_until().saturating_since(now) > Duration::ZERO;
        let limited = !resource.capacity().is_unlimited();
        let of_limited = |amount: f64| if limited { amount } else { 0.0 };
        let traffic = TrafficView::of(now, resource.traffic());
        Self {
            resources: 1,
            clients: resource.client_count(),
            waiting: waiting(resource),
            learning: usize::from(learning),
            capacity: of_limited(resource.capacity().as_f64()),
            has: of_limited(units(resource.sum_has())),
            wants: units(resource.sum_wants()),
            unlimited: usize::from(at_most.is_unlimited()),
            attempts_per_second: traffic.attempts_per_second,
            refused_per_second: traffic.refused_per_second,
        }
    }

    /// Figures of a pool itself, without its members' clients.
    fn of_pool(pool: &Pool) -> Self {
        let limited = !pool.limit().capacity.is_unlimited();
        Self {
            resources: 1,
            capacity: pool.limit().capacity.as_f64(),
            has: units(pool.sum_has()),
            wants: units(pool.sum_wants()),
            unlimited: usize::from(!limited),
            ..Self::default()
        }
    }

    /// Adds the figures `more`.
    pub fn add(&mut self, more: &Self) {
        self.resources += more.resources;
        self.clients += more.clients;
        self.waiting += more.waiting;
        self.learning += more.learning;
        self.capacity += more.capacity;
        self.has += more.has;
        self.wants += more.wants;
        self.unlimited += more.unlimited;
        self.attempts_per_second += more.attempts_per_second;
        self.refused_per_second += more.refused_per_second;
    }
}

#[cfg(test)]
mod tests;
