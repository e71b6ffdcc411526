//! The groups, and what their members share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::limit::Limit;
use utoipa::ToSchema;

use crate::catalog::Group;
use crate::leases::view::{Amount, units};

/// A group and who uses it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Between whom it is divided first.
    pub fair_between: String,
    /// How many tenants and namespaces are attached to it.
    pub attached_count: usize,
    /// What they share, by unit.
    pub units: BTreeMap<String, GroupUnit>,
}

/// What the members of a group share of a unit.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupUnit {
    /// What there is.
    pub capacity: Amount,
    /// What the members' clients may be using.
    #[schema(minimum = 0)]
    pub sum_has: f64,
    /// What the members want.
    #[schema(minimum = 0)]
    pub sum_wants: f64,
    /// The members that have or want a lease; 0 for a group that is divided between clients.
    pub member_count: usize,
}

// === impl GroupStatus ===

impl GroupStatus {
    /// What `node` has in its books of `group`.
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

    /// Adds what other books have of the same group.
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

/// Adds to `groups` what other books have of the same ones.
pub(super) fn join(groups: &mut Vec<GroupStatus>, others: Vec<GroupStatus>) {
    for other in others {
        match groups.iter_mut().find(|group| group.name == other.name) {
            Some(group) => group.add(other),
            None => groups.push(other),
        }
    }
}
