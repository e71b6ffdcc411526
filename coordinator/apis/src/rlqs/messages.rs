//! From a proxy's messages to ours, and back.

use std::time::Duration;

use tollgate_proto::envoy::service::rate_limit_quota::v3 as wire;
use tonic::Status;
use wire::rate_limit_quota_response::BucketAction;
use wire::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Kind, QuotaAssignmentAction,
};

use super::action::{Action, ActionKind};
use super::bucket::Usage;

/// The most buckets in a message. A stream keeps fewer; the rest of a message is ignored, so that
/// those who make up buckets at a proxy do not end its stream.
pub(super) const USAGES_MAX: usize = 50_000;

/// Reads the usages of a message.
///
/// # Errors
/// If there are too many. Times of the proxy are no reason: Envoy's first one is zero.
pub(super) fn usages(message: wire::RateLimitQuotaUsageReports) -> Result<Vec<Usage>, Status> {
    let count = message.bucket_quota_usages.len();
    if count > USAGES_MAX {
        let text = format!("bucket_quota_usages: has {count} entries, more than {USAGES_MAX}");
        return Err(Status::invalid_argument(text));
    }
    let usage = |usage: wire::rate_limit_quota_usage_reports::BucketQuotaUsage| Usage {
        name: usage.bucket_id.unwrap_or_default().bucket,
        elapsed: usage
            .time_elapsed
            .and_then(|elapsed| elapsed.try_into().ok())
            .unwrap_or(Duration::ZERO),
        requests: usage
            .num_requests_allowed
            .saturating_add(usage.num_requests_denied),
    };
    Ok(message.bucket_quota_usages.into_iter().map(usage).collect())
}

/// Writes `actions` as a message.
pub(super) fn response(actions: &[Action]) -> wire::RateLimitQuotaResponse {
    wire::RateLimitQuotaResponse {
        bucket_action: actions.iter().map(bucket_action).collect(),
    }
}

fn bucket_action(action: &Action) -> BucketAction {
    let kind = match action.kind {
        ActionKind::Abandon => Kind::AbandonAction(AbandonAction {}),
        ActionKind::Assign(assignment) => Kind::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: assignment.time_to_live.try_into().ok(),
            rate_limit_strategy: Some(assignment.strategy.into()),
        }),
    };
    BucketAction {
        bucket_id: Some(wire::BucketId {
            bucket: action.bucket.as_ref().clone(),
        }),
        bucket_action: Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use wire::rate_limit_quota_usage_reports::BucketQuotaUsage;

    use super::*;

    fn report(usages: Vec<BucketQuotaUsage>) -> wire::RateLimitQuotaUsageReports {
        wire::RateLimitQuotaUsageReports {
            domain: "edge".to_owned(),
            bucket_quota_usages: usages,
        }
    }

    #[test]
    fn any_times_and_counts_are_read() {
        let usage = BucketQuotaUsage {
            num_requests_allowed: u64::MAX,
            num_requests_denied: 1,
            ..BucketQuotaUsage::default()
        };
        let read = usages(report(vec![usage])).unwrap();
        assert_eq!(read[0].requests, u64::MAX);
        assert_eq!(read[0].elapsed, Duration::ZERO);
    }

    #[test]
    fn a_message_has_a_bound() {
        let most = vec![BucketQuotaUsage::default(); USAGES_MAX];
        assert_eq!(usages(report(most.clone())).unwrap().len(), USAGES_MAX);
        let more = [most, vec![BucketQuotaUsage::default()]].concat();
        let refused = usages(report(more)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}
