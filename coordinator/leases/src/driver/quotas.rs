//! Quotas: what is used of them, and changes of that by people.

use std::sync::Arc;

use tollgate_core::fleet::{QuotaChangeRequest, QuotaError, QuotaUsage};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::units::Instant;

use super::{Driver, check_home};

/// Accounts that are looked at for a page: no client is answered meanwhile.
const LOOKED_AT: usize = 2000;

/// Quotas of a scope.
#[derive(Clone, Debug)]
pub struct ScopeQuotas {
    /// The scope.
    pub scope: Arc<str>,
    /// Usage of each, by unit; only units that have any.
    pub units: Vec<(Unit, Vec<QuotaUsage>)>,
}

/// Quotas of some scopes.
#[derive(Clone, Debug, Default)]
pub struct ScopeQuotasPage {
    /// The scopes, in order; there may be fewer than were asked for.
    pub scopes: Vec<ScopeQuotas>,
    /// The scope after which the list goes on; none at its end.
    pub next: Option<Arc<str>>,
}

/// Reason for which a quota is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaFault {
    /// The lease table refuses it.
    #[error(transparent)]
    Refused(#[from] QuotaError),
    /// The change could not be stored; it may hold until a restart.
    #[error("the change could not be stored")]
    NotStored,
}

// === impl Driver ===

impl Driver {
    /// The quotas of `scope`; none if it has none, or belongs to another shard.
    pub(super) fn scope_quotas(&mut self, now: Instant, scope: &Arc<str>) -> Option<ScopeQuotas> {
        self.follow_catalog();
        let resolved = self.resolver.resolve(scope);
        check_home(self.origin, self.shards, resolved).ok()?;
        let mut units = Vec::new();
        for unit in Unit::ALL {
            let resource = ResourceId {
                scope: scope.clone(),
                unit,
            };
            let Some(limit) = resolved.counted(unit) else {
                continue;
            };
            let usage = self.server.quota_usage(now, &resource, limit);
            if !usage.is_empty() {
                units.push((unit, usage));
            }
        }
        let scope = scope.clone();
        (!units.is_empty()).then_some(ScopeQuotas { scope, units })
    }

    /// The quotas of `max` scopes after `after` of which something is known.
    pub(super) fn quota_page(&mut self, now: Instant, after: &str, max: usize) -> ScopeQuotasPage {
        let [.., last_unit] = Unit::ALL;
        let after = ResourceId {
            scope: after.into(),
            unit: last_unit,
        };
        let known = self.server.accounts_after(&after, LOOKED_AT);
        let is_end = known.len() < LOOKED_AT;
        let mut scopes: Vec<_> = known.into_iter().map(|id| id.scope.clone()).collect();
        scopes.dedup();
        if !is_end {
            // Other units of it may follow.
            scopes.pop();
        }
        let mut page = ScopeQuotasPage::default();
        let mut last = None;
        for scope in scopes {
            if page.scopes.len() >= max {
                page.next = last;
                return page;
            }
            page.scopes.extend(self.scope_quotas(now, &scope));
            last = Some(scope);
        }
        page.next = last.filter(|_| !is_end);
        page
    }

    /// Makes a change of a quota of `resource`; none if that belongs to another shard.
    pub(super) fn change_quota(
        &mut self,
        now: Instant,
        resource: &ResourceId,
        request: &QuotaChangeRequest,
    ) -> Option<Result<(), QuotaFault>> {
        self.follow_catalog();
        let resolved = self.resolver.resolve(&resource.scope);
        check_home(self.origin, self.shards, resolved).ok()?;
        let Some(terms) = resolved.terms(resource.unit) else {
            return Some(Err(QuotaError::Unknown.into()));
        };
        let changed = self
            .server
            .handle_quota_change(now, resource, &terms, request);
        Some(changed.map_err(QuotaFault::from))
    }
}
