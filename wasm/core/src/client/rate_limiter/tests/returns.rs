//! Clients that pause, and what they find when they come back.

use super::*;

/// Leased `gets`, then silent until the lease was released, and for `secs` more.
fn returned_after(gets: u64, secs: u64) -> Process {
    let mut p = Process::leased(gets);
    while let LeaseMessage::Refresh(request) = p.after(1000).message() {
        p.answer(request.sequence, 1, &answer(gets));
    }
    assert_eq!(p.limiter.state(p.now), LeaseState::Idle);
    p.after(secs * 1000);
    p
}

#[test]
fn who_returns_after_any_pause_asks_for_what_it_wants_now() {
    for secs in [1, 60, 2000, 1_000_000] {
        let mut p = returned_after(100, secs);
        assert!(matches!(p.attempt(3), DrawResult::Pending { .. }));
        assert_eq!(p.ask().demand.wants(), Capacity::from_whole(30), "{secs} s");
    }
}

#[test]
fn who_returns_after_a_pause_has_its_burst_again_once_it_is_leased() {
    // Its lease before and now, and the tokens that then pass at once: no more than it had earned.
    for (before, gets, want) in [(1000, 1000, 200), (1000, 500, 100), (100, 1000, 20)] {
        let mut p = returned_after(before, 60);
        p.attempt(1);
        let request = p.ask();
        p.after(2).answer(request.sequence, 1, &answer(gets));
        assert_eq!(p.passes(1000), want, "{before} {gets}");
    }
    let mut p = returned_after(1000, 60);
    p.attempt(1);
    p.ask();
    assert_eq!(
        p.after(250).passes(1000),
        20,
        "no answer: the safe capacity"
    );
}

#[test]
fn what_a_returned_client_owes_is_bounded_at_the_rate_that_its_bucket_earns() {
    let mut p = returned_after(1000, 60);
    assert!(matches!(p.attempt(1), DrawResult::Pending { .. }));
    let owed = Tokens::from_whole(50_000);
    p.limiter.pay(p.now, &p.policy, 1, owed);
    assert_eq!(
        p.limiter.earns(),
        Rate::from_whole(1000),
        "of its last lease"
    );
    assert_eq!(
        p.limiter.bucket.balance(p.now),
        -10_000_000_000,
        "ten seconds of it"
    );
    // The answer does not come, and the safe capacity pays.
    p.after(250).attempt(1);
    assert_eq!(p.limiter.earns(), Rate::from_whole(20));
}

#[test]
fn where_nothing_passes_without_a_lease_the_first_one_comes_with_its_burst() {
    let mut p = Process::new();
    p.policy.no_lease = Mode::Pessimistic;
    p.limiter = RateLimiter::new(p.now, &p.policy);
    assert!(matches!(p.attempt(1), DrawResult::Pending { .. }));
    let request = p.ask();
    p.after(2).answer(request.sequence, 1, &answer(500));
    assert_eq!(p.passes(1000), 100);
    // But what was taken away comes back by earning only.
    for gets in [0, 500] {
        let request = p.after(1000).ask();
        p.answer(request.sequence, 1, &answer(gets));
        assert_eq!(p.passes(1000), 0, "{gets}");
    }
}

#[test]
fn pauses_between_the_requests_of_a_leased_client_are_part_of_its_demand() {
    let mut p = Process::leased(100);
    for _ in 0..5 {
        p.after(2000).attempt(1);
        let request = p.ask();
        assert!(request.demand.wants() <= Capacity::from_whole(1));
        p.answer(request.sequence, 1, &answer(100));
    }
}

#[test]
fn a_limiter_that_waits_for_its_first_lease_is_reusable_only_when_it_is_abandoned() {
    let mut p = Process::new();
    p.attempt(1);
    for (ms, want) in [(59_999, false), (1, true)] {
        p.after(ms);
        assert_eq!(p.limiter.is_reusable(p.now), want);
    }
}

#[test]
fn a_bucket_that_lost_tokens_while_it_was_full_has_the_whole_burst_of_its_first_lease() {
    // Time after one token was taken until the burst falls from 100 to 10; tokens that pass once
    // the first lease has raised it to 100 again.
    for (ms, want) in [(0, 10), (1000, 100)] {
        let mut p = Process::new();
        p.policy.first_lease_wait = Duration::ZERO;
        p.policy.safe = Capacity::from_whole(100);
        p.limiter = RateLimiter::new(p.now, &p.policy);
        assert_eq!(p.attempt(1), DrawResult::Tokens(Tokens::ONE));
        p.after(ms).policy.safe = Capacity::from_whole(10);
        let request = p.ask();
        p.answer(request.sequence, 1, &answer(500));
        assert_eq!(p.passes(1000), want, "after {ms} ms");
    }
}

/// Wants are measured a little low, and with them the rate.
#[test]
fn requests_at_equal_intervals_pass_in_optimistic_mode_however_slow_they_are() {
    let mut p = Process::new();
    p.policy.no_lease = Mode::Optimistic;
    p.policy.safe = Capacity::ZERO;
    let mut passed = 0;
    for second in 0..40 {
        p.now = p.now.saturating_add(Duration::from_nanos(999_999_000));
        p.count(1);
        if second >= 20 {
            passed += p.passes(1);
        }
    }
    assert!(passed >= 19, "{passed}");
}
