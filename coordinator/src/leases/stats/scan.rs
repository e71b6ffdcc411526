//! Scan of all lease tables of a node, in steps between which clients are answered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::{Capacity, Instant};

use super::{LeaseStats, NamedScopes, ResourceStats};
use crate::leases::driver::{DriverError, DriverHandle};

/// Resources and clients per step: well under a millisecond. A resource is never split.
const STEP: usize = 4_000;

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
pub(super) struct StatsScan {
    stats: LeaseStats,
    shard: ShardId,
    named: NamedScopes,
    busiest: BinaryHeap<Reverse<Pressure>>,
    busiest_max: usize,
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

// === impl StatsScan ===

impl StatsScan {
    pub(super) fn new(named: NamedScopes, busiest_max: usize) -> Self {
        Self {
            stats: LeaseStats::default(),
            shard: ShardId::default(),
            named,
            busiest: BinaryHeap::new(),
            busiest_max,
        }
    }

    pub(super) fn end(mut self) -> LeaseStats {
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
pub(super) fn start() -> ResourceId {
    let [unit, ..] = Unit::ALL;
    let scope = "".into();
    ResourceId { scope, unit }
}

/// Shows `visitor` the resources after `after`, until these and their clients are `at_most`;
/// returns the id of the last one, or `None` at the end.
pub(super) fn step(
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
