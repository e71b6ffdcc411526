//! Metrics of Envoy's rate limit service.

use std::time::Duration;

use prometheus_client::registry::Registry;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, Durations, LabeledCounter};
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tonic::Status;

use super::ask::Ask;
use super::verdict::{Effect, Verdict};

label_values! {
    /// Result of a request.
    pub(super) enum RlsResult as "result" {
        /// It may pass.
        Ok = "ok",
        /// It may not.
        OverLimit = "over_limit",
        /// It breaks a rule, or could not be decided on.
        Error = "error",
    }
}

label_values! {
    /// Result of a descriptor.
    pub(super) enum DescriptorResult as "result" {
        /// No rule holds for it.
        Unmatched = "unmatched",
        /// It lets its request pass.
        Ok = "ok",
        /// It would refuse, but its rule is in shadow mode.
        Shadowed = "shadowed",
        /// It refuses.
        OverLimit = "over_limit",
    }
}

/// Metrics of Envoy's rate limit service; clones share them.
#[derive(Clone, Debug)]
pub struct RlsMetrics {
    requests: LabeledCounter<RlsResult>,
    descriptors: LabeledCounter<DescriptorResult>,
    durations: Durations,
}

// === impl RlsMetrics ===

impl RlsMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let requests = "Requests of Envoy's rate limit service";
        let descriptors = "Descriptors in requests of Envoy's rate limit service";
        let durations = "Time until a request of Envoy's rate limit service was answered";
        Self {
            requests: LabeledCounter::register(registry, "rls_requests", requests),
            descriptors: LabeledCounter::register(registry, "rls_descriptors", descriptors),
            durations: registry.add_durations("rls_duration", durations),
        }
    }

    /// Counts a request and the time that it took.
    pub(super) fn count(&self, result: RlsResult, duration: Duration) {
        self.requests.count(result, 1);
        self.durations.observe(duration);
    }

    /// Counts the descriptors of a request.
    pub(super) fn count_descriptors(&self, ask: &Ask<'_>, verdicts: &[Option<Verdict>]) {
        for (ask, verdict) in ask.descriptors.iter().zip(verdicts) {
            let result = match Effect::new(ask.as_ref(), *verdict) {
                Effect::Unmatched => DescriptorResult::Unmatched,
                Effect::Passes => DescriptorResult::Ok,
                Effect::Shadowed => DescriptorResult::Shadowed,
                Effect::Over => DescriptorResult::OverLimit,
            };
            self.descriptors.count(result, 1);
        }
    }
}

// === impl RlsResult ===

impl RlsResult {
    pub(super) fn of(answer: &Result<RateLimitResponse, Status>) -> Self {
        match answer {
            Ok(answer) if answer.overall_code() == Code::OverLimit => Self::OverLimit,
            Ok(_) => Self::Ok,
            Err(_) => Self::Error,
        }
    }
}
