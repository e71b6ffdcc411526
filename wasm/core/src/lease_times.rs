//! Times of a lease.

use core::time::Duration;

use crate::lendable::{LendableCapacity, LendableSource};
use crate::limit::Limit;
use crate::units::{Instant, nanos};

/// The shortest refresh interval of a lease that ends soon with what is borrowed.
const REFRESH_FLOOR: Duration = Duration::from_millis(10);

/// Length of a lease of safe capacity, in refresh intervals.
const SAFE_REFRESHES: u32 = 4;

/// The shortest minimum interval while the parent's first answer is awaited: that takes about as
/// long as a call, and clients that have nothing need not wait for longer.
const AWAITING_REFRESH: Duration = Duration::from_millis(100);

/// The times that count for a lease: the shorter ones of a limit and its pool's, and of what is
/// borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTimes {
    pub(crate) lease: Duration,
    pub(crate) refresh: Duration,
    pub(crate) min_refresh: Duration,
}

/// Length of a young client's lease in refresh intervals, where leases have to be short.
const FIRST_REFRESHES: u32 = 4;

/// The least length of that, however often clients refresh: it outlasts two calls that are lost after a
/// second each.
const FIRST_LEASE_MIN: Duration = Duration::from_secs(4);

/// The same in minimum intervals: by a longer lease a client sees that its next answer will differ.
const FIRST_ASKS: u32 = 20;

// === impl LeaseTimes ===

impl LeaseTimes {
    pub(crate) fn of(limit: &Limit) -> Self {
        Self {
            lease: limit.lease,
            refresh: limit.refresh,
            min_refresh: limit.min_refresh,
        }
    }

    /// Returns the shorter of both.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            lease: self.lease.min(other.lease),
            refresh: self.refresh.min(other.refresh),
            min_refresh: self.min_refresh.min(other.min_refresh),
        }
    }

    /// Length of a young client's lease, where leases have to be short.
    pub(crate) fn first_lease(self) -> Duration {
        let refreshes = self.refresh.saturating_mul(FIRST_REFRESHES);
        let asks = self.min_refresh.saturating_mul(FIRST_ASKS);
        self.lease.min(refreshes.max(asks).max(FIRST_LEASE_MIN))
    }

    /// Halves the refresh interval for each level, and lets no lease outlive what is borrowed.
    pub(crate) fn under(self, lendable: LendableCapacity, now: Instant) -> Self {
        let halved = nanos(self.refresh).checked_shr(lendable.level);
        let halved = Duration::from_nanos(halved.unwrap_or(0));
        let lease = match lendable.source {
            LendableSource::Lease { until, .. } => self.lease.min(until.saturating_since(now)),
            // Not longer than it takes to find the parent again.
            LendableSource::Safe(_) => self.lease.min(halved.saturating_mul(SAFE_REFRESHES)),
            LendableSource::Own | LendableSource::Awaited | LendableSource::Nothing => self.lease,
        };
        let half = lease.checked_div(2).unwrap_or(lease);
        let refresh = halved.min(half).max(REFRESH_FLOOR);
        let min_refresh = match lendable.source {
            LendableSource::Awaited => self.min_refresh.min(AWAITING_REFRESH),
            _ => self.min_refresh,
        };
        Self {
            lease,
            refresh,
            min_refresh: min_refresh.min(refresh),
        }
    }
}
