//! Whether clients of a limit draw of the fleet's bucket, or have leases.

use core::time::Duration;

use super::{FleetLimit, FleetSums};
use crate::units::{Capacity, Instant};

/// Capacity of a limit, in requests a second, below which clients draw each token of it and have no lease, however
/// few they are.
pub(super) const DRAWN_BELOW: Capacity = Capacity::from_whole(20);

/// Capacity for each client below which they draw: a bucket that earns so little overflows at one client
/// while another starves.
const DRAWN_BELOW_EACH: Capacity = Capacity::from_whole(12);

/// The same of permits: these are returned and drawn at intervals, however many requests there are.
const PERMITS_DRAWN_BELOW_EACH: Capacity = Capacity::from_whole(100);

/// Capacity of a limit from which clients have leases of it, however many they are and however little they
/// want, but for its first second: a call for each request would cost more than what a bucket that is
/// split loses, and a lease outlives the coordinator.
const LEASED_FROM: Capacity = Capacity::from_whole(1000);

/// The same of the part of a limit that is borrowed. There leases lose little: of 500 a second over 45 Envoys below nine
/// coordinators a call for each request would gain a tenth of a percent.
const BORROWED_LEASED_FROM: Capacity = Capacity::from_whole(50);

/// Part of the burst that is left where clients of a limit that is drawn have leases again.
const LOW_PARTS: u64 = 8;

/// Time for which clients that begin to want more draw all the same, as long as there are tokens.
const LEASED_AFTER: Duration = Duration::from_secs(1);

/// Part of a limit, in eighths, of which clients that have leases want less when they draw again: a burst may
/// then come through any of them.
const DRAWN_BELOW_EIGHTHS: u64 = 2;

/// The same of clients that draw, when they have leases again.
const LEASED_FROM_EIGHTHS: u64 = 3;

// === impl FleetLimit ===

impl FleetLimit {
    /// Decides whether the clients that are there now draw, or have leases.
    pub(crate) fn decide_draws(&mut self, now: Instant, sums: &FleetSums, may: bool) {
        let capacity = self.in_requests(sums, sums.capacity);
        // A lease would not pay what the bucket owes.
        let pays = self.is_drawn && self.bucket.is_some_and(|bucket| bucket.is_in_debt(now));
        let is_small = if sums.unit.is_concurrency() {
            self.is_below(sums, capacity, PERMITS_DRAWN_BELOW_EACH)
        } else {
            self.note_use(now, sums);
            let is_large = capacity >= leased_from(sums);
            capacity < DRAWN_BELOW
                || self.has_unknown_cost(sums)
                || (!is_large && self.is_below(sums, capacity, DRAWN_BELOW_EACH))
                || (!(is_large && sums.is_borrowed) && self.has_slack(now, sums))
        };
        self.is_drawn = may && (is_small || pays || self.quotas.has_any());
    }

    /// Whether `capacity` is less than `each` for each client; for clients that draw half as much more, so that
    /// they do not change to and fro.
    fn is_below(&self, sums: &FleetSums, capacity: Capacity, each: Capacity) -> bool {
        let least = if self.is_drawn {
            each.saturating_add(each.divided_by(2))
        } else {
            each
        };
        capacity.divided_by(sums.subclients) < least
    }

    /// Notes since when the limit is busy: it is large, or clients want much of it, or much each.
    fn note_use(&mut self, now: Instant, sums: &FleetSums) {
        let wants = self.in_requests(sums, Capacity::from_sum(sums.wants));
        let capacity = self.in_requests(sums, sums.capacity);
        let eighths = if self.is_drawn {
            LEASED_FROM_EIGHTHS
        } else {
            DRAWN_BELOW_EIGHTHS
        };
        let part = capacity.divided_by(8).saturating_mul(eighths);
        let is_little = capacity < leased_from(sums)
            && wants < part
            && self.is_below(sums, wants, DRAWN_BELOW_EACH);
        self.busy_since = if is_little {
            None
        } else {
            self.busy_since.or(Some(now))
        };
    }

    /// Whether clients want little of the limit; or draw, and have begun to want more: the tokens that are there
    /// are for those who ask for them, and what each will go on to want is not known yet.
    fn has_slack(&self, now: Instant, sums: &FleetSums) -> bool {
        let Some(since) = self.busy_since else {
            return true;
        };
        let is_new = self.bucket.is_none() && sums.has == 0;
        let is_low = self
            .bucket
            .is_some_and(|bucket| bucket.left(now) < sums.burst_part(LOW_PARTS));
        (self.is_drawn || is_new) && !is_low && now < since.saturating_add(LEASED_AFTER)
    }
}

// === free functions ===

/// Capacity from which clients have leases, however many they are and however little they want.
fn leased_from(sums: &FleetSums) -> Capacity {
    if sums.is_borrowed {
        BORROWED_LEASED_FROM
    } else {
        LEASED_FROM
    }
}
