//! From decisions to responses of Envoy's rate limit service.

use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use super::ask::{Ask, DescriptorAsk};
use super::verdict::{Effect, Verdict};
use super::{headers, metadata};

/// Returns whether a request is refused: if any descriptor refuses it, but those of `quota_mode` only
/// all together.
pub(super) fn is_refused(ask: &Ask<'_>, effects: &[Effect]) -> bool {
    let mut quotas = (0, 0);
    for (descriptor, effect) in ask.descriptors.iter().zip(effects) {
        let Some(descriptor) = descriptor else {
            continue;
        };
        let is_over = *effect == Effect::Over;
        if !descriptor.rule.quota_mode && is_over {
            return true;
        }
        if descriptor.rule.quota_mode {
            quotas.0 += 1;
            quotas.1 += usize::from(is_over);
        }
    }
    quotas.0 > 0 && quotas.0 == quotas.1
}

/// Returns the response to a request whose descriptors were decided on.
pub(super) fn response(
    request: &RateLimitRequest,
    ask: &Ask<'_>,
    verdicts: &[Option<Verdict>],
) -> RateLimitResponse {
    let judged = ask.descriptors.iter().zip(verdicts);
    let effects: Vec<Effect> = judged
        .clone()
        .map(|(ask, verdict)| Effect::new(ask.as_ref(), *verdict))
        .collect();
    let code = if is_refused(ask, &effects) {
        Code::OverLimit
    } else {
        Code::Ok
    };
    let statuses = judged.zip(&effects);
    let mut response = RateLimitResponse {
        overall_code: code.into(),
        statuses: statuses
            .map(|((ask, verdict), effect)| status(ask.as_ref(), *verdict, *effect))
            .collect(),
        ..RateLimitResponse::default()
    };
    let Some(domain) = ask.domain else {
        return response;
    };
    if domain.response_headers {
        response.response_headers_to_add = headers::draft03(ask, verdicts);
    }
    if domain.dynamic_metadata {
        response.dynamic_metadata = Some(metadata::of_request(request));
    }
    response
}

fn status(
    ask: Option<&DescriptorAsk<'_>>,
    verdict: Option<Verdict>,
    effect: Effect,
) -> DescriptorStatus {
    let code = match effect {
        Effect::Over => Code::OverLimit,
        Effect::Unmatched | Effect::Passes | Effect::Shadowed => Code::Ok,
    };
    let (Some(ask), Some(verdict)) = (ask, verdict) else {
        return DescriptorStatus {
            code: code.into(),
            ..DescriptorStatus::default()
        };
    };
    let name = ask.rule.name.as_deref();
    let remaining = match (verdict.limit, verdict.is_over) {
        (None, false) => u64::from(u32::MAX),
        (_, true) => 0,
        (Some(_), false) => verdict.remaining,
    };
    let reset = verdict.limit.and(verdict.reset);
    DescriptorStatus {
        code: code.into(),
        current_limit: verdict.limit.map(|limit| limit.message(name)),
        limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        duration_until_reset: reset.and_then(|reset| reset.try_into().ok()),
    }
}

#[cfg(test)]
mod tests;
