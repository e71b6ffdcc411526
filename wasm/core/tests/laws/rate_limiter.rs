//! Laws 5 and 7 for one process.

use core::time::Duration;

use tollgate_core::client::{DrawResult, LeaseMessage, LeaseState, Mode, Policy, RateLimiter};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Answer, Epoch, LeaseTerms, Origin};
use tollgate_core::units::{Capacity, Instant, Rate, Tokens};

use super::random::Random;
use super::{Verdict, ensure};

const START: Instant = Instant::from_nanos(5_000_000_000);
const MODES: [Mode; 3] = [Mode::Safe, Mode::Optimistic, Mode::Pessimistic];

/// A lease counts until its expiry; from then on the mode decides, and it is neither everything nor
/// (unless the operator chose that) nothing.
pub(crate) fn falls_back_to_the_safe_capacity(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let policy = Policy {
        no_lease: MODES[seed as usize % 3],
        safe: Capacity::from_whole(random.spread(1000) + 1),
        ..Policy::default()
    };
    let sent_safe = random
        .chance(50)
        .then(|| Capacity::from_whole(random.spread(1000) + 1));
    let lends = [
        Capacity::UNLIMITED,
        Capacity::from_whole(random.spread(1 << 30)),
    ];
    let (mut limiter, answer) = leased(&policy, lends[random.below(2) as usize], sent_safe)?;
    let expiry = limiter.lease_expiry().ok_or("no lease")?;
    let lent = answer.lease.map(|lease| lease.capacity.as_rate());

    let before = Instant::from_nanos(expiry.as_nanos() - 1);
    ensure!(
        Some(limiter.flow(before, &policy).0) == lent,
        "not lent until expiry"
    );
    let at = expiry.saturating_add(Duration::from_nanos(random.spread(1 << 40)));
    let rate = limiter.flow(at, &policy).0;
    // Nothing throttles a scope without a limit, unless the coordinator has sent a safe capacity.
    let free = answer.capacity.is_unlimited() && sent_safe.is_none();
    let safe = sent_safe.unwrap_or(policy.safe).min(answer.capacity);
    let right = match policy.no_lease {
        Mode::Pessimistic => rate == Rate::ZERO,
        _ if free => rate.is_unlimited(),
        Mode::Safe => rate == safe.as_rate(),
        Mode::Optimistic => rate >= safe.as_rate() && !rate.is_unlimited(),
    };
    ensure!(
        right,
        "{rate:?} passes in mode {:?}, safe {safe:?}",
        policy.no_lease
    );
    ensure!(
        limiter.state(at) == LeaseState::NoLease,
        "{:?}",
        limiter.state(at)
    );

    // A second on, whatever was spent before: alive, and within the safe capacity.
    let mut passed = 0_u128;
    for at in [at, at.saturating_add(Duration::from_secs(2))] {
        passed = 0;
        for _ in 0..3000 {
            if let DrawResult::Tokens(tokens) = limiter.draw(at, &policy, Tokens::ONE, 1) {
                passed += u128::from(tokens.as_micros());
            }
        }
    }
    let rate = u128::from(limiter.flow(at, &policy).0.as_micros());
    let most = if free { u128::MAX } else { 2 * rate };
    ensure!(passed <= most, "{passed} passed in 2 s at {rate}");
    ensure!((passed > 0) == (rate > 0), "{passed} passed at {rate}");
    Ok(())
}

/// An answer of a master of an earlier term is not applied.
pub(crate) fn ignores_an_earlier_master(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let policy = Policy::default();
    let (mut limiter, answer) = leased(&policy, Capacity::from_whole(100), None)?;
    let now = limiter.due().ok_or("nothing is due")?;
    limiter.count(now, 1000);
    let LeaseMessage::Refresh(request) = limiter.ask(now, &policy) else {
        return Err("nothing was asked".into());
    };
    let stolen = Answer {
        lease: answer.lease.map(|lease| LeaseTerms {
            capacity: Capacity::from_whole(random.spread(1 << 30)),
            ..lease
        }),
        ..answer
    };
    let before = limiter.flow(now, &policy);
    let earlier = Epoch(random.below(TERM.epoch.0));
    // The terms of another shard say nothing of this one's.
    let mut elsewhere = limiter.clone();
    let shard = [None, Some(ShardId(1)), Some(ShardId(u16::MAX))][random.below(3) as usize];
    let other = Origin {
        shard,
        epoch: earlier,
    };
    let applied = elsewhere.handle_answer(now, &policy, request.sequence, other, &stolen);
    ensure!(applied, "dropped an answer from {other:?} after {TERM:?}");
    let earlier = Origin {
        epoch: earlier,
        ..TERM
    };
    let applied = limiter.handle_answer(now, &policy, request.sequence, earlier, &stolen);
    ensure!(
        !applied,
        "applied an answer from {earlier:?} after {TERM:?}"
    );
    let after = limiter.flow(now, &policy);
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// The master that gave the lease of [`leased`].
const TERM: Origin = Origin {
    shard: Some(ShardId(0)),
    epoch: Epoch(10),
};

/// A holder with a lease of `capacity` for ten seconds, and the answer that gave it.
fn leased(
    policy: &Policy,
    capacity: Capacity,
    safe: Option<Capacity>,
) -> Result<(RateLimiter, Answer), String> {
    let mut limiter = RateLimiter::new(START, policy);
    limiter.count(START, 100);
    limiter.draw(START, policy, Tokens::ONE, 1);
    let LeaseMessage::Refresh(request) = limiter.ask(START, policy) else {
        return Err("the first attempt asked nothing".into());
    };
    let answer = Answer {
        lease: Some(LeaseTerms {
            capacity,
            burst: Tokens::from_whole(100),
            duration: Duration::from_secs(10),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe,
        capacity,
        period: None,
        burst: None,
        draw: None,
    };
    let applied = limiter.handle_answer(START, policy, request.sequence, TERM, &answer);
    ensure!(applied, "the first answer was dropped");
    Ok((limiter, answer))
}
