//! Grant fingerprints: under which limits a lease was granted, so that it can be told later whether
//! it is within the limits of today.

use super::Allocation;
use crate::lease::NO_FINGERPRINT;

/// The least fingerprint that says something, and the bit that tells a pool's from a capacity.
const CERTAIN: u64 = 2;
const POOLED: u64 = 1 << 63;

// === impl Allocation ===

impl Allocation {
    /// Fingerprint of a lease that is granted now. With it the client proves later that all leases
    /// together were within the limits of that time.
    pub(super) fn fingerprint(&self) -> u64 {
        let capacity = self.limit.capacity.as_micros();
        match self.pool {
            // Borrowed capacity is another amount each time.
            _ if self.lendable.is_some() => NO_FINGERPRINT,
            None if self.limit.algorithm.shares() => capacity.saturating_add(CERTAIN),
            None => NO_FINGERPRINT,
            Some(pool) => {
                let own = capacity.wrapping_add(self.limit.algorithm as u64);
                own.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ pool.fingerprint | POOLED
            }
        }
    }

    /// Whether all leases of `fingerprint` together are within the limits of today.
    pub(super) fn certifies(&self, fingerprint: u64) -> bool {
        match self.pool {
            // Not said, as by Doorman's clients: then it is prolonged.
            _ if fingerprint == 0 => true,
            // Nothing bounds the sum.
            None if !self.limit.algorithm.shares() => true,
            None => (CERTAIN..=self.fingerprint()).contains(&fingerprint),
            Some(_) => fingerprint == self.fingerprint(),
        }
    }
}
