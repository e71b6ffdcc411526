//! Metrics of leases and of the calls for them.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_core::lease::Epoch;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, Durations, LabeledCounter};

use crate::parent_metrics::ParentMetrics;

/// Metrics of leases; clones share them.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics {
    epoch: Gauge<u64, AtomicU64>,
    refresh_calls: Counter,
    refreshes: Counter,
    refresh_errors: LabeledCounter<RefreshFault>,
    answered: LabeledCounter<AnsweredBy>,
    releases: Counter,
    bucket_writes: Counter,
    bucket_write_errors: Counter,
    unstored_buckets: Counter,
    quotas_reached: LabeledCounter<QuotaPart>,
    refresh_duration: Durations,
    /// Metrics of the calls to the parent.
    pub parent: ParentMetrics,
}

label_values! {
    /// Reason for which a refresh was refused.
    pub enum RefreshFault as "reason" {
        /// The call has a bad field.
        Invalid = "invalid",
        /// The call found no place in the queue.
        Busy = "busy",
        /// A later request came first.
        Stale = "stale",
        /// The resource has the most clients.
        TooManyClients = "too_many_clients",
        /// The lease table has the most resources.
        TooManyResources = "too_many_resources",
        /// The node has the most leases.
        TooManyLeases = "too_many_leases",
        /// The scope is of another shard here than where the call was split.
        Elsewhere = "elsewhere",
        /// The scope's bucket could not be stored, and another node may be master.
        NotStored = "not_stored",
        /// No master answered for its shard.
        NoMaster = "no_master",
    }
}

label_values! {
    /// Part of a quota that was used within its window.
    pub enum QuotaPart as "percent" {
        /// Most of it.
        Most = "80",
        /// All of it.
        All = "100",
    }
}

label_values! {
    /// Node that has answered for the scopes of a call.
    pub enum AnsweredBy as "by" {
        /// This node, from its own lease tables.
        Local = "local",
        /// The master of their shard, to which the call was forwarded.
        Peer = "peer",
        /// None.
        None = "none",
    }
}

// === impl LeaseMetrics ===

impl LeaseMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let errors = "Refresh calls, or scopes of them, that were refused";
        let answered = "Scopes asked for, by the node that answered";
        let duration = "Time from a Refresh call's arrival to its answer";
        Self {
            epoch: registry.add("epoch", "The term of this coordinator"),
            refresh_calls: registry.add("refresh_calls", "Refresh calls"),
            refreshes: registry.add("refreshes", "Scopes in Refresh calls"),
            refresh_errors: LabeledCounter::register(registry, "refresh_errors", errors),
            answered: LabeledCounter::register(registry, "answered", answered),
            releases: registry.add("releases", "Resources given back"),
            bucket_writes: registry.add("bucket_writes", "Buckets of slow limits that were stored"),
            bucket_write_errors: registry.add(
                "bucket_write_errors",
                "Buckets of slow limits that could not be stored",
            ),
            unstored_buckets: registry.add(
                "unstored_buckets",
                "Answers that tell of a slow limit's bucket for which bounds.max_durable left no room",
            ),
            quotas_reached: LabeledCounter::register(
                registry,
                "quotas_reached",
                "Quotas of which 80 or 100 percent were used within a window",
            ),
            refresh_duration: registry.add_durations("refresh_duration", duration),
            parent: ParentMetrics::register(registry),
        }
    }

    /// Sets the epoch of a coordinator that is alone.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.set(epoch.0);
    }

    /// Counts a call with `scopes` scopes that was answered after `duration`.
    pub fn count_refresh(&self, scopes: usize, duration: Duration) {
        self.refresh_calls.inc();
        self.refreshes.inc_by(scopes as u64);
        self.refresh_duration.observe(duration);
    }

    /// Counts a call, or a scope of one, that was refused.
    pub fn count_fault(&self, reason: RefreshFault) {
        self.refresh_errors.count(reason, 1);
    }

    /// Counts scopes that were answered for.
    pub fn count_answered(&self, by: AnsweredBy, scopes: usize) {
        self.answered.count(by, scopes);
    }

    /// Counts resources that were given back.
    pub fn count_releases(&self, resources: usize) {
        self.releases.inc_by(resources as u64);
    }

    /// Counts buckets that were stored, or could not be.
    pub fn count_bucket_writes(&self, buckets: usize, is_stored: bool) {
        let counter = if is_stored {
            &self.bucket_writes
        } else {
            &self.bucket_write_errors
        };
        counter.inc_by(buckets as u64);
    }

    /// Counts an answer that tells of a bucket for which the store has no room.
    pub fn count_unstored_bucket(&self) {
        self.unstored_buckets.inc();
    }

    /// Counts a quota of which so much was used.
    pub fn count_quota(&self, part: QuotaPart) {
        self.quotas_reached.count(part, 1);
    }

    /// Number of scopes that have been refreshed since the start.
    pub fn refreshes(&self) -> u64 {
        self.refreshes.get()
    }
}
