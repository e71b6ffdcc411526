//! Groups, and the use of their capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::limit::Limit;
use utoipa::ToSchema;

use super::Shown;
use crate::catalog::{Catalog, Group, GroupKind};
use crate::leases::view::{Amount, units};

/// Group and its use.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// First division: between `members` or `clients`.
    pub fair_between: String,
    /// The number of tenants and namespaces that are attached to it.
    pub attached_count: usize,
    /// Its use by unit.
    pub units: BTreeMap<String, GroupUnit>,
}

/// Use of a group's capacity of one unit.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupUnit {
    /// The capacity.
    pub capacity: Amount,
    /// The amount that the members' clients may be using.
    #[schema(minimum = 0)]
    pub sum_has: f64,
    /// The amount that the members want.
    #[schema(minimum = 0)]
    pub sum_wants: f64,
    /// The members that have or want a lease; 0 for a group that is divided between clients.
    pub member_count: usize,
}

// === impl GroupStatus ===

impl GroupStatus {
    /// Returns the use of `group` by the lease table of `node`.
    pub(super) fn new(node: &LeaseServer, group: &Group, attached_count: usize) -> Self {
        let limits = group.limits().iter();
        let unit = |(unit, limit): (Unit, &Limit)| {
            let scope = group.scope().clone();
            let id = ResourceId { scope, unit };
            let capacity = limit.capacity.into();
            (unit.name().to_owned(), GroupUnit::new(node, &id, capacity))
        };
        Self {
            name: group.name().as_ref().to_owned(),
            fair_between: group.fair_between().name().to_owned(),
            attached_count,
            units: limits.map(unit).collect(),
        }
    }

    /// Adds the use by another lease table.
    fn add(&mut self, other: Self) {
        for (unit, more) in other.units {
            if let Some(sums) = self.units.get_mut(&unit) {
                sums.sum_has += more.sum_has;
                sums.sum_wants += more.sum_wants;
                sums.member_count += more.member_count;
            }
        }
    }
}

// === impl GroupUnit ===

impl GroupUnit {
    fn new(node: &LeaseServer, id: &ResourceId, capacity: Amount) -> Self {
        let pool = node.pool(id);
        let pool = pool.map(|pool| (pool.sum_has(), pool.sum_wants(), pool.member_count()));
        let own = || {
            let own = node.resource(id);
            own.map_or((0, 0, 0), |own| (own.sum_has(), own.sum_wants(), 0))
        };
        let (has, wants, member_count) = pool.unwrap_or_else(own);
        Self {
            capacity,
            sum_has: units(has),
            sum_wants: units(wants),
            member_count,
        }
    }
}

// === free functions ===

/// Returns the groups of `catalog` that belong to `shown`, each with its number of attachments.
pub(super) fn selected(catalog: &Catalog, shown: &Shown) -> Vec<(Arc<Group>, usize)> {
    let groups: Vec<_> = match &shown.selection.group {
        Some(group) => catalog.group(group.name()).into_iter().collect(),
        None => catalog.list(GroupKind, "").take(shown.resources).collect(),
    };
    let counted = groups.into_iter().map(|group| {
        let count = catalog.attached_count(&group.name);
        (group.value, count)
    });
    counted.collect()
}

/// Adds to `groups` their use by other lease tables.
pub(super) fn join(groups: &mut Vec<GroupStatus>, others: Vec<GroupStatus>) {
    for other in others {
        match groups.iter_mut().find(|group| group.name == other.name) {
            Some(group) => group.add(other),
            None => groups.push(other),
        }
    }
}
