//! Sums over all resources of a unit, in which a group's capacity counts once.

use std::collections::BTreeMap;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::resource::Resource;
use tollgate_core::units::Capacity;

use super::ResourceStats;
use crate::lease_view::units;

/// Sums in progress.
#[derive(Debug, Default)]
pub(crate) struct UnitSums {
    sums: BTreeMap<Unit, ResourceStats>,
    pools: BTreeMap<ResourceId, PoolCapacity>,
}

/// Capacity that the members of a pool share.
#[derive(Debug)]
struct PoolCapacity {
    capacity: Capacity,
    /// Sum of the members' own capacities.
    of_members: Capacity,
}

// === impl UnitSums ===

impl UnitSums {
    /// Adds the figures `own` of `resource`, called `id`, of `node`.
    pub(crate) fn add(
        &mut self,
        node: &LeaseServer,
        id: &ResourceId,
        resource: &Resource,
        own: &ResourceStats,
    ) {
        let sums = self.sums.entry(id.unit).or_default();
        let Some((pool_id, pool)) = node.pool_of(id) else {
            sums.add(own);
            return;
        };
        sums.add(&ResourceStats {
            capacity: 0.0,
            has: units(resource.sum_has()),
            ..*own
        });
        let capacity = pool.limit().capacity;
        let shared = self.pools.entry(pool_id.clone());
        let shared = shared.or_insert_with(|| PoolCapacity {
            capacity,
            of_members: Capacity::ZERO,
        });
        shared.capacity = capacity;
        shared.of_members = shared.of_members.saturating_add(resource.capacity());
    }

    /// The sums, with the capacity of each group: its own, or that of its members if it is less.
    pub(crate) fn end(mut self) -> BTreeMap<Unit, ResourceStats> {
        for (id, pool) in &self.pools {
            let least = pool.capacity.min(pool.of_members);
            self.sums.entry(id.unit).or_default().capacity += least.as_f64();
        }
        self.sums
    }
}
