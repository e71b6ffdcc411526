//! How many leases all drivers of this process keep together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The leases of all drivers that share a bound; clones share the count.
#[derive(Clone, Debug, Default)]
pub struct LeaseCount(Arc<AtomicUsize>);

/// One driver's part of a [`LeaseCount`], which ends with it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: LeaseCount,
    own: usize,
}

// === impl Tally ===

impl Tally {
    /// Nothing of `all` yet.
    pub(super) fn new(all: LeaseCount) -> Self {
        Self { all, own: 0 }
    }

    /// Takes over that this driver keeps `own` leases; how many the others keep. Two drivers that
    /// count at the same time may both miss what the other has just added: a call each at most.
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
