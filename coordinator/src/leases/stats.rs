//! Sums over all lease tables of a node, and the busiest resources.
//!
//! The driver answers no client while somebody looks at its lease table, so a scan goes in steps
//! and clients are answered between them. Its result is therefore not one state of the table:
//! changes made meanwhile may be in it or not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Demand, ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::pool::Pool;
use tollgate_core::resource::Resource;
use tollgate_core::tree::ParentLeaseView;
use tollgate_core::units::{Capacity, Instant};

use crate::catalog::Catalog;
use crate::leases::driver::{DriverError, DriverHandle};
use crate::leases::shards::Shards;
use crate::leases::view::{units, waiting};

mod metrics;

/// The most scopes with figures of their own.
pub const NAMED_MAX: usize = 200;

/// Resources and clients per step: well under a millisecond. A resource is never split.
const STEP: usize = 4_000;

/// Scopes with figures of their own: those that the file or the API names. Requests can add none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedScopes(Arc<BTreeSet<Arc<str>>>);

/// Result of a scan.
#[derive(Clone, Debug, Default)]
pub struct LeaseStats {
    /// Sums over all resources of a unit.
    pub units: BTreeMap<Unit, ResourceStats>,
    /// The resources of named scopes.
    pub named: BTreeMap<ResourceId, ResourceStats>,
    /// Sums over all resources that are not named.
    pub other: BTreeMap<Unit, ResourceStats>,
    /// The busiest resources, the busiest first.
    pub busiest: Vec<ResourceId>,
    /// Number of resources in learning mode, by shard of this node.
    pub learning: BTreeMap<ShardId, usize>,
    /// Sums of leases from the parent.
    pub borrowed: BTreeMap<Unit, BorrowedStats>,
}

/// Sums of leases from the parent, for one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BorrowedStats {
    /// Capacity lent by the parent now, in units, over the resources that it limits.
    pub capacity: f64,
    /// Number of resources that it does not limit.
    pub unlimited: usize,
    /// Wants, in units, by priority.
    pub wants: BTreeMap<u8, f64>,
}

/// Figures of one resource, or sums over several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceStats {
    /// Resources with clients.
    pub resources: usize,
    /// Their clients; a client of two resources counts twice.
    pub clients: usize,
    /// The clients that have less than they want.
    pub waiting: usize,
    /// Resources in learning mode.
    pub learning: usize,
    /// The capacity of limited resources, in units.
    pub capacity: f64,
    /// Leased amount of limited resources, in units.
    pub has: f64,
    /// Wants of all clients, in units.
    pub wants: f64,
    /// Resources that nothing limits: no limit of their own, no group and no parent.
    pub unlimited: usize,
}

/// Sort key for the busiest resources: first by the part of the capacity that is wanted, then by
/// wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pressure {
    /// Wanted part of the binding limit, in thousandths; 0 without a limit.
    wanted_milli: u64,
    wants: u128,
    /// Makes the order total.
    id: Reverse<ResourceId>,
}

/// Visitor of all resources of the lease tables, one after the other.
pub trait ResourceVisitor: Send + 'static {
    /// Begins the lease table of `shard`.
    fn enter(&mut self, shard: ShardId) {
        let _ = shard;
    }

    /// Visits `resource`, called `id`, of `node`.
    fn add(&mut self, node: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant);
}

/// Scan in progress.
#[derive(Debug)]
struct StatsScan {
    stats: LeaseStats,
    shard: ShardId,
    named: NamedScopes,
    busiest: BinaryHeap<Reverse<Pressure>>,
    busiest_max: usize,
}

// === impl NamedScopes ===

impl NamedScopes {
    /// The scopes that `catalog` names: exact ids of the file, groups, overrides.
    pub fn of(catalog: &Catalog) -> Self {
        let mut exact: Vec<Arc<str>> = catalog
            .file()
            .limits
            .exact_scopes()
            .map(Arc::from)
            .collect();
        exact.sort_unstable();
        let groups = catalog.groups("").map(|entry| entry.value.scope().clone());
        let overrides = catalog.overrides("").map(|entry| entry.name);
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
    pub fn new(scopes: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self(Arc::new(scopes.into_iter().take(NAMED_MAX).collect()))
    }
}

// === impl LeaseStats ===

impl LeaseStats {
    /// Scans the lease tables of `shards`, and remembers the `busiest_max` busiest resources.
    ///
    /// # Errors
    /// If a driver cannot be reached.
    pub async fn of(
        shards: &Shards,
        named: NamedScopes,
        busiest_max: usize,
    ) -> Result<Self, DriverError> {
        let scan = StatsScan::new(named.clone(), busiest_max);
        let mut stats = shards.visit(scan).await?.end();
        let pools = move |node: &LeaseServer, _: Instant| named.pools(node);
        // A pool is not a resource: its figures are those of its members, which are in the sums.
        let pools = shards.view(pools).await?.into_iter().flatten();
        stats.named.extend(pools);
        Ok(stats)
    }
}

// === impl StatsScan ===

impl StatsScan {
    fn new(named: NamedScopes, busiest_max: usize) -> Self {
        Self {
            stats: LeaseStats::default(),
            shard: ShardId::default(),
            named,
            busiest: BinaryHeap::new(),
            busiest_max,
        }
    }

    fn end(mut self) -> LeaseStats {
        let busiest = self.busiest.into_sorted_vec().into_iter();
        let id = |Reverse(pressure): Reverse<Pressure>| pressure.id.0;
        self.stats.busiest = busiest.map(id).collect();
        self.stats
    }
}

impl ResourceVisitor for StatsScan {
    fn enter(&mut self, shard: ShardId) {
        self.shard = shard;
        self.stats.learning.insert(shard, 0);
    }

    fn add(&mut self, node: &LeaseServer, id: &ResourceId, resource: &Resource, now: Instant) {
        let at_most = node.binding_limit(id).map(|binding| binding.at_most);
        let at_most = at_most.unwrap_or(Capacity::UNLIMITED);
        let figures = ResourceStats::of(resource, now, at_most);
        let LeaseStats {
            units,
            named,
            other,
            ..
        } = &mut self.stats;
        units.entry(id.unit).or_default().add(&figures);
        if self.named.0.contains(&id.scope) {
            named.insert(id.clone(), figures);
        } else {
            other.entry(id.unit).or_default().add(&figures);
        }
        let learning = self.stats.learning.entry(self.shard).or_default();
        *learning += figures.learning;
        if let Some(loan) = node.parent_leases().and_then(|tree| tree.view(now, id)) {
            let borrowed = self.stats.borrowed.entry(id.unit).or_default();
            borrowed.add(loan, node.demand(id).as_ref());
        }
        self.busiest
            .push(Reverse(Pressure::of(id, resource, at_most)));
        if self.busiest.len() > self.busiest_max {
            self.busiest.pop();
        }
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
    fn of(resource: &Resource, now: Instant, at_most: Capacity) -> Self {
        let learning = resource.learning_until().saturating_since(now) > Duration::ZERO;
        let limited = !resource.capacity().is_unlimited();
        let of_limited = |amount: f64| if limited { amount } else { 0.0 };
        Self {
            resources: 1,
            clients: resource.client_count(),
            waiting: waiting(resource),
            learning: usize::from(learning),
            capacity: of_limited(resource.capacity().as_f64()),
            has: of_limited(units(resource.sum_has())),
            wants: units(resource.sum_wants()),
            unlimited: usize::from(at_most.is_unlimited()),
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

    fn add(&mut self, more: &Self) {
        self.resources += more.resources;
        self.clients += more.clients;
        self.waiting += more.waiting;
        self.learning += more.learning;
        self.capacity += more.capacity;
        self.has += more.has;
        self.wants += more.wants;
        self.unlimited += more.unlimited;
    }
}

// === impl Pressure ===

impl Pressure {
    fn of(id: &ResourceId, resource: &Resource, at_most: Capacity) -> Self {
        let wants = resource.sum_wants();
        let capacity = u128::from(at_most.as_micros());
        let wanted = wants.saturating_mul(1000);
        // A blocked scope that is wanted is as busy as can be.
        let wanted_milli = match wanted.checked_div(capacity) {
            _ if at_most.is_unlimited() => 0,
            Some(part) => u64::try_from(part).unwrap_or(u64::MAX),
            None if wants > 0 => u64::MAX,
            None => 0,
        };
        Self {
            wanted_milli,
            wants,
            id: Reverse(id.clone()),
        }
    }
}

// === free functions ===

/// Shows `visitor` the whole lease table of `driver`, and returns it.
///
/// # Errors
/// If the driver cannot be reached.
pub async fn visit_resources<W: ResourceVisitor>(
    driver: &DriverHandle,
    mut visitor: W,
) -> Result<W, DriverError> {
    let mut after = Some(start());
    while let Some(from) = after.take() {
        let look = move |node: &LeaseServer, now| {
            let after = step(&mut visitor, node, now, &from, STEP);
            (after, visitor)
        };
        (after, visitor) = driver.view(look).await?;
    }
    Ok(visitor)
}

/// Id before all resources.
fn start() -> ResourceId {
    let [unit, ..] = Unit::ALL;
    let scope = "".into();
    ResourceId { scope, unit }
}

/// Shows `visitor` the resources after `after`, until these and their clients are `at_most`;
/// returns the id of the last one, or `None` at the end.
fn step(
    visitor: &mut impl ResourceVisitor,
    node: &LeaseServer,
    now: Instant,
    after: &ResourceId,
    at_most: usize,
) -> Option<ResourceId> {
    let mut looked = 0;
    for (id, resource) in node.resources_after(after) {
        visitor.add(node, id, resource, now);
        looked += 1 + resource.client_count();
        if looked >= at_most {
            return Some(id.clone());
        }
    }
    None
}

#[cfg(test)]
mod tests;
