//! What a client does where the coordinator has not said.

use core::time::Duration;

use crate::lease::{Priority, Unit};
use crate::units::Capacity;

/// What a client takes when it has no valid lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The safe capacity: the one last sent, else the configured one.
    #[default]
    Safe,
    /// What it wanted, but at least the safe capacity: for those who would rather overload than
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
    /// The same of bytes, per second in each direction.
    pub safe_bytes: Capacity,
    /// The same of requests in flight.
    pub safe_concurrency: Capacity,
    /// How long the first requests may be held for the first answer; zero holds none.
    pub cold_start_wait: Duration,
    /// When a request to the coordinator counts as lost.
    pub call_timeout: Duration,
    /// After how long without attempts a lease is released.
    pub idle_after: Duration,
    /// The most that may be owed for what passed before it could be counted, as a time at the
    /// present rate: so long the next request may have to wait.
    pub max_debt: Duration,
    /// The band that the client asks in.
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
            cold_start_wait: Duration::from_millis(50),
            call_timeout: Duration::from_secs(1),
            idle_after: Duration::from_secs(10),
            max_debt: Duration::from_secs(10),
            priority: Priority::default(),
        }
    }
}
