//! Resolution of a scope: its own limits, its group's, and the bucket that it shares.

use std::num::NonZeroU32;
use std::ops::{Bound, Deref};
use std::sync::Arc;

use tollgate_core::lease::Unit;
use tollgate_core::lease_server::{PoolTerms, Terms};
use tollgate_core::limit::Limit;

use super::{Attachment, Catalog, FairBetween, Group, MemberKind};
use crate::catalog::limits::UnitLimits;
use crate::catalog::scope_kinds::is_overflow;

/// Limits of one scope.
#[derive(Clone, Debug)]
pub struct ResolvedScope {
    /// The scope.
    pub scope: Arc<str>,
    /// Another scope whose capacity this one's requests use as well; itself if there is none.
    pub canonical: Arc<str>,
    /// Units with a limit, its own or its group's.
    pub limited: Vec<Unit>,
    /// Its own limits, if it has any.
    pub own: Option<OwnLimits>,
    /// Its membership in the group from whose pool it borrows.
    pub member: Option<GroupMembership>,
    /// Whether the limit of its requests is that of all scopes of its kind, but for those that are
    /// named one by one; without a limit, whether no scope of its kind has one. `None` if it is one of
    /// those that are named.
    pub usual: Option<bool>,
}

/// Limits of a scope, and their origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLimits {
    /// The origin.
    pub source: LimitSource,
    /// By unit.
    pub limits: Arc<UnitLimits>,
}

/// Origin of a scope's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The `match` of a limit of the file.
    File(Arc<str>),
    /// An override, with its revision.
    Override(u64),
    /// A raise, with its end in seconds since 1970.
    Raise(u64),
    /// The scope is that of a group.
    Group,
}

/// Membership in a group that is divided between members.
#[derive(Clone, Debug)]
pub struct GroupMembership {
    /// The group.
    pub group: Arc<Group>,
    /// Weight of the member's part.
    pub weight: NonZeroU32,
}

/// The scope that decides about another one's shard.
#[derive(Clone, Debug)]
pub enum HomeScope<'a> {
    /// The scope itself.
    Itself(&'a str),
    /// A group's scope, from whose pool it borrows.
    Pool(Arc<Group>),
}

/// A group that a scope shares.
struct SharedGroup {
    group: Arc<Group>,
    weight: NonZeroU32,
    /// The attached tenant, if the scope is a namespace without an attachment of its own.
    through: Option<Arc<str>>,
}

// === impl Catalog ===

impl Catalog {
    /// Resolves `scope`.
    ///
    /// A tenant or namespace that is attached to a group shares its limits. Where the group is
    /// divided between members, it is a member of the group's pool. Where the group is divided
    /// between Envoys, it uses the group's scope as well. A namespace that is not attached itself
    /// does as its tenant does; if that is a member of a pool, the namespace uses the tenant's
    /// scope. Own limits stay where they are.
    pub fn resolve(&self, scope: &Arc<str>) -> ResolvedScope {
        let group = scope.strip_prefix("group/");
        if let Some(group) = group.and_then(|name| self.group(name)) {
            return ResolvedScope::of_group(scope, self.in_force(group.value));
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
        let usual = self.is_usual(scope, own.as_ref(), shared.is_some());
        ResolvedScope {
            scope: scope.clone(),
            canonical,
            limited: limited([of_own, of_group]),
            own,
            member,
            usual,
        }
    }

    /// Whether the limit of requests of `scope` is the usual one of its kind; `None` if the scope is
    /// named, or `is_shared`, in a kind that has a usual one.
    fn is_usual(&self, scope: &str, own: Option<&OwnLimits>, is_shared: bool) -> Option<bool> {
        let (limits, kind) = (&self.file.limits, scope.split_once('/'));
        let Some((kind, _)) = kind.filter(|(kind, _)| limits.kinds().is_uniform(kind)) else {
            return Some(false);
        };
        let is_named = |own: &OwnLimits| {
            matches!(own.source, LimitSource::Override(_) | LimitSource::Raise(_))
        };
        if is_shared
            || own.is_some_and(is_named)
            || is_overflow(scope)
            || limits.exact(scope).is_some()
        {
            return None;
        }
        let requests = own.and_then(|own| own.limits.get(Unit::Requests));
        let limited = requests.is_some_and(|limit| !limit.capacity.is_unlimited());
        Some(limited || !limits.kinds().has_named(kind) && !self.names_any(kind))
    }

    /// Whether groups, attachments or overrides are about scopes of `kind`.
    fn names_any(&self, kind: &str) -> bool {
        let attached = |kind| !self.file.attached(kind).is_empty() || !self.stored(kind).is_empty();
        let grouped = match kind {
            "group" => !self.file.groups.is_empty() || !self.groups.is_empty(),
            "tenant" => attached(MemberKind::Tenant),
            "namespace" => attached(MemberKind::Tenant) || attached(MemberKind::Namespace),
            _ => false,
        };
        let start = format!("{kind}/");
        let mut overrides = self
            .overrides
            .range::<str, _>((Bound::Included(&*start), Bound::Unbounded));
        grouped
            || overrides
                .next()
                .is_some_and(|(scope, _)| scope.starts_with(&start))
    }

    /// The scope that decides about the shard of `scope`: a pool must be whole in one shard, so its
    /// members are in the shard of the pool. Equal to [`ResolvedScope::home`], but cheaper.
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

    /// Whether requests of `scope` use the capacity of the group called `group`.
    pub fn shares(&self, scope: &str, group: &str) -> bool {
        let shared = self.sharing(scope).map(|(group, ..)| group);
        scope.strip_prefix("group/") == Some(group)
            || shared.is_some_and(|shared| **shared.name() == *group)
    }

    /// The limits that the file or an override gives to `scope`: its exact id in the file, else an
    /// override, else the file's globs.
    fn own_limits(&self, scope: &str) -> Option<OwnLimits> {
        let of_file = |matched: &crate::catalog::limits::MatchedLimits| OwnLimits {
            source: LimitSource::File(matched.pattern.clone()),
            limits: matched.limits.clone(),
        };
        if let Some(stored) = self.raises.get(scope) {
            return Some(OwnLimits {
                source: LimitSource::Raise(stored.value.until()),
                limits: stored.value.limits().clone(),
            });
        }
        if let Some(exact) = self.file.limits.exact(scope) {
            return Some(of_file(exact));
        }
        if let Some(stored) = self.overrides.get(scope) {
            return Some(OwnLimits {
                source: LimitSource::Override(stored.revision),
                limits: stored.value.limits().clone(),
            });
        }
        self.file.limits.by_glob(scope).map(of_file)
    }

    /// The existing group that `scope` shares, if it shares one.
    fn shared(&self, scope: &str) -> Option<SharedGroup> {
        let (group, weight, through) = self.sharing(scope)?;
        Some(SharedGroup {
            group,
            weight,
            through: through.map(|tenant| format!("tenant/{tenant}").into()),
        })
    }

    /// The parts of [`Self::shared`], with the name of the attached tenant. Allocates nothing, for
    /// scans of all scopes.
    fn sharing<'a>(&self, scope: &'a str) -> Option<(Arc<Group>, NonZeroU32, Option<&'a str>)> {
        let by = |kind, name, through| {
            let Attachment { group, weight } = self.attachment_of(kind, name)?;
            let group = self.in_force(self.group(group)?.value);
            Some((group, *weight, through))
        };
        if let Some(tenant) = scope.strip_prefix("tenant/") {
            return by(MemberKind::Tenant, tenant, None);
        }
        let namespace = scope.strip_prefix("namespace/")?;
        by(MemberKind::Namespace, namespace, None).or_else(|| {
            let (tenant, _) = namespace.split_once('/')?;
            by(MemberKind::Tenant, tenant, Some(tenant))
        })
    }

    fn attachment_of(&self, kind: MemberKind, name: &str) -> Option<&Attachment> {
        let of_file = self.file.attached(kind).get(name);
        of_file.or_else(|| self.stored(kind).get(name).map(|stored| &stored.value))
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
    /// Resolves the scope of a group. Under `members`, a client that refreshes it is one more
    /// member.
    fn of_group(scope: &Arc<str>, group: Arc<Group>) -> Self {
        let raised_until = group.raised_until();
        let own = OwnLimits {
            source: raised_until.map_or(LimitSource::Group, LimitSource::Raise),
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
            usual: None,
        }
    }

    /// The scope that decides about this one's shard; see [`Catalog::home`].
    pub fn home(&self) -> &str {
        let pool = self.member.as_ref().map(|member| member.group.scope());
        pool.unwrap_or(&self.scope)
    }

    /// The terms of a lease of `unit`; `None` if it has no limit.
    pub fn terms(&self, unit: Unit) -> Option<Terms<'_>> {
        let own = self.own.as_ref().and_then(|own| own.limits.get(unit));
        let Some((pool, lent)) = self.pool(unit) else {
            return own.map(Terms::of);
        };
        // An unlimited own limit says less than the group's.
        let own = own.filter(|own| !own.capacity.is_unlimited());
        Some(Terms {
            limit: own.unwrap_or(lent),
            pool: Some(pool),
        })
    }

    /// The limit of `unit` of which the quotas are the scope's own: a group's that of its pool.
    pub fn counted(&self, unit: Unit) -> Option<&Limit> {
        let terms = self.terms(unit)?;
        let pool = terms.pool.filter(|pool| pool.pool.scope == self.scope);
        Some(pool.map_or(terms.limit, |pool| pool.limit))
    }

    /// The pool of `unit`, and the limit of a member that has none of its own.
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
