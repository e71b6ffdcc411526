//! Bucket of a proxy: its demand, and what the proxy was told of it.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::client::DemandEstimator;
use tollgate_core::units::{Capacity, Instant, MICRO};

use super::assignment::SentAssignment;
use super::bucket_name::BucketName;
use super::memory::BucketCharge;

/// The most that a proxy may say has passed since its last report.
const ELAPSED_MAX: Duration = Duration::from_secs(60);

/// The least difference of a proxy's time and ours that does not come from the way of a report.
const RESET_GAP: Duration = Duration::from_millis(300);

/// The same if the proxy says whole seconds, as Envoy does.
const RESET_GAP_WHOLE: Duration = Duration::from_millis(1500);

/// Usage of one bucket since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) name: BucketName,
    /// By the proxy's account; zero in the first report of all.
    pub(super) elapsed: Duration,
    /// Requests, allowed and denied.
    pub(super) requests: u64,
}

/// One bucket of a proxy.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) name: Arc<BucketName>,
    /// Scope that its requests are charged to.
    pub(super) scope: Arc<str>,
    demand: DemandEstimator,
    /// When it was first reported on this stream.
    pub(super) known_at: Instant,
    /// Whether the proxy had it before this stream.
    pub(super) is_resumed: bool,
    reported_at: Instant,
    /// When a report last had requests.
    busy_at: Instant,
    pub(super) sent: Option<SentAssignment>,
    /// Whether it is to be assigned again even if nothing has changed.
    pub(super) is_owed: bool,
    /// Its instant in the queue of timers.
    pub(super) queued_at: Option<Instant>,
    /// Its memory.
    _charge: BucketCharge,
}

// === impl Bucket ===

impl Bucket {
    /// The bucket that `usage`, the first one on this stream, is of. `charge` is for its memory.
    pub(super) fn new(now: Instant, usage: Usage, scope: Arc<str>, charge: BucketCharge) -> Self {
        let elapsed = usage.elapsed.min(ELAPSED_MAX);
        let is_resumed = !elapsed.is_zero();
        let requests = if is_resumed {
            usage.requests
        } else {
            // Of no time there is no rate. What is known is that there is a request.
            usage.requests.min(1)
        };
        let began_at = demand_time(now).saturating_sub(elapsed);
        let mut demand = DemandEstimator::new(began_at);
        demand.count(demand_time(now), requests, 1);
        Self {
            name: Arc::new(usage.name),
            scope,
            demand,
            known_at: now,
            is_resumed,
            reported_at: now,
            busy_at: now,
            sent: None,
            is_owed: true,
            queued_at: None,
            _charge: charge,
        }
    }

    /// Takes a report at `now`, by our own clock. A client that has counted for a shorter time has
    /// forgotten its counts with the last assignment.
    pub(super) fn report(&mut self, now: Instant, usage: &Usage) {
        let since = now.saturating_since(self.reported_at);
        let mut requests = usage.requests;
        if let Some(sent) = self.sent
            && usage.elapsed.saturating_add(reset_gap(usage.elapsed)) < since
        {
            let counted = now.saturating_since(sent.at().max(self.reported_at));
            let (since, counted) = (since.as_millis(), counted.as_millis().max(100));
            let scaled = u128::from(requests).saturating_mul(since) / counted;
            requests = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        self.demand.count(demand_time(now), requests, 1);
        self.reported_at = now;
        if usage.requests > 0 {
            self.busy_at = now;
        }
        self.is_owed = true;
    }

    /// Requests per second that it wants, in whole ones. A bucket in use wants at least one: else
    /// its next request would be refused until the next report.
    pub(super) fn wants(&self) -> Capacity {
        let whole = self.demand.wants().as_micros().div_ceil(MICRO);
        Capacity::from_whole(whole.max(1))
    }

    /// When it is abandoned unless a report with requests comes.
    pub(super) fn idle_at(&self, abandon_after: Duration) -> Instant {
        self.busy_at.saturating_add(abandon_after)
    }
}

// === free functions ===

/// The time `now` on a clock that was there for the longest time that a proxy may say: this node may
/// have started since.
fn demand_time(now: Instant) -> Instant {
    now.saturating_add(ELAPSED_MAX)
}

fn reset_gap(elapsed: Duration) -> Duration {
    match elapsed.subsec_nanos() {
        0 => RESET_GAP_WHOLE,
        _ => RESET_GAP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlqs::memory::BucketMemory;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(60_000_000_000).saturating_add(Duration::from_millis(millis))
    }

    fn usage(elapsed_s: u64, requests: u64) -> Usage {
        Usage {
            name: BucketName::new(),
            elapsed: Duration::from_secs(elapsed_s),
            requests,
        }
    }

    impl Bucket {
        fn of(now: Instant, usage: Usage) -> Self {
            let charge = BucketMemory::default().charge(&usage.name).unwrap();
            Self::new(now, usage, "a/b".into(), charge)
        }
    }

    fn wants(bucket: &Bucket) -> u64 {
        bucket.wants().as_micros() / MICRO
    }

    #[test]
    fn a_first_report_is_no_rate_and_later_ones_are_by_our_clock() {
        let mut bucket = Bucket::of(at(0), usage(0, 1));
        assert!(!bucket.is_resumed);
        assert_eq!(wants(&bucket), 10);
        bucket.report(at(5000), &usage(5, 499));
        assert_eq!(wants(&bucket), 100);
        // In whole seconds the proxy's time is a fifth less.
        bucket.report(at(9990), &usage(4, 1996));
        assert_eq!(wants(&bucket), 400);
        bucket.report(at(15_000), &usage(5, 0));
        assert_eq!(wants(&bucket), 1);
        let many = Bucket::of(at(0), usage(0, u64::MAX));
        assert_eq!(wants(&many), 10);
    }

    #[test]
    fn a_bucket_that_was_reported_on_an_earlier_stream_has_a_rate_at_once() {
        // Also on a node that has just started.
        for now in [at(0), Instant::ZERO] {
            let bucket = Bucket::of(now, usage(5, 500));
            assert!(bucket.is_resumed);
            assert_eq!(wants(&bucket), 100);
        }
        let lie = Bucket::of(at(0), usage(u64::MAX, 600));
        assert_eq!(wants(&lie), 10);
    }

    #[test]
    fn counts_that_were_reset_by_an_assignment_are_a_rate_since_then() {
        use crate::rlqs::assignment::{Assignment, Strategy};
        let assignment = Assignment {
            strategy: Strategy::AllowAll,
            time_to_live: Duration::from_secs(9),
        };
        let mut bucket = Bucket::of(at(0), usage(0, 1));
        bucket.report(at(10_000), &usage(10, 999));
        bucket.sent = Some(SentAssignment::new(assignment, at(16_000)));
        bucket.report(at(20_000), &usage(4, 400));
        assert_eq!(wants(&bucket), 100);
    }

    #[test]
    fn a_bucket_is_idle_since_its_last_request() {
        let mut bucket = Bucket::of(at(0), usage(0, 1));
        let after = Duration::from_secs(60);
        bucket.report(at(5000), &usage(5, 0));
        assert_eq!(bucket.idle_at(after), at(60_000));
        bucket.report(at(10_000), &usage(5, 1));
        assert_eq!(bucket.idle_at(after), at(70_000));
    }
}
