//! Counters of one worker, and levels of its process.
//!
//! A worker counts in its own memory, and its embedder publishes the sums now and then
//! ([`Effect::Publish`](crate::Effect::Publish)). Counters only grow.

use tollgate_core::lease::Unit;

use crate::refusal::Refusal;

/// Counters of one worker.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Requests that went on.
    pub allowed: Counter,
    /// Requests that were held for a first lease.
    pub pending: Counter,
    /// Requests that went on after they had waited for their turn.
    pub waited: Counter,
    /// Requests whose time was over before it was their turn.
    pub wait_timeouts: Counter,
    /// Requests that were refused because they would have had to wait too long.
    pub wait_too_long: Counter,
    /// Requests that were refused because too many were waiting.
    pub wait_full: Counter,
    /// Calls to the coordinators that asked for leases.
    pub refreshes: Counter,
    /// Calls to the coordinators that failed, for all scopes or for some.
    pub refresh_errors: Counter,
    /// Resources that coordinators have named, known or not.
    pub nudges: Counter,
    /// Messages of coordinators that name resources and could not be read.
    pub nudge_errors: Counter,
    /// Streams that were closed because more resources were named than a process can have.
    pub watch_floods: Counter,
    /// Streams that were opened to be told of changed shares.
    pub watches: Counter,
    /// Answers that were not applied because a later master had answered before.
    pub lower_epochs: Counter,
    /// Answers that were not applied because no real master has their epoch.
    pub epoch_jumps: Counter,
    /// Requests whose scope shared the overflow's slot.
    pub overflow: Counter,
    /// Looks at a bucket that found nothing out because other workers were faster each time.
    pub contended: Counter,
    /// Requests whose cost was to be known at the end and was not.
    pub costs_unknown: Counter,
    /// Tokens that were taken at the beginning of requests whose cost is known at the end.
    pub tokens_reserved: Counter,
    /// Tokens that were charged at their ends.
    pub tokens_charged: Counter,
    /// Tokens that came back at their ends.
    pub tokens_refunded: Counter,
    /// Requests and ticks that the host or the shared table let down.
    pub host_failures: Counter,
}

/// Levels of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Scopes without a lease.
    pub safe_mode: u64,
    /// Clusters of coordinators that the configuration names and the host does not have.
    pub missing_clusters: u64,
    /// Slots in use.
    pub slots_used: u64,
    /// Streams that are open to be told of changed shares: one at most.
    pub watch_streams: u64,
    /// Requests that wait, in all workers together.
    pub waiting: u64,
    /// Streams that count somewhere until they end, in all workers together.
    pub in_flight: u64,
    /// The memory of the largest worker.
    pub vm_memory_bytes: u64,
}

/// Counters of one rule in one worker.
#[derive(Clone, Debug, Default)]
pub struct RuleStats {
    /// Requests that were refused.
    pub refused: Refusals,
    /// Requests that went on although the rule would have refused them.
    pub shadowed: Refusals,
}

/// Refusals by their cause.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// Too many requests.
    pub requests: Counter,
    /// Too many bytes of requests.
    pub request_bytes: Counter,
    /// Too many bytes of responses.
    pub response_bytes: Counter,
    /// Too many requests in flight.
    pub concurrency: Counter,
    /// No usable key.
    pub missing: Counter,
}

/// A count that only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(u64);

// === impl Refusals ===

impl Refusals {
    /// Returns the counter for the cause of `refusal`.
    pub(crate) fn of(&mut self, refusal: Refusal) -> &mut Counter {
        match refusal {
            Refusal::Missing { .. } => &mut self.missing,
            Refusal::Denied { denial, .. } => match denial.unit {
                Unit::Requests => &mut self.requests,
                Unit::RequestBytes => &mut self.request_bytes,
                Unit::ResponseBytes => &mut self.response_bytes,
                Unit::Concurrency => &mut self.concurrency,
            },
            Refusal::HostFailure => &mut self.requests,
        }
    }
}

// === impl Counter ===

impl Counter {
    /// Counts one.
    #[inline]
    pub fn add_one(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// Counts so many.
    pub fn add(&mut self, count: u64) {
        self.0 = self.0.saturating_add(count);
    }

    /// Returns the count since the worker's start.
    pub fn get(self) -> u64 {
        self.0
    }
}
