//! Capacity that clients give back of leases from before their coordinator started, and that is
//! lent to others while the coordinator still learns.
//!
//! All leases of earlier masters together are within the capacity. So capacity of which it is known
//! that a client used it after the start, and uses it no more, is free, whatever else is out that
//! has not been heard of. A claim does not prove the first: it may be older than the start, and its
//! client may have given back to the master before what it claims here. An answer does: the client
//! applies it only if it has applied no other answer to that request, so the claim of the request
//! was true until then. So a lease that is granted in place of a larger one carries a fingerprint
//! that no other master grants, a *receipt*; and what the next request that shows it acknowledges
//! has been given back.
//!
//! Only leases that are certainly within the limits of today are given back so: under a lowered
//! capacity there may be more out than there is.

use super::{Allocation, ClientEntry};
use crate::hash::mixed;
use crate::lease::{Claim, Epoch, LeaseRequest};
use crate::units::{Capacity, Instant};

/// Bits in which a receipt differs from what it is a receipt for: so that of a capacity is above
/// all capacities, and that of a pool is no pool's.
const RECEIPT_BITS: u64 = 3 << 62;

/// Capacity that was given back while learning and has not been lent since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnedCapacity {
    /// Fingerprint of the limits under which it is free.
    pub under: u64,
    /// Its amount.
    pub capacity: Capacity,
}

// === impl Allocation ===

impl Allocation {
    /// Fingerprint of a lease that a client gets in place of a larger one, of `fingerprint`; none
    /// if that is not certainly within the limits of today, or learning is not the coordinator's.
    pub(super) fn receipt(&self, now: Instant, fingerprint: u64) -> Option<u64> {
        let proves = now < self.collect_until && self.is_within_limits(fingerprint);
        proves.then_some(fingerprint ^ self.receipt_key)
    }

    /// The fingerprint for which `fingerprint` is a receipt; itself if it is none.
    pub(super) fn without_receipt(&self, fingerprint: u64) -> u64 {
        match self.is_receipt(fingerprint) {
            true => fingerprint ^ self.receipt_key,
            false => fingerprint,
        }
    }

    fn is_receipt(&self, fingerprint: u64) -> bool {
        self.is_within_limits(fingerprint ^ self.receipt_key) && self.receipt_key != 0
    }

    /// Takes `capacity` back that `request` has acknowledged not to use any more.
    pub(super) fn take_back(&mut self, request: &LeaseRequest, capacity: Capacity) {
        if capacity > Capacity::ZERO && self.is_receipt(request.fingerprint) {
            self.returned = ReturnedCapacity {
                under: self.fingerprint(),
                capacity: self.returned().saturating_add(capacity),
            };
        }
    }

    /// Takes `capacity` out of what was given back, to lend it.
    pub(super) fn lend_returned(&mut self, capacity: Capacity) {
        let rest = self.returned.capacity.saturating_sub(capacity);
        self.returned.capacity = rest;
    }

    /// Capacity that was given back and is free for a client that is confirmed `gets`: until its
    /// share, and no more than all others leave. None before all clients with a lease can have been
    /// heard: until then a lie could give back what others use.
    pub(super) fn returned_for(
        &self,
        now: Instant,
        entry: &ClientEntry,
        gets: Capacity,
        request: &LeaseRequest,
    ) -> Capacity {
        let within = self.is_within_limits(self.without_receipt(request.fingerprint));
        let grows = request.claim == Claim::Lease && (within || request.has == Capacity::ZERO);
        if !grows || now >= self.collect_until || self.collecting(now).is_some() {
            return Capacity::ZERO;
        }
        let most = self
            .entitled_by_wants(entry)
            .min(self.free(entry.has()).grow);
        let more = most.saturating_sub(gets).min(self.returned());
        self.shares.quantum().floor(more)
    }

    fn returned(&self) -> Capacity {
        match self.returned.under == self.fingerprint() {
            true => self.returned.capacity,
            false => Capacity::ZERO,
        }
    }
}

// === free functions ===

/// The number that makes receipts of fingerprints, for a master of `epoch` that learns.
pub(crate) fn receipt_key(epoch: Epoch) -> u64 {
    mixed(epoch.0) | RECEIPT_BITS
}
