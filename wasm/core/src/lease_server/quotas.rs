//! Quotas: what is used of them, for people to read and to set.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::slot::ResourceSlot;
use super::{LeaseServer, PoolTerms, Terms, requeue};
use crate::fleet::{FleetLimit, QuotaNote, QuotaUse};
use crate::lease::ResourceId;
use crate::limit::Limit;
use crate::resource::Resource;
use crate::units::{Instant, Tokens};

/// The most notes that wait to be taken.
const NOTES_MAX: usize = 1000;

/// Change of what is used of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// So many tokens are used.
    Set(Tokens),
    /// So many of them are not.
    GiveBack(Tokens),
}

/// Reason for which a quota cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The limit has no quota of that name.
    #[error("the limit has no quota of this name")]
    Unknown,
    /// The coordinator keeps as many resources as it may.
    #[error("this coordinator keeps {max} resources, the most it may")]
    TooManyResources {
        /// The bound.
        max: usize,
    },
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Quotas of the resource or the pool `id`, whose limit is `limit`, with what is used of them.
    pub fn quotas(&self, now: Instant, id: &ResourceId, limit: &Limit) -> Vec<QuotaUse> {
        match (self.pools.get(id), self.resources.get(id)) {
            (Some(pool), _) => pool.quotas(now),
            (None, Some(slot)) => slot.resource.quotas(now),
            (None, None) => self.unused_quotas(now, id, limit),
        }
    }

    /// The same of a resource that is not known, or in the store alone.
    fn unused_quotas(&self, now: Instant, id: &ResourceId, limit: &Limit) -> Vec<QuotaUse> {
        let mut fleet = FleetLimit::default();
        fleet.quotas.set(&limit.quotas);
        if let Some(stored) = self.buckets.peek(id) {
            fleet.quotas.restore(&stored.quotas, (Tokens::ZERO, now));
        }
        fleet.quotas.advance(now, self.wall_clock, Tokens::ZERO);
        fleet.quotas.uses(now)
    }

    /// Changes what is used of the quota `name` of the resource `id`, whose limit is `limit`, or of the pool.
    ///
    /// # Errors
    /// If it has no such quota, or there is no room for the resource.
    pub fn change_quota(
        &mut self,
        now: Instant,
        (id, limit): (&ResourceId, &Limit),
        is_pool: bool,
        (name, change): (&str, QuotaChange),
    ) -> Result<(), QuotaError> {
        if !limit.quotas.iter().any(|quota| quota.has_name(name)) {
            return Err(QuotaError::Unknown);
        }
        if is_pool {
            self.change_quota_of_pool(now, (id, limit), (name, change));
            return Ok(());
        }
        if !self.resources.contains_key(id) {
            self.begin_unused(now, id, limit)?;
        }
        if let Some(slot) = self.resources.get_mut(id) {
            let allocation = &mut slot.resource.allocation;
            allocation.set_limit(now, limit);
            allocation.advance_quotas(now, self.wall_clock);
            allocation
                .fleet
                .change_quota(now, limit.burst, name, change);
            self.buckets.note_limit(now, id, slot);
            requeue(&mut self.timeouts, id, slot);
        }
        Ok(())
    }

    fn change_quota_of_pool(
        &mut self,
        now: Instant,
        (id, limit): (&ResourceId, &Limit),
        (name, change): (&str, QuotaChange),
    ) {
        let member = PoolTerms {
            pool: id,
            limit,
            weight: NonZeroU32::MIN,
        };
        let terms = Terms {
            limit,
            pool: Some(member),
        };
        let stored = |pool: &ResourceId| self.buckets.restore(now, pool);
        self.pools.begin(now, self.wall_clock, &terms, stored);
        if let Some(pool) = self.pools.get_mut(id) {
            pool.fleet.change_quota(now, limit.burst, name, change);
            self.buckets.note_pool(now, id, pool);
        }
        self.pools.watch_empty();
    }

    /// Begins the resource `id` without clients.
    fn begin_unused(
        &mut self,
        now: Instant,
        id: &ResourceId,
        limit: &Limit,
    ) -> Result<(), QuotaError> {
        let max = self.bounds.max_resources;
        if self.resources.len() >= max {
            return Err(QuotaError::TooManyResources { max });
        }
        let learned_at = self.learning_until(&Terms::of(limit));
        let mut resource = Resource::new(id.unit, limit.clone(), learned_at);
        if let Some(stored) = self.buckets.restore(now, id) {
            resource.allocation.restore_bucket(now, &stored);
        }
        // It is looked at, and forgotten if nothing is used of its quotas then.
        let slot = ResourceSlot::new(resource, now);
        self.insert(id, slot, now);
        Ok(())
    }

    /// Notes of which quotas of the resource `id`, and of its pool, much is used.
    pub(super) fn note_quotas(&mut self, id: &ResourceId) {
        let Some(slot) = self.resources.get_mut(id) else {
            return;
        };
        let notes = slot.resource.allocation.fleet.quotas.take_notes();
        let mut notes: Vec<_> = notes.into_iter().map(|note| (id.clone(), note)).collect();
        let pool = slot.pool.as_ref().map(|(pool, _)| pool);
        if let Some((id, pool)) = pool.and_then(|id| Some((id, self.pools.get_mut(id)?))) {
            let of_pool = pool.fleet.quotas.take_notes();
            notes.extend(of_pool.into_iter().map(|note| (id.clone(), note)));
        }
        if self.quota_notes.len() < NOTES_MAX {
            self.quota_notes.append(&mut notes);
        }
    }

    /// Takes notes of the quotas of which much has been used since the last call.
    pub fn take_quota_notes(&mut self) -> Vec<(ResourceId, QuotaNote)> {
        core::mem::take(&mut self.quota_notes)
    }
}
