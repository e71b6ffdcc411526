//! Count of the leases of all drivers of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of leases of all drivers that share a bound; clones share the count.
#[derive(Clone, Debug, Default)]
pub struct LeaseCount(Arc<AtomicUsize>);

/// One driver's part of a [`LeaseCount`], subtracted when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: LeaseCount,
    own: usize,
}

// === impl Tally ===

impl Tally {
    /// A part of `all` that is zero so far.
    pub(super) fn new(all: LeaseCount) -> Self {
        Self { all, own: 0 }
    }

    /// Sets this driver's part to `own`; returns the sum of the other parts. Two drivers that count
    /// at the same time may both miss the other's last call.
    pub(super) fn count(&mut self, own: usize) -> usize {
        let LeaseCount(all) = &self.all;
        if own != self.own {
            all.fetch_add(own, Ordering::Relaxed);
            all.fetch_sub(self.own, Ordering::Relaxed);
            self.own = own;
        }
        all.load(Ordering::Relaxed).saturating_sub(own)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.count(0);
    }
}
