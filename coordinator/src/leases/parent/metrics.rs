//! Metrics of the calls to the parent.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use tollgate_core::lease::EpochError;

use crate::clock::unix_time;

/// Metrics of the calls to the parent; clones share them.
#[derive(Clone, Debug)]
pub struct ParentMetrics {
    calls: Family<CallLabels, Counter>,
    scope_errors: Counter,
    epoch_errors: Family<EpochErrorLabels, Counter>,
    answered: Gauge<f64, AtomicU64>,
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallResult {
    Answered,
    Failed,
    /// This coordinator is above its parent.
    Loop,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EpochErrorLabels {
    cause: &'static str,
}

// === impl ParentMetrics ===

impl ParentMetrics {
    /// Registers the metrics in `registry`, all at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            scope_errors: Counter::default(),
            epoch_errors: Family::default(),
            answered: Gauge::default(),
        };
        for result in [CallResult::Answered, CallResult::Failed, CallResult::Loop] {
            drop(metrics.calls.get_or_create(&result.into()));
        }
        let help = "Refresh calls to the parent";
        registry.register("parent_calls", help, metrics.calls.clone());
        let help = "Scopes that the parent did not answer for";
        registry.register("parent_scope_errors", help, metrics.scope_errors.clone());
        for cause in [EpochErrorLabels::LOWER, EpochErrorLabels::JUMP] {
            drop(metrics.epoch_errors.get_or_create(&cause));
        }
        let help = "Answers of the parent that were not applied because of their epoch";
        registry.register("parent_epoch_errors", help, metrics.epoch_errors.clone());
        let help = "When the parent last answered, since 1970; 0 if never";
        let answered = metrics.answered.clone();
        registry.register_with_unit("parent_answer_timestamp", help, Unit::Seconds, answered);
        metrics
    }

    pub(super) fn count(&self, result: CallResult) {
        self.calls.get_or_create(&result.into()).inc();
        if result == CallResult::Answered {
            self.answered.set(unix_time().as_secs_f64());
        }
    }

    /// Counts an answer that was not applied because of its epoch.
    pub fn count_epoch_error(&self, error: EpochError) {
        let cause = match error {
            EpochError::Lower { .. } => EpochErrorLabels::LOWER,
            EpochError::Jump { .. } => EpochErrorLabels::JUMP,
        };
        self.epoch_errors.get_or_create(&cause).inc();
    }

    pub(super) fn count_scope_errors(&self, scopes: usize) {
        self.scope_errors.inc_by(scopes as u64);
    }
}

// === impl EpochErrorLabels ===

impl EpochErrorLabels {
    const LOWER: Self = Self { cause: "lower" };
    const JUMP: Self = Self { cause: "jump" };
}

// === impl CallLabels ===

impl From<CallResult> for CallLabels {
    fn from(result: CallResult) -> Self {
        let result = match result {
            CallResult::Answered => "answered",
            CallResult::Failed => "failed",
            CallResult::Loop => "loop",
        };
        Self { result }
    }
}
