//! Groups.

use std::sync::Arc;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::{Guarantees, Limit, Part};
use tollgate_core::quota::Quotas;
use tollgate_core::units::Capacity;

use super::{Raise, written};
use crate::catalog::limits::UnitLimits;
use crate::catalog::spec::GroupSpec;

/// A named set of limits that its members share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    name: Arc<str>,
    scope: Arc<str>,
    fair_between: FairBetween,
    limits: Arc<UnitLimits>,
    pools: Box<[Pool]>,
    written: Box<str>,
    /// End of the raise that its limits are of, in seconds since 1970.
    raised_until: Option<u64>,
}

/// Pool of one unit, from which the members borrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// The group's scope and the unit.
    pub(super) id: ResourceId,
    /// The limit of a member that has none of its own.
    pub(super) member: Limit,
}

/// The first division of a group's capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairBetween {
    /// Between its members, by their weights, and a member's part between Envoys. The default: a
    /// group is shared by tenants that do not know each other, and one that sends ten times as much
    /// must not get ten times as much.
    #[default]
    Members,
    /// Between Envoys only: all members share one bucket in each, and a member that sends more gets
    /// more. For members that belong together, and cheaper: one lease for the group, not for each
    /// member.
    Clients,
}

// === impl Group ===

impl Group {
    /// A group with a valid `name` and `limits`, which are those of `spec`.
    pub(crate) fn new(
        name: &str,
        limits: UnitLimits,
        fair_between: FairBetween,
        spec: &GroupSpec,
    ) -> Self {
        let scope: Arc<str> = format!("group/{name}").into();
        Self {
            name: name.into(),
            pools: Pool::all(&scope, &limits),
            scope,
            fair_between,
            limits: Arc::new(limits),
            written: written(spec),
            raised_until: None,
        }
    }

    /// The same group with the limits of a raise.
    pub(super) fn raised(&self, raise: &Raise) -> Self {
        Self {
            pools: Pool::all(&self.scope, raise.limits()),
            limits: raise.limits().clone(),
            raised_until: Some(raise.until()),
            ..self.clone()
        }
    }

    /// The end of the raise that its limits are of, in seconds since 1970.
    pub fn raised_until(&self) -> Option<u64> {
        self.raised_until
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its scope, `group/<name>`.
    pub fn scope(&self) -> &Arc<str> {
        &self.scope
    }

    /// The first division of its capacity.
    pub fn fair_between(&self) -> FairBetween {
        self.fair_between
    }

    /// The shared limits.
    pub fn limits(&self) -> &Arc<UnitLimits> {
        &self.limits
    }

    /// The written form.
    pub fn spec(&self) -> GroupSpec {
        serde_json::from_str(&self.written).unwrap_or_default()
    }

    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// The pool of `unit`.
    pub(super) fn pool(&self, unit: Unit) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.id.unit == unit)
    }
}

// === impl Pool ===

impl Pool {
    /// The pools of a group with `limits`.
    fn all(scope: &Arc<str>, limits: &UnitLimits) -> Box<[Self]> {
        let limits = limits.iter();
        limits
            .map(|(unit, limit)| Self::new(scope, unit, limit))
            .collect()
    }

    /// A pool whose members have no limit of their own but the intervals of the group's.
    fn new(scope: &Arc<str>, unit: Unit, limit: &Limit) -> Self {
        let scope = scope.clone();
        Self {
            id: ResourceId { scope, unit },
            member: Limit {
                capacity: Capacity::UNLIMITED,
                reserve: Part::NONE,
                guaranteed: Guarantees::default(),
                quotas: Quotas::NONE,
                ..limit.clone()
            },
        }
    }
}

// === impl FairBetween ===

impl FairBetween {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Members, Self::Clients];

    /// Its word in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Clients => "clients",
        }
    }
}
