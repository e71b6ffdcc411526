//! View of a process's lease in its shared data, for the laws.

use tollgate_core::client::{DrawResult, LeaseState, Policy, RateLimiter};
use tollgate_core::units::{Instant, MICRO, Tokens};

/// Returns the tokens in the bucket of `limiter`; negative while some are owed.
pub(super) fn balance(limiter: &RateLimiter, now: Instant, policy: &Policy) -> f64 {
    let mut limiter = limiter.clone();
    let draw = limiter.draw_at_once(now, policy, Tokens::ONE, 1);
    let (rate, _) = limiter.flow(now, policy);
    let left = limiter.level(now).left;
    match draw {
        DrawResult::Tokens(drawn) => tokens(left.saturating_add(drawn)),
        DrawResult::Denied { retry_at: Some(at) } => {
            1.0 - at.saturating_since(now).as_secs_f64() * rate.as_micros() as f64 / MICRO as f64
        }
        _ => tokens(left),
    }
}

/// Returns the largest debt allowed, in tokens: what the bucket pays within the policy's time. The
/// bucket of a process that has come back keeps the rate of its last lease until the first answer,
/// although the process has no more than the safe capacity without it.
pub(super) fn debt_max(limiter: &RateLimiter, now: Instant, policy: &Policy) -> f64 {
    let rate = match limiter.state(now) {
        LeaseState::Idle | LeaseState::Pending => limiter.earns(),
        LeaseState::Leased | LeaseState::NoLease => limiter.flow(now, policy).0,
    };
    tokens(rate.tokens_in(policy.max_debt))
}

fn tokens(tokens: Tokens) -> f64 {
    tokens.as_micros() as f64 / MICRO as f64
}
