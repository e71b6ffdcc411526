//! What holds for a scope: its own limits, its group's, and whose bucket it shares.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;

use tollgate_core::lease::Unit;
use tollgate_core::lease_server::{PoolTerms, Terms};
use tollgate_core::limit::Limit;

use super::{Attachment, Catalog, FairBetween, Group, MemberKind};
use crate::catalog::limits::UnitLimits;

/// What holds for one scope.
#[derive(Clone, Debug)]
pub struct ResolvedScope {
    /// The scope.
    pub scope: Arc<str>,
    /// A scope whose capacity the requests of this one use as well; itself if there is none.
    pub canonical: Arc<str>,
    /// The units that have a limit, of its own or its group's.
    pub limited: Vec<Unit>,
    /// Its own limits; none if nothing says anything of it.
    pub own: Option<OwnLimits>,
    /// The group that its capacity is lent from, if it is a member of one.
    pub member: Option<GroupMembership>,
}

/// The limits of a scope, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLimits {
    /// Where they come from.
    pub source: LimitSource,
    /// By unit.
    pub limits: Arc<UnitLimits>,
}

/// Where the limits of a scope come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The `match` of a limit of the file.
    File(Arc<str>),
    /// An override, with its revision.
    Override(u64),
    /// It is the scope of a group.
    Group,
}

/// A place in a group that is divided between members.
#[derive(Clone, Debug)]
pub struct GroupMembership {
    /// The group.
    pub group: Arc<Group>,
    /// What the member's part is in proportion to.
    pub weight: NonZeroU32,
}

/// The scope whose shard another one is in.
#[derive(Clone, Debug)]
pub enum HomeScope<'a> {
    /// It is in none but its own.
    Itself(&'a str),
    /// It takes from the pool of a group.
    Pool(Arc<Group>),
}

/// A group and how a scope comes to share it.
struct SharedGroup {
    group: Arc<Group>,
    weight: NonZeroU32,
    /// The tenant that is attached, if the scope is a namespace without an attachment of its own.
    through: Option<Arc<str>>,
}

// === impl Catalog ===

impl Catalog {
    /// What holds for `scope`.
    ///
    /// A tenant or namespace that is attached to a group shares its limits. Where the group is
    /// divided between members, it is lent its part of them: it is a member of the group's pool.
    /// Where the group is divided between Envoys, it uses the group's scope as well. A namespace
    /// that is not attached itself does as its tenant does; if that is a member of a pool, the
    /// namespace uses the tenant's scope. Own limits stay where they are.
    pub fn resolve(&self, scope: &Arc<str>) -> ResolvedScope {
        let group = scope.strip_prefix("group/");
        if let Some(group) = group.and_then(|name| self.group(name)) {
            return ResolvedScope::of_group(scope, group.value);
        }
        let own = self.own_limits(scope);
        let shared = self.shared(scope);
        let (canonical, member) = match &shared {
            None => (scope.clone(), None),
            Some(shared) => match (shared.group.fair_between(), &shared.through) {
                (FairBetween::Clients, _) => (shared.group.scope().clone(), None),
                (FairBetween::Members, Some(tenant)) => (tenant.clone(), None),
                (FairBetween::Members, None) => {
                    let (group, weight) = (shared.group.clone(), shared.weight);
                    (scope.clone(), Some(GroupMembership { group, weight }))
                }
            },
        };
        let of_group = shared.as_ref().map(|shared| &**shared.group.limits());
        let of_own = own.as_ref().map(|own| &*own.limits);
        ResolvedScope {
            scope: scope.clone(),
            canonical,
            limited: limited([of_own, of_group]),
            own,
            member,
        }
    }

    /// The scope whose shard `scope` is in: a pool must be whole in one, so its members are where it
    /// is. The same as [`ResolvedScope::home`], without a look at limits.
    pub fn home<'a>(&self, scope: &'a str) -> HomeScope<'a> {
        match self.shared(scope) {
            Some(SharedGroup {
                group,
                through: None,
                ..
            }) if group.fair_between() == FairBetween::Members => HomeScope::Pool(group),
            _ => HomeScope::Itself(scope),
        }
    }

    /// What the file or an override says of `scope`: its exact id in the file, else an override,
    /// else the file's globs.
    fn own_limits(&self, scope: &str) -> Option<OwnLimits> {
        let of_file = |matched: &crate::catalog::limits::MatchedLimits| OwnLimits {
            source: LimitSource::File(matched.pattern.clone()),
            limits: matched.limits.clone(),
        };
        if let Some(exact) = self.file.limits.exact(scope) {
            return Some(of_file(exact));
        }
        if let Some(kept) = self.overrides.get(scope) {
            return Some(OwnLimits {
                source: LimitSource::Override(kept.revision),
                limits: kept.value.limits().clone(),
            });
        }
        self.file.limits.by_glob(scope).map(of_file)
    }

    /// The group that `scope` shares; none if it shares none, or one that is not there.
    fn shared(&self, scope: &str) -> Option<SharedGroup> {
        if let Some(tenant) = scope.strip_prefix("tenant/") {
            return self.shared_by(MemberKind::Tenant, tenant, None);
        }
        let namespace = scope.strip_prefix("namespace/")?;
        if let Some(shared) = self.shared_by(MemberKind::Namespace, namespace, None) {
            return Some(shared);
        }
        let (tenant, _) = namespace.split_once('/')?;
        self.shared_by(MemberKind::Tenant, tenant, Some(tenant))
    }

    fn shared_by(
        &self,
        kind: MemberKind,
        name: &str,
        through: Option<&str>,
    ) -> Option<SharedGroup> {
        let Attachment { group, weight } = self.attachment_of(kind, name)?;
        Some(SharedGroup {
            group: self.group(group)?.value,
            weight: *weight,
            through: through.map(|tenant| format!("tenant/{tenant}").into()),
        })
    }

    fn attachment_of(&self, kind: MemberKind, name: &str) -> Option<&Attachment> {
        let of_file = self.file.attached(kind).get(name);
        of_file.or_else(|| self.kept(kind).get(name).map(|kept| &kept.value))
    }
}

// === impl HomeScope ===

impl Deref for HomeScope<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Itself(scope) => scope,
            Self::Pool(group) => group.scope(),
        }
    }
}

// === impl ResolvedScope ===

impl ResolvedScope {
    /// What holds for the scope of a group. Whoever asks for it under `members` is one more member.
    fn of_group(scope: &Arc<str>, group: Arc<Group>) -> Self {
        let own = OwnLimits {
            source: LimitSource::Group,
            limits: group.limits().clone(),
        };
        Self {
            scope: scope.clone(),
            canonical: scope.clone(),
            limited: limited([Some(&own.limits), None]),
            own: Some(own),
            member: (group.fair_between() == FairBetween::Members).then_some(GroupMembership {
                group,
                weight: NonZeroU32::MIN,
            }),
        }
    }

    /// The scope whose shard this one is in; see [`Catalog::home`].
    pub fn home(&self) -> &str {
        let pool = self.member.as_ref().map(|member| member.group.scope());
        pool.unwrap_or(&self.scope)
    }

    /// On which terms `unit` of the scope is lent; none if it has no limit.
    pub fn terms(&self, unit: Unit) -> Option<Terms<'_>> {
        let own = self.own.as_ref().and_then(|own| own.limits.get(unit));
        let Some((pool, lent)) = self.pool(unit) else {
            return own.map(Terms::of);
        };
        // An own limit that limits nothing says less than the group's.
        let own = own.filter(|own| !own.capacity.is_unlimited());
        Some(Terms {
            limit: own.unwrap_or(lent),
            pool: Some(pool),
        })
    }

    /// The pool that `unit` is lent from, and the limit of a member that has none of its own.
    fn pool(&self, unit: Unit) -> Option<(PoolTerms<'_>, &Limit)> {
        let GroupMembership { group, weight } = self.member.as_ref()?;
        let pool = group.pool(unit)?;
        let membership = PoolTerms {
            pool: &pool.id,
            limit: group.limits().get(unit)?,
            weight: *weight,
        };
        Some((membership, &pool.member))
    }
}

// === free functions ===

/// The units that any of `limits` limits.
fn limited(limits: [Option<&UnitLimits>; 2]) -> Vec<Unit> {
    let limits = |unit| {
        let limits = limits.iter().flatten();
        limits.filter_map(move |limits| limits.get(unit))
    };
    let limited = |unit: &Unit| limits(*unit).any(|limit| !limit.capacity.is_unlimited());
    Unit::ALL.into_iter().filter(limited).collect()
}

#[cfg(test)]
mod tests;
