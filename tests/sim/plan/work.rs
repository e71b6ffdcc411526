//! Kinds of work that processes do.

use std::time::Duration;

use tollgate_core::lease::Unit;

/// Counted unit, and the treatment of requests beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Requests, refused beyond the limit.
    Requests,
    /// Requests that wait in queues for at most `max_wait`, of so many members that share the
    /// limit.
    Waiting { max_wait: Duration, members: u64 },
    /// Bytes in one direction, usually so many a request.
    Bytes { unit: Unit, usual: u64 },
    /// Requests in flight, each for so long.
    InFlight { takes: Duration },
}

// === impl Work ===

impl Work {
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Requests | Self::Waiting { .. } => Unit::Requests,
            Self::Bytes { unit, .. } => unit,
            Self::InFlight { .. } => Unit::Concurrency,
        }
    }

    /// Returns the tokens of a usual request.
    pub(crate) fn usual(self) -> u64 {
        match self {
            Self::Bytes { usual, .. } => usual,
            _ => 1,
        }
    }

    /// Returns the number of scopes that share the limit in each process.
    pub(crate) fn members(self) -> u64 {
        match self {
            Self::Waiting { members, .. } => members,
            _ => 1,
        }
    }
}
