//! Leases that clients repeat: Doorman's protocol has no sequences.
//!
//! The lease that such a client says it has may have been said long ago: in a request that was late,
//! or of another process with the same id. Believed, it could free a lease that is in use. But such
//! a client says its whole lease again as it was answered, with the time at which it ends, and that
//! tells which answer it has applied. So:
//!
//! - If it says the lease that was granted last, it uses that and nothing else.
//! - If not, nothing is known, and it may be using all that the lease table counts. That is at most
//!   two leases for a client. While there are two, it gets its current lease again, so that there
//!   never is a third; a client that never says what it has follows a lower share one lease later.
//! - In learning mode nothing that a client says can be from before a larger grant, because none is
//!   made: it has what it says.

use std::time::Duration;

use tollgate_core::lease::{Demand, LeaseRequest, ResourceId};
use tollgate_core::units::Capacity;
use tollgate_leases::derived::{DeriveRequest, KnownClient};

/// Lease that a client says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepeatedLease {
    /// Capacity of the lease.
    pub(super) capacity: Capacity,
    /// Time that is left of it by the client's account, which may be a second too little.
    pub(super) remaining: Duration,
}

/// Request of a Doorman client for one resource.
#[derive(Clone, Debug)]
pub(super) struct DoormanAsk {
    pub(super) resource: ResourceId,
    /// The lease that the client says it has.
    pub(super) repeated: Option<RepeatedLease>,
    pub(super) demand: Demand,
}

/// How much less time than the lease table a client may say is left: Doorman rounds a lease's end
/// down to a second.
const ROUNDING: Duration = Duration::from_millis(1250);

/// How much more: wall clocks are corrected.
const CORRECTION: Duration = Duration::from_millis(250);

// === impl DoormanAsk ===

impl DeriveRequest for DoormanAsk {
    fn derive(&self, client: Option<&KnownClient>) -> LeaseRequest {
        let Some(client) = client else {
            return self.request(0);
        };
        let known = &client.state;
        let next = known.sequence.saturating_add(1);
        if client.is_learning {
            return self.request(next);
        }
        let granted = known.granted;
        let repeats = |lease: RepeatedLease| lease.repeats(granted.capacity, granted.remaining);
        if self.repeated.is_some_and(repeats) {
            return self.with(next, granted.capacity);
        }
        let prior = known.prior;
        let sequence = if prior.is_some_and(|prior| !prior.remaining.is_zero()) {
            // Answered as a request that came twice.
            known.sequence
        } else {
            next
        };
        let prior = prior.map_or(Capacity::ZERO, |prior| prior.capacity);
        self.with(sequence, granted.capacity.max(prior))
    }
}

impl DoormanAsk {
    /// The request by the client's word alone.
    fn request(&self, sequence: u64) -> LeaseRequest {
        let has = self.repeated.map_or(Capacity::ZERO, |lease| lease.capacity);
        LeaseRequest {
            remaining: self.repeated.map(|lease| lease.remaining),
            ..self.with(sequence, has)
        }
    }

    fn with(&self, sequence: u64, has: Capacity) -> LeaseRequest {
        LeaseRequest {
            demand: self.demand.clone(),
            ..LeaseRequest::new(sequence, has, Capacity::ZERO)
        }
    }
}

// === impl RepeatedLease ===

impl RepeatedLease {
    /// Whether this is the lease of `capacity` of which `left` is left.
    fn repeats(self, capacity: Capacity, left: Duration) -> bool {
        let rounded = self.remaining.saturating_add(ROUNDING) >= left;
        let corrected = self.remaining <= left.saturating_add(CORRECTION);
        self.capacity == capacity && rounded && corrected
    }
}

#[cfg(test)]
mod tests;
