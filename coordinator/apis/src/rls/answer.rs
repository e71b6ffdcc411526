//! From decisions to responses of Envoy's rate limit service.

use std::time::Duration;

use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use super::ask::{Ask, DescriptorAsk};
use super::current_limit::CurrentLimit;
use super::{headers, metadata};

/// Decision on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether its scope has too little.
    pub(super) is_over: bool,
    /// The strictest limit that holds for it; `None` if none does.
    pub(super) limit: Option<CurrentLimit>,
    /// Hits that would pass at once.
    pub(super) remaining: u64,
    /// Time until its hits would pass if it is over, otherwise until all hits are there again; `None`
    /// if that is not known.
    pub(super) reset: Option<Duration>,
}

/// Effect of a descriptor on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It has none, because no rule holds for the descriptor.
    Unmatched,
    /// It lets the request pass.
    Passes,
    /// It would refuse, if its rule did not only count.
    Shadowed,
    /// It refuses.
    Over,
}

// === impl Verdict ===

impl Verdict {
    /// Returns the stricter of two decisions on one descriptor.
    pub(super) fn stricter(self, other: Self) -> Self {
        let (mut stricter, laxer) = match (self.is_over, other.is_over) {
            (true, false) => (self, other),
            (false, true) => (other, self),
            (true, true) if self.ends_before(other) => (other, self),
            (true, true) => (self, other),
            _ if other.limit.is_some() && other.remaining < self.remaining => (other, self),
            _ => (self, other),
        };
        stricter.limit = stricter.limit.or(laxer.limit);
        stricter
    }

    /// Returns whether it resets before another one; one without a time never does.
    fn ends_before(self, other: Self) -> bool {
        match (self.reset, other.reset) {
            (Some(reset), Some(later)) => reset < later,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

// === impl Effect ===

impl Effect {
    /// Returns the effect of the decision on a descriptor.
    pub(super) fn new(ask: Option<&DescriptorAsk<'_>>, verdict: Option<Verdict>) -> Self {
        match (ask, verdict) {
            (Some(ask), Some(verdict)) if verdict.is_over => match ask.rule.shadow {
                true => Self::Shadowed,
                false => Self::Over,
            },
            (Some(_), Some(_)) => Self::Passes,
            _ => Self::Unmatched,
        }
    }
}

// === free functions ===

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
    let code = match is_refused(ask, &effects) {
        true => Code::OverLimit,
        false => Code::Ok,
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
