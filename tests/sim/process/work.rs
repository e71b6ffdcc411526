//! Kinds of work that processes do, and counts of their workers' events.

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

/// Events in the workers of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Requests that were made to wait, for a first lease or in a wait queue.
    pub(crate) joined: u64,
    /// Requests that went on after they had waited.
    pub(crate) went: u64,
    /// Requests that were refused after they had waited.
    pub(crate) timed_out: u64,
    /// Waiting requests whose streams were closed.
    pub(crate) left: u64,
    /// Requests that wait now.
    pub(crate) waiting: u64,
    /// Debts that were larger than may be owed.
    pub(crate) forgiven: u64,
    /// Workers that were lost, and those of them in the middle of a callback.
    pub(crate) traps: u64,
    pub(crate) traps_within: u64,
    /// Callbacks that ran between two steps of another worker's.
    pub(crate) interleaved: u64,
    /// Writes to shared data that lost against another worker's.
    pub(crate) lost_writes: u64,
}

// === impl Work ===

impl Work {
    /// Size of a large body in usual ones.
    pub(crate) const BULKY: u64 = 20;

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

    /// Returns the tokens of the largest request.
    pub(crate) fn largest(self) -> u64 {
        match self {
            Self::Bytes { usual, .. } => usual * Self::BULKY,
            _ => 1,
        }
    }

    /// Returns the tokens per second that can be spent at a flow of `flow`.
    pub(crate) fn throughput(self, flow: f64) -> f64 {
        match self {
            // A tick until its end is seen, and one until another comes.
            Self::InFlight { takes } => flow / (takes.as_secs_f64() + 0.02),
            _ => flow,
        }
    }

    /// Returns the time for which work begun under an earlier lease may delay new requests.
    pub(crate) fn lingers(self) -> Duration {
        match self {
            Self::InFlight { takes } => takes,
            _ => Duration::ZERO,
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Returns whether everything happened at least once.
    pub(crate) fn all(&self) -> bool {
        let Self {
            joined,
            went,
            timed_out,
            left,
            waiting: _,
            forgiven,
            traps,
            traps_within,
            interleaved,
            lost_writes,
        } = *self;
        [
            joined,
            went,
            timed_out,
            left,
            forgiven,
            traps,
            traps_within,
            interleaved,
            lost_writes,
        ]
        .iter()
        .all(|count| *count > 0)
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.joined += other.joined;
        self.went += other.went;
        self.timed_out += other.timed_out;
        self.left += other.left;
        self.waiting += other.waiting;
        self.forgiven += other.forgiven;
        self.traps += other.traps;
        self.traps_within += other.traps_within;
        self.interleaved += other.interleaved;
        self.lost_writes += other.lost_writes;
    }
}
