//! Requests that were refused and come again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The most callers of one entry of the demand that wait to ask again; more give up.
const RETRIES_MAX: usize = 100_000;

/// Request that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Retry {
    /// Its time since the start.
    pub(crate) at: Duration,
    /// Number of its demand.
    pub(crate) demand: u32,
    /// Number of the scope.
    pub(crate) scope: u32,
    /// Times that it comes again after this one.
    pub(crate) left: u32,
    /// Tokens that its end tells it has cost; drawn anew for the fleet.
    pub(crate) final_cost: Option<u32>,
}

/// Requests that come again, by their times.
#[derive(Debug, Default)]
pub(crate) struct Retries(BinaryHeap<Reverse<Retry>>);

// === impl Retries ===

impl Retries {
    pub(crate) fn push(&mut self, retry: Retry) {
        if self.0.len() < RETRIES_MAX {
            self.0.push(Reverse(retry));
        }
    }

    /// Returns the time of the next one.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse(retry)| retry.at)
    }

    /// Takes the next one that comes until `now`.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Retry> {
        self.due().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(retry)| retry)
    }
}
