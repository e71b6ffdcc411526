//! Metrics of the rate limit quota service.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, LabeledCounter};

use super::action::{Action, ActionKind};
use super::assignment::Strategy;

/// Metrics of the rate limit quota service; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RlqsMetrics {
    /// Open streams.
    pub(super) streams: Gauge<u64, AtomicU64>,
    /// Buckets of all streams.
    pub(super) buckets: Gauge<u64, AtomicU64>,
    pub(super) reports: Counter,
    actions: LabeledCounter<ActionLabel>,
    ignored: LabeledCounter<IgnoredBucket>,
    ended: LabeledCounter<StreamEnd>,
    /// Scopes without an answer of use.
    pub(super) unanswered: Counter,
}

label_values! {
    /// Action for a bucket.
    pub(super) enum ActionLabel as "action" {
        /// It is assigned that all requests pass.
        AllowAll = "allow_all",
        /// It is assigned that none passes.
        DenyAll = "deny_all",
        /// It is assigned a token bucket.
        TokenBucket = "token_bucket",
        /// It is abandoned.
        Abandon = "abandon",
    }
}

label_values! {
    /// Reason for which a reported bucket is ignored.
    pub(super) enum IgnoredBucket as "reason" {
        /// It lacks a key of the domain's template.
        Unmatched = "unmatched",
        /// Its name is too long.
        TooLong = "too_long",
        /// The stream has the most buckets.
        TooMany = "too_many",
        /// The buckets of all streams take the most memory.
        NoMemory = "no_memory",
    }
}

label_values! {
    /// Reason for which a stream was ended or refused by the coordinator.
    pub(super) enum StreamEnd as "reason" {
        /// The domain is missing, unknown or another than before, or a field breaks a rule.
        Invalid = "invalid",
        /// There are as many streams as there may be.
        TooMany = "too_many",
        /// There is no memory for a message of it.
        NoMemory = "no_memory",
        /// The configuration of the domain has changed.
        Reconfigured = "reconfigured",
        /// The connection is to end.
        Closing = "closing",
    }
}

// === impl RlqsMetrics ===

impl RlqsMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let actions = "Actions that proxies were sent for buckets";
        let ignored = "Reports on buckets that were ignored";
        let ended = "Streams of proxies that the coordinator has refused or ended";
        let unanswered = "Scopes that were asked for and not answered";
        Self {
            streams: registry.add("rlqs_streams", "Open streams of proxies"),
            buckets: registry.add("rlqs_buckets", "Buckets of all streams"),
            reports: registry.add("rlqs_reports", "Messages with reports of proxies"),
            actions: LabeledCounter::register(registry, "rlqs_actions", actions),
            ignored: LabeledCounter::register(registry, "rlqs_ignored_buckets", ignored),
            ended: LabeledCounter::register(registry, "rlqs_ended_streams", ended),
            unanswered: registry.add("rlqs_unanswered", unanswered),
        }
    }

    /// Counts the actions of a message.
    pub(super) fn count_actions(&self, actions: &[Action]) {
        for action in actions {
            self.actions.count(label(action.kind), 1);
        }
    }

    /// Counts buckets that were ignored.
    pub(super) fn count_ignored(&self, reasons: &[IgnoredBucket]) {
        for reason in reasons {
            self.ignored.count(*reason, 1);
        }
    }

    /// Counts a stream that was ended.
    pub(super) fn count_end(&self, reason: StreamEnd) {
        self.ended.count(reason, 1);
    }
}

// === free functions ===

fn label(kind: ActionKind) -> ActionLabel {
    match kind {
        ActionKind::Abandon => ActionLabel::Abandon,
        ActionKind::Assign(assignment) => match assignment.strategy {
            Strategy::AllowAll => ActionLabel::AllowAll,
            Strategy::DenyAll => ActionLabel::DenyAll,
            Strategy::Tokens { .. } => ActionLabel::TokenBucket,
        },
    }
}
