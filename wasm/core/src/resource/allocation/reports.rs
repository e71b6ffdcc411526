//! When clients that draw report the tokens that they have spent.

use core::time::Duration;

use super::{Allocation, ClientEntry};
use crate::lease::DrawRequest;
use crate::units::{Instant, Tokens};

/// Time after which a client reports tokens that it has spent, where they are much of the burst.
const REPORT_AFTER: Duration = Duration::from_millis(20);

/// Part of the burst that clients may hold together for a refresh interval.
const HELD_PARTS: u64 = 8;

/// Part of the burst that a client may spend before it reports it.
const SPENT_PARTS: u64 = 16;

// === impl Allocation ===

impl Allocation {
    /// Interval after which the client of `entry` should ask again that would otherwise do so after
    /// `interval`, and may draw after `next`. Tokens that it has spent have no room in the bucket before it reports
    /// that: where they are much of the burst, it should report soon, and those that it was just granted for requests
    /// at once.
    pub(super) fn interval(
        &self,
        now: Instant,
        entry: &ClientEntry,
        request: Option<&DrawRequest>,
        next: Option<Duration>,
        interval: Duration,
    ) -> Duration {
        let reported = request.map_or(Tokens::ZERO, |request| request.holds);
        let soon = interval.min(self.times(now).min_refresh);
        if entry.draws.is_offered && !self.is_drawn {
            // It gets a lease the next time.
            return soon;
        }
        let reports_in = next.map_or(interval, |next| next.min(interval));
        if !entry.draws.is_offered || !self.lacks_room(now, entry, reported, reports_in) {
            return interval;
        }
        match entry.draws.holds > reported {
            true => soon.min(REPORT_AFTER),
            false => soon,
        }
    }

    /// Whether tokens that the client of `entry` will have spent soon are much of the burst, and lack in the
    /// fleet's bucket until it reports that. They do not where each token is drawn as soon as it is there, and
    /// until then all that is earned has room.
    fn lacks_room(
        &self,
        now: Instant,
        entry: &ClientEntry,
        reported: Tokens,
        reports_in: Duration,
    ) -> bool {
        let burst = self.limit.burst.as_micros();
        let held = self.held_by_clients().as_micros();
        let granted = entry.draws.holds.saturating_sub(reported);
        let spends = granted
            .max(self.expected(now, entry))
            .min(entry.draws.holds)
            .as_micros();
        let is_exhausted = self.fleet.is_some_and(|bucket| bucket.is_exhausted(now));
        let earned = self.limit.capacity.as_rate().tokens_in(reports_in);
        let needs_room = held.saturating_add(earned.as_micros());
        held.saturating_mul(HELD_PARTS) > burst
            && spends.saturating_mul(SPENT_PARTS) > burst
            && (!is_exhausted || needs_room > burst)
    }
}
