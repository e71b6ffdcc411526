//! Clients of protocols without sequences, such as Doorman's.
//!
//! What such a client says that it has may have been said long ago: a request that was late, or the
//! request of another process with the same id. Believed, it could free a lease that is in use. But
//! such a client says its whole lease again as it was answered, with the time at which it ends, and
//! that tells which answer it has applied. So:
//!
//! - If it says the lease that was granted last, it uses that and nothing else.
//! - If not, nothing is known, and it may be using all that the books count. They count at most two
//!   loans for a client. While they count two, it gets its current lease again, so that there never
//!   is a third; a client that never says what it has follows a lower share one lease later.
//! - In learning mode nothing that a client says can be from before a larger grant, because none is
//!   made: what it says is what it has.

use core::time::Duration;

use super::{ClientKey, Resource};
use crate::lease::{ClientRun, Demand, LeaseRequest};
use crate::units::{Capacity, Instant};

/// What a client says of its lease in a protocol that has no sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedLease {
    /// How much it is.
    pub capacity: Capacity,
    /// How long it still lasts by the client's account, which may be a second too little.
    pub remaining: Duration,
}

/// How much less than the books a client may say that is left: such protocols round a lease's end
/// down to a second.
const ROUNDING: Duration = Duration::from_millis(1250);

/// How much more: wall clocks are corrected.
const CORRECTION: Duration = Duration::from_millis(250);

// === impl Resource ===

impl Resource {
    /// What `client`, which says `echo`, is taken to ask when it wants `demand`.
    pub(crate) fn ask_of(
        &self,
        now: Instant,
        client: &ClientRun,
        repeated: Option<RepeatedLease>,
        demand: Demand,
    ) -> LeaseRequest {
        let Some(entry) = self.clients.get(&ClientKey::new(client)) else {
            return RepeatedLease::ask(repeated, 0, demand);
        };
        let next = entry.sequence.saturating_add(1);
        if now < self.learning_until() {
            return RepeatedLease::ask(repeated, next, demand);
        }
        let (granted, expiry) = entry.current();
        let left = expiry.saturating_since(now);
        let sequence = if repeated.is_some_and(|repeated| repeated.names(granted, left)) {
            return LeaseRequest {
                demand,
                ..LeaseRequest::new(next, granted, Capacity::ZERO)
            };
        } else if entry.has_two(now) {
            // Answered as a request that came twice.
            entry.sequence
        } else {
            next
        };
        LeaseRequest {
            demand,
            ..LeaseRequest::new(sequence, entry.has(), Capacity::ZERO)
        }
    }
}

// === impl RepeatedLease ===

impl RepeatedLease {
    /// What a client asks of which only `echo` is known.
    pub(crate) fn ask(repeated: Option<Self>, sequence: u64, demand: Demand) -> LeaseRequest {
        let has = repeated.map_or(Capacity::ZERO, |repeated| repeated.capacity);
        LeaseRequest {
            remaining: repeated.map(|repeated| repeated.remaining),
            demand,
            ..LeaseRequest::new(sequence, has, Capacity::ZERO)
        }
    }

    /// Whether this is the lease of `capacity` of which `left` is left.
    fn names(self, capacity: Capacity, left: Duration) -> bool {
        let rounded = self.remaining.saturating_add(ROUNDING) >= left;
        let corrected = self.remaining <= left.saturating_add(CORRECTION);
        self.capacity == capacity && rounded && corrected
    }
}

#[cfg(test)]
mod tests;
