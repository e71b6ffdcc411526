//! Permits of each worker of a process.

use super::{CONFIRM_AFTER, ConcurrencyLimiter, LOST_AFTER, SHARES_MAX, WorkerUsage};
use crate::units::Instant;

/// Permits of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct WorkerShare {
    pub(in crate::client) worker: u64,
    pub(in crate::client) held: u32,
    /// The most it has used at once in this window.
    pub(in crate::client) peak: u32,
    /// Requests that wait for a permit, and that the coordinator has not answered yet.
    pub(in crate::client) waiting: u32,
    /// Time of the worker's last report.
    pub(in crate::client) seen: Instant,
}

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    pub(super) fn set_share(&mut self, now: Instant, usage: &WorkerUsage) {
        if usage.peak == 0 && usage.in_use == 0 && self.find(usage.worker).is_err() {
            return;
        }
        let Some(share) = self.share(usage.worker) else {
            return;
        };
        let same = share.held == usage.in_use && share.peak >= usage.peak;
        share.held = usage.in_use;
        share.peak = share.peak.max(usage.peak).max(usage.in_use);
        if !same || now.saturating_since(share.seen) >= CONFIRM_AFTER {
            share.seen = now;
        }
    }

    /// The worker's share, a new one if it has none; none if there are too many.
    pub(super) fn share(&mut self, worker: u64) -> Option<&mut WorkerShare> {
        let place = match self.find(worker) {
            Ok(place) => place,
            Err(_) if self.shares.len() >= SHARES_MAX => return None,
            Err(place) => {
                let share = WorkerShare {
                    worker,
                    held: 0,
                    peak: 0,
                    waiting: 0,
                    seen: Instant::ZERO,
                };
                self.shares.insert(place, share);
                place
            }
        };
        self.shares.get_mut(place)
    }

    pub(super) fn find(&self, worker: u64) -> Result<usize, usize> {
        self.shares
            .binary_search_by_key(&worker, |share| share.worker)
    }
}

// === impl WorkerShare ===

impl WorkerShare {
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now.saturating_since(self.seen) >= LOST_AFTER
    }
}
