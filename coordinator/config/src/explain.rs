//! The limits that hold for a scope, with their origins.

use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate_core::lease::Unit;
use tollgate_core::limit::Limit;

use crate::catalog::limits::UnitLimits;
use crate::catalog::{Catalog, FairBetween, Group, LimitSource, ResolvedScope};

/// All limits that a scope's requests must keep.
#[derive(Debug)]
pub struct ScopeExplanation {
    /// The scope.
    pub scope: Arc<str>,
    /// The matches in the file that hold for the scope or would, the one that decides first.
    pub matches: Vec<Arc<str>>,
    /// Sets of limits; all of them hold.
    pub limits: Vec<HoldingLimits>,
}

/// Limits that hold for a scope.
#[derive(Debug)]
pub struct HoldingLimits {
    /// The scope that they are given to: the scope itself, its tenant, or a group.
    pub scope: Arc<str>,
    /// The origin.
    pub origin: LimitOrigin,
    /// By unit.
    pub limits: Arc<UnitLimits>,
}

/// Origin of a limit.
#[derive(Clone, Debug)]
pub enum LimitOrigin {
    /// The file, an override, or the group that the scope itself is.
    Own(LimitSource),
    /// A group that the scope belongs to.
    Group {
        /// The group.
        group: Arc<Group>,
        /// Weight of the member's part, if the group is divided between members.
        weight: Option<NonZeroU32>,
    },
}

// === impl ScopeExplanation ===

impl ScopeExplanation {
    /// Explains the limits of `scope` in `catalog`.
    pub fn new(catalog: &Catalog, scope: &Arc<str>) -> Self {
        let resolved = catalog.resolve(scope);
        let canonical = resolved.canonical.clone();
        let mut limits = HoldingLimits::of(resolved);
        if let Some(group) = canonical.strip_prefix("group/")
            && canonical != *scope
            && let Some(group) = catalog.group(group)
        {
            limits.push(HoldingLimits::of_group(group.value, None));
        } else if canonical != *scope {
            limits.extend(HoldingLimits::of(catalog.resolve(&canonical)));
        }
        let matches = catalog.file().limits.matching(scope).into_iter();
        Self {
            scope: scope.clone(),
            matches: matches.map(|matched| matched.pattern.clone()).collect(),
            limits,
        }
    }

    /// The limits of `unit` that let not everything pass, and their origins.
    pub fn of_unit(&self, unit: Unit) -> impl Iterator<Item = (&HoldingLimits, &Limit)> {
        let limits = self.limits.iter();
        let limits = limits.filter_map(move |held| Some((held, held.limits.get(unit)?)));
        limits.filter(|(_, limit)| !limit.capacity.is_unlimited())
    }
}

// === impl HoldingLimits ===

impl HoldingLimits {
    /// The own limits of a resolved scope, and those of the group whose member it is.
    fn of(resolved: ResolvedScope) -> Vec<Self> {
        let ResolvedScope {
            scope, own, member, ..
        } = resolved;
        let group = member.filter(|member| *member.group.scope() != scope);
        let own = own.map(|own| Self {
            scope,
            origin: LimitOrigin::Own(own.source),
            limits: own.limits,
        });
        let group = group.map(|member| Self::of_group(member.group, Some(member.weight)));
        own.into_iter().chain(group).collect()
    }

    fn of_group(group: Arc<Group>, weight: Option<NonZeroU32>) -> Self {
        let weight = weight.filter(|_| group.fair_between() == FairBetween::Members);
        Self {
            scope: group.scope().clone(),
            limits: group.limits().clone(),
            origin: LimitOrigin::Group { group, weight },
        }
    }
}
