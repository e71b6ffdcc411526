//! When clients that draw report the tokens that they have spent.

use core::time::Duration;

use super::{Allocation, ClientEntry};
use crate::fleet::Report;
use crate::lease::DrawRequest;
use crate::pool::PoolLink;
use crate::units::{Instant, Tokens};

/// Time after which a client reports tokens that it has spent, where they are much of the burst.
const REPORT_AFTER: Duration = Duration::from_millis(20);

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
        (next, interval): (Option<Duration>, Duration),
        pool: &PoolLink<'_>,
    ) -> Duration {
        let reported = request.map_or(Tokens::ZERO, |request| request.holds);
        let soon = interval.min(self.times(now).min_refresh);
        if entry.draws.is_offered && !self.is_drawn {
            // It gets a lease the next time.
            return soon;
        }
        let reports_in = next.map_or(interval, |next| next.min(interval));
        let offered = entry.draws.is_offered;
        if !offered || !self.lacks_room(now, entry, (reported, reports_in), pool) {
            return interval;
        }
        if entry.draws.holds > reported {
            soon.min(REPORT_AFTER)
        } else {
            soon
        }
    }

    /// Whether tokens that the client of `entry` will have spent soon are much of a burst, and lack in its
    /// bucket until it reports that.
    fn lacks_room(
        &self,
        now: Instant,
        entry: &ClientEntry,
        (reported, after): (Tokens, Duration),
        pool: &PoolLink<'_>,
    ) -> bool {
        let granted = entry.draws.holds.saturating_sub(reported);
        let spends = granted.max(self.expected(now, entry));
        let spends = spends.min(entry.draws.holds);
        let report = Report { spends, after };
        let own = self.own_sums();
        own.is_some_and(|sums| self.fleet.lacks_room(now, &sums, report))
            || pool.lacks_room(now, report)
    }
}
