//! Header fields of draft-polli-ratelimit-headers-03, as Envoy's own filter writes them.

use tollgate_proto::envoy::config::core::v3::HeaderValue;

use super::ask::{Ask, DescriptorAsk};
use super::current_limit::CurrentLimit;
use super::verdict::{Effect, Verdict};

// === free functions ===

/// Returns the fields of the strictest limit: one that refuses, else that with the fewest hits left. No
/// field if no limit holds.
pub(super) fn draft03(ask: &Ask<'_>, verdicts: &[Option<Verdict>]) -> Vec<HeaderValue> {
    let limited: Vec<_> = ask
        .descriptors
        .iter()
        .zip(verdicts)
        .filter_map(|(ask, verdict)| limited(ask.as_ref()?, (*verdict)?))
        .collect();
    let strictest = limited.iter().min_by_key(|(ask, verdict, _)| {
        let refuses = Effect::new(Some(ask), Some(*verdict)) == Effect::Over;
        (!refuses, left(*verdict))
    });
    let Some((_, verdict, limit)) = strictest else {
        return Vec::new();
    };
    let mut policy = limit.requests().to_string();
    for (ask, _, limit) in &limited {
        policy.push_str(&format!(", {};w={}", limit.requests(), limit.seconds()));
        if let Some(name) = &ask.rule.name {
            policy.push_str(&format!(";name=\"{}\"", name.escape_default()));
        }
    }
    let reset = verdict.reset.unwrap_or_default();
    let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
    [
        ("x-ratelimit-limit", policy),
        ("x-ratelimit-remaining", left(*verdict).to_string()),
        ("x-ratelimit-reset", seconds.to_string()),
    ]
    .map(|(key, value)| HeaderValue {
        key: key.to_owned(),
        value,
    })
    .into()
}

fn limited<'a>(
    ask: &'a DescriptorAsk<'a>,
    verdict: Verdict,
) -> Option<(&'a DescriptorAsk<'a>, Verdict, CurrentLimit)> {
    Some((ask, verdict, verdict.limit?))
}

fn left(verdict: Verdict) -> u64 {
    if verdict.is_over {
        0
    } else {
        verdict.remaining
    }
}
