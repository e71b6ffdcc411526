//! Quotas of which much has been used, for people to know.

use alloc::vec::Vec;

use super::LeaseServer;
use crate::fleet::{FleetLimit, QuotaThreshold};
use crate::lease::ResourceId;

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
}

// === free functions ===

/// The thresholds that quotas of the limit called `id` have reached.
fn reached(id: &ResourceId, limit: &mut FleetLimit) -> Vec<(ResourceId, QuotaThreshold)> {
    let thresholds = limit.quotas.take_thresholds().into_iter();
    thresholds
        .map(|threshold| (id.clone(), threshold))
        .collect()
}
