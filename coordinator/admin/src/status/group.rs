//! Groups, and the use of their capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_config::catalog::{Catalog, Group, GroupKind};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::limit::Limit;
use tollgate_core::units::{Instant, Tokens};
use utoipa::ToSchema;

use super::Shown;
use crate::lease_view::{Amount, QuotaView, tokens, units};

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
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupUnit {
    /// The capacity.
    pub capacity: Amount,
    /// The capacity for the period for which it was written: `100/min`; absent if it was written as a plain number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub written: Option<String>,
    /// The amount that the members' clients may be using.
    #[schema(minimum = 0)]
    pub sum_has: f64,
    /// The amount that the members want.
    #[schema(minimum = 0)]
    pub sum_wants: f64,
    /// The members that have or want a lease; 0 for a group that is divided between clients.
    pub member_count: usize,
    /// Tokens of a limit of which clients draw instead of having leases; absent if they have leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub bucket: Option<GroupBucket>,
    /// Its quotas; absent without any, or while no member has clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub quotas: Vec<QuotaView>,
}

/// Bucket of a group for the whole fleet, in tokens.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct GroupBucket {
    /// Its size: the burst of the group's limit.
    #[schema(minimum = 0)]
    pub burst: f64,
    /// Tokens that can be drawn.
    #[schema(minimum = 0)]
    pub left: f64,
    /// Tokens that clients of members have drawn and may not have spent.
    #[schema(minimum = 0)]
    pub held: f64,
}

// === impl GroupStatus ===

impl GroupStatus {
    /// Returns the use of `group` by the lease table of `node`.
    pub(super) fn new(
        node: &LeaseServer,
        now: Instant,
        group: &Group,
        attached_count: usize,
    ) -> Self {
        let limits = group.limits().iter();
        let unit = |(unit, limit): (Unit, &Limit)| {
            let scope = group.scope().clone();
            let id = ResourceId { scope, unit };
            let unit = GroupUnit::new(node, now, &id, limit);
            (id.unit.name().to_owned(), unit)
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
                sums.bucket = sums.bucket.or(more.bucket);
                if sums.quotas.is_empty() {
                    sums.quotas = more.quotas;
                }
            }
        }
    }
}

// === impl GroupUnit ===

impl GroupUnit {
    /// The use of the group's resource `id`: of its members, or of a group that is divided between clients its own.
    fn new(node: &LeaseServer, now: Instant, id: &ResourceId, limit: &Limit) -> Self {
        let capacity = Amount::of_limit(limit);
        let mut used = Self {
            capacity,
            written: capacity.written(id.unit, limit.period),
            sum_has: 0.0,
            sum_wants: 0.0,
            member_count: 0,
            bucket: None,
            quotas: Vec::new(),
        };
        // Permits are neither earned nor gathered.
        let has_tokens = !id.unit.is_concurrency();
        if let Some(pool) = node.pool(id) {
            used.sum_has = units(pool.sum_has());
            used.sum_wants = units(pool.sum_wants());
            used.quotas = QuotaView::all(&pool.quotas(now));
            used.member_count = pool.member_count();
            let bucket = pool.fleet_bucket().filter(|_| has_tokens);
            let left = bucket.map(|bucket| bucket.left(now));
            used.bucket =
                left.map(|left| GroupBucket::new(pool.limit(), left, pool.held_by_clients()));
        } else if let Some(own) = node.resource(id) {
            used.sum_has = units(own.sum_has());
            used.sum_wants = units(own.sum_wants());
            let bucket = own.fleet_bucket().filter(|_| has_tokens && own.is_drawn());
            let left = bucket.map(|bucket| bucket.left(now));
            used.bucket =
                left.map(|left| GroupBucket::new(own.limit(), left, own.held_by_clients()));
        }
        used
    }
}

// === impl GroupBucket ===

impl GroupBucket {
    fn new(limit: &Limit, left: Tokens, held: Tokens) -> Self {
        Self {
            burst: tokens(limit.burst),
            left: tokens(left),
            held: tokens(held),
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
        (catalog.in_force(group.value), count)
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
