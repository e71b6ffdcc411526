//! Metrics of the calls to the parent.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tollgate_core::lease::EpochError;
use tollgate_net::clock::unix_time;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, LabeledCounter};

/// Metrics of the calls to the parent; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ParentMetrics {
    calls: LabeledCounter<CallResult>,
    pub(crate) scope_errors: Counter,
    epoch_errors: LabeledCounter<EpochErrorCause>,
    answered: Gauge<f64, AtomicU64>,
}

label_values! {
    /// Outcome of a call.
    pub(crate) enum CallResult as "result" {
        Answered = "answered",
        Failed = "failed",
        /// This coordinator is above its parent.
        Loop = "loop",
    }
}

label_values! {
    /// Reason for which an answer was not applied.
    enum EpochErrorCause as "cause" {
        Lower = "lower",
        Jump = "jump",
    }
}

// === impl ParentMetrics ===

impl ParentMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let calls = "Refresh calls to the parent";
        let scopes = "Scopes that the parent did not answer for";
        let epochs = "Answers of the parent that were not applied because of their epoch";
        let answered = "When the parent last answered, since 1970; 0 if never";
        Self {
            calls: LabeledCounter::register(registry, "parent_calls", calls),
            scope_errors: registry.add("parent_scope_errors", scopes),
            epoch_errors: LabeledCounter::register(registry, "parent_epoch_errors", epochs),
            answered: registry.add_in(Unit::Seconds, "parent_answer_timestamp", answered),
        }
    }

    pub(crate) fn count(&self, result: CallResult) {
        self.calls.count(result, 1);
        if result == CallResult::Answered {
            self.answered.set(unix_time().as_secs_f64());
        }
    }

    /// Counts an answer that was not applied because of its epoch.
    pub fn count_epoch_error(&self, error: EpochError) {
        let cause = match error {
            EpochError::Lower { .. } => EpochErrorCause::Lower,
            EpochError::Jump { .. } => EpochErrorCause::Jump,
        };
        self.epoch_errors.count(cause, 1);
    }
}
