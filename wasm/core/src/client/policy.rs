//! Settings of a client, for where the coordinator has not said.

use core::time::Duration;

use crate::lease::{Priority, Unit};
use crate::units::Capacity;

/// Rule for a client that has no valid lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The safe capacity: the one last sent, else the configured one.
    #[default]
    Safe,
    /// The wants, but at least the safe capacity: for operators who would rather overload than
    /// refuse.
    Optimistic,
    /// Nothing.
    Pessimistic,
}

/// A client's settings for the resources of one scope rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Mode without a valid lease.
    pub no_lease: Mode,
    /// The safe capacity of requests, per second, as long as the coordinator has sent none.
    pub safe: Capacity,
    /// The same for bytes, per second in each direction.
    pub safe_bytes: Capacity,
    /// The same for requests in flight.
    pub safe_concurrency: Capacity,
    /// Time for which the first requests may be held for the first answer; zero holds none.
    pub first_lease_wait: Duration,
    /// Time after which a request to the coordinator counts as lost.
    pub call_timeout: Duration,
    /// Time without attempts after which a lease is released.
    pub idle_after: Duration,
    /// The most that may be owed for traffic that passed before it could be counted, as a time at
    /// the present rate: so long the next request may have to wait.
    pub max_debt: Duration,
    /// Priority band of the client's requests.
    pub priority: Priority,
}

impl Policy {
    /// The safe capacity of `unit` as long as the coordinator has sent none.
    pub const fn safe_of(&self, unit: Unit) -> Capacity {
        match unit {
            Unit::Requests => self.safe,
            Unit::RequestBytes | Unit::ResponseBytes => self.safe_bytes,
            Unit::Concurrency => self.safe_concurrency,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            no_lease: Mode::Safe,
            safe: Capacity::from_whole(10),
            safe_bytes: Capacity::from_whole(1024 * 1024),
            safe_concurrency: Capacity::from_whole(10),
            first_lease_wait: Duration::from_millis(50),
            call_timeout: Duration::from_secs(1),
            idle_after: Duration::from_secs(10),
            max_debt: Duration::from_secs(10),
            priority: Priority::default(),
        }
    }
}
