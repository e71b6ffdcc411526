//! Limiters of a limit with a quota.

use super::*;
use crate::fleet::QuotaLevel;
use crate::lease::DrawAnswer;

/// Answer about a limit of 1000 a second with a quota of 500 an hour, of which so many are left.
pub(super) fn of_quota(granted: u64, left: u64) -> Answer {
    Answer {
        capacity: Capacity::from_whole(1000),
        burst: Some(Tokens::from_whole(1000)),
        safe: None,
        draw: Some(DrawAnswer {
            granted: Tokens::from_whole(granted),
            left: Tokens::from_whole(left),
            quota: Some(QuotaLevel {
                amount: Tokens::from_whole(500),
                left: Tokens::from_whole(left),
                length: Duration::from_secs(3600),
                resets_in: Duration::from_secs(1800),
            }),
            ..DrawAnswer::default()
        }),
        ..answer(0)
    }
}

/// One that may pass `safe` requests a second without a lease, after an answer with so many tokens left.
fn answered(safe: u64, left: u64) -> Process {
    let mut process = Process::new();
    process.policy.safe = Capacity::from_whole(safe);
    process.attempt(1);
    let request = process.ask();
    assert!(process.answer(request.sequence, 1, &of_quota(1, left)));
    process
}

fn lose_a_call(process: &mut Process) {
    process.now = process.now.max(process.limiter.due().unwrap());
    let request = process.ask();
    process.fail(request.sequence);
}

#[test]
fn nothing_passes_that_was_not_granted() {
    let mut p = answered(0, 400);
    assert_eq!(p.passes(5), 1);
    // Not on credit either, though nearly all is there.
    let need = Tokens::ONE;
    let at_once = p.limiter.draw_at_once(p.now, &p.policy, need, WORKERS);
    assert!(matches!(at_once, DrawResult::Denied { .. }), "{at_once:?}");
    lose_a_call(&mut p);
    let passed: usize = (0..20).map(|_| p.after(100).passes(5)).sum();
    assert_eq!(passed, 0, "while it is cut off");
}

#[test]
fn safe_capacity_that_was_spent_is_owed_afterwards() {
    let mut p = answered(2, 400);
    assert_eq!(p.passes(5), 1);
    lose_a_call(&mut p);
    let passed: usize = (0..30).map(|_| p.after(100).passes(1)).sum();
    assert!((5..=8).contains(&passed), "{passed} of two a second");
    p.now = p.now.max(p.limiter.due().unwrap());
    let draw = p.ask().draw.unwrap();
    assert_eq!(draw.owed, Tokens::from_whole(passed as u64));
}

#[test]
fn no_more_is_told_as_left_than_the_quota_has() {
    let mut p = answered(0, 7);
    p.after(700);
    assert!(p.limiter.level(p.now).left <= Tokens::from_whole(8));
    let quota = p.limiter.quota(p.now).unwrap();
    assert_eq!(quota.left, Tokens::from_whole(7));
    // Its window is over.
    p.after(1_800_000);
    assert_eq!(p.limiter.quota(p.now).unwrap().left, quota.amount);
}

#[test]
fn a_cost_above_the_amount_never_passes() {
    let mut p = answered(0, 500);
    let need = Tokens::from_whole(501);
    let result = p.limiter.draw(p.now, &p.policy, need, WORKERS);
    let burst = Tokens::from_whole(500);
    assert_eq!(result, DrawResult::ExceedsBurst { burst });
}

#[test]
fn a_quota_that_is_removed_is_told_no_more() {
    let mut p = answered(0, 400);
    p.now = p.now.max(p.limiter.due().unwrap());
    let request = p.ask();
    assert!(p.answer(request.sequence, 1, &answer(100)));
    assert_eq!(p.limiter.quota(p.now), None);
}

#[test]
fn bytes_do_not_begin_before_they_were_granted() {
    let mut p = answered(0, 400);
    p.limiter.unit = Unit::RequestBytes;
    let usual = Tokens::from_whole(10);
    let hold = crate::client::AwaitAction::Hold;
    let result = p.limiter.draw_bytes(p.now, &p.policy, usual, WORKERS, hold);
    assert!(!matches!(result, DrawResult::Tokens(tokens) if tokens > Tokens::ONE));
}
