//! When clients that draw are to report the tokens that they have spent.

use core::time::Duration;

use super::{FleetLimit, FleetSums};
use crate::units::{Instant, Tokens};

/// Part of the burst that clients may hold together for a refresh interval.
const HELD_PARTS: u64 = 8;

/// Part of the burst that a client may spend before it reports it.
const SPENT_PARTS: u64 = 16;

/// Tokens that a client would report the next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Tokens that it will have spent by then.
    pub(crate) spends: Tokens,
    /// Time until then.
    pub(crate) after: Duration,
}

// === impl FleetLimit ===

impl FleetLimit {
    /// Whether the tokens of `report` are much of the burst, and lack in the bucket until then. They do not where each
    /// token is drawn as soon as it is there, and until then all that is earned has room.
    pub(crate) fn lacks_room(&self, now: Instant, sums: &FleetSums, report: Report) -> bool {
        let burst = sums.burst.as_micros();
        let held = sums.draws.held().as_micros();
        let spends = report.spends.as_micros();
        let is_exhausted = self.bucket.is_some_and(|bucket| bucket.is_exhausted(now));
        let earned = sums.capacity.as_rate().tokens_in(report.after);
        let needs_room = held.saturating_add(earned.as_micros());
        held.saturating_mul(HELD_PARTS) > burst
            && spends.saturating_mul(SPENT_PARTS) > burst
            && (!is_exhausted || needs_room > burst)
    }
}
