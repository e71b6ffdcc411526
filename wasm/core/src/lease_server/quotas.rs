//! Quotas of resources and pools, for people to read and to change.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use super::slot::ResourceSlot;
use super::{LeaseServer, Terms, requeue};
use crate::fleet::{FleetLimit, QuotaChangeRequest, QuotaError, QuotaThreshold, QuotaUsage};
use crate::lease::ResourceId;
use crate::limit::Limit;
use crate::resource::Resource;
use crate::units::{Instant, Tokens};

/// The most thresholds that wait to be taken.
const THRESHOLDS_MAX: usize = 1000;

// === impl LeaseServer ===

impl LeaseServer {
    /// Notes the thresholds that quotas of the resource `id`, and of its pool, have reached.
    pub(super) fn note_quotas(&mut self, id: &ResourceId) {
        let Some(slot) = self.resources.get_mut(id) else {
            return;
        };
        let mut thresholds = reached(id, &mut slot.resource.allocation.fleet);
        let pool = slot.pool.as_ref().map(|(pool, _)| pool);
        if let Some((id, pool)) = pool.and_then(|id| Some((id, self.pools.get_mut(id)?))) {
            thresholds.extend(reached(id, &mut pool.fleet));
        }
        if self.quota_thresholds.len() < THRESHOLDS_MAX {
            self.quota_thresholds.append(&mut thresholds);
        }
    }

    /// Takes the thresholds that quotas have reached since the last call.
    pub fn take_quota_thresholds(&mut self) -> Vec<(ResourceId, QuotaThreshold)> {
        core::mem::take(&mut self.quota_thresholds)
    }

    /// The first `max` resources and pools after `id` that are known here, or in the store.
    pub fn accounts_after(&self, id: &ResourceId, max: usize) -> Vec<&ResourceId> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let resources = self.resources.range(after).map(|(id, _)| id);
        let pools = self.pools.ids_after(id);
        let stored = self.buckets.ids_after(id);
        let first = resources.take(max).chain(pools.take(max));
        let all: BTreeSet<_> = first.chain(stored.take(max)).collect();
        all.into_iter().take(max).collect()
    }

    /// Usage of the quotas of the resource or the pool `id`, whose limit is `limit`.
    pub fn quota_usage(&self, now: Instant, id: &ResourceId, limit: &Limit) -> Vec<QuotaUsage> {
        match (self.pools.get(id), self.resources.get(id)) {
            (Some(pool), _) => pool.quotas(now),
            (None, Some(slot)) => slot.resource.quotas(now),
            (None, None) => self.usage_without_clients(now, id, limit),
        }
    }

    /// The same of a limit that is in the store at most.
    fn usage_without_clients(
        &self,
        now: Instant,
        id: &ResourceId,
        limit: &Limit,
    ) -> Vec<QuotaUsage> {
        let mut fleet = FleetLimit::default();
        fleet.quotas.set(&limit.quotas);
        if let Some(stored) = self.buckets.restored(id) {
            fleet.quotas.restore(&stored.quotas, (Tokens::ZERO, now));
        }
        fleet.quotas.advance(now, self.wall_clock, Tokens::ZERO);
        fleet.quotas.usage(now, Tokens::ZERO)
    }

    /// Makes a change of a quota of the resource `id`, or of the pool of that name.
    ///
    /// # Errors
    /// If it has no such quota, or there is no room for the resource or a credit, or the credit is none.
    pub fn handle_quota_change(
        &mut self,
        now: Instant,
        id: &ResourceId,
        terms: &Terms<'_>,
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        if terms.pool.is_some_and(|pool| pool.pool == id) {
            return self.change_quota_of_pool(now, id, terms, request);
        }
        if !self.resources.contains_key(id) {
            self.begin_without_clients(now, id, terms)?;
        }
        let Some(slot) = self.resources.get_mut(id) else {
            return Err(QuotaError::Unknown);
        };
        let allocation = &mut slot.resource.allocation;
        allocation.set_limit(now, terms.limit);
        allocation.advance_quotas(now, self.wall_clock);
        let changed = allocation.change_quota(now, request);
        self.buckets.note_resource(now, id, slot);
        requeue(&mut self.timeouts, id, slot);
        changed
    }

    fn change_quota_of_pool(
        &mut self,
        now: Instant,
        id: &ResourceId,
        terms: &Terms<'_>,
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        let stored = |pool: &ResourceId| self.buckets.restore(now, pool);
        self.pools.begin(now, self.wall_clock, terms, stored);
        let pool = self.pools.get_mut(id).ok_or(QuotaError::Unknown)?;
        let changed = pool.change_quota(now, request);
        self.buckets.note_pool(now, id, pool);
        self.pools.watch_empty();
        changed
    }

    /// Begins the resource `id` without clients.
    fn begin_without_clients(
        &mut self,
        now: Instant,
        id: &ResourceId,
        terms: &Terms<'_>,
    ) -> Result<(), QuotaError> {
        let max = self.bounds.max_resources;
        if self.resources.len() >= max {
            return Err(QuotaError::TooManyResources { max });
        }
        let learned_at = self.learning_until(terms);
        let mut resource = Resource::new(id.unit, terms.limit.clone(), learned_at);
        if let Some(stored) = self.buckets.restore(now, id) {
            resource.allocation.restore_bucket(now, &stored);
        }
        // It is looked at, and forgotten if nothing is used of its quotas then.
        self.insert(id, ResourceSlot::new(resource, now), now);
        Ok(())
    }
}

// === free functions ===

/// The thresholds that quotas of the limit called `id` have reached.
fn reached(id: &ResourceId, limit: &mut FleetLimit) -> Vec<(ResourceId, QuotaThreshold)> {
    let thresholds = limit.quotas.take_thresholds().into_iter();
    thresholds
        .map(|threshold| (id.clone(), threshold))
        .collect()
}
