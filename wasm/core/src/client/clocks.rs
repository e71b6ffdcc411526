//! Clocks that stand still, go back or jump to the end of time.
//!
//! None of them is to be expected of a monotonic clock, and none may let more pass than the burst and
//! the time that has really gone by, divide by nothing, or keep anybody waiting after an answer.

use core::time::Duration;

use super::*;
use crate::lease::{Answer, Epoch, LeaseTerms, Origin, Unit, UnitAnswer};
use crate::units::{Capacity, Instant, Tokens};

const HOUR: u64 = 3_600_000_000_000;
const BURST: u64 = 20;
/// When all begins.
const START: Instant = Instant::from_nanos(10 * HOUR);

fn at(hours: u64) -> Instant {
    Instant::from_nanos(hours.saturating_mul(HOUR))
}

fn answer() -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(100),
            duration: Duration::from_secs(10),
            burst: Tokens::from_whole(BURST),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: None,
        capacity: Capacity::from_whole(100),
        period: None,
        burst: None,
        draw: None,
    }
}

/// A scope whose first request waits for the answer.
fn pending() -> ScopeState {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(START, &policy);
    scope_state.requests.count(START, 1);
    let draw = scope_state.requests.draw(START, &policy, Tokens::ONE, 1);
    assert!(matches!(draw, DrawResult::Pending { .. }), "{draw:?}");
    scope_state
}

/// Asks at `asked` and is answered at `answered`; whether the answer counted.
fn refresh(scope_state: &mut ScopeState, asked: Instant, answered: Instant) -> bool {
    let policy = Policy::default();
    let messages = scope_state.ask(asked, &policy);
    let Some((Unit::Requests, LeaseMessage::Refresh(request))) = messages.into_iter().next() else {
        return false;
    };
    let answer = UnitAnswer {
        unit: Unit::Requests,
        sequence: request.sequence,
        answer: answer(),
    };
    scope_state.handle_answer(answered, &policy, Origin::alone(Epoch(1)), &answer)
}

/// Tokens that are drawn at `now` until no more are given.
fn drawn(scope_state: &mut ScopeState, now: Instant) -> u64 {
    let policy = Policy::default();
    let mut sum = 0;
    for _ in 0..1000 {
        scope_state.requests.count(now, 1);
        match scope_state.requests.draw(now, &policy, Tokens::ONE, 1) {
            DrawResult::Tokens(tokens) => sum += tokens.whole(),
            DrawResult::Pending { .. } => panic!("nobody waits after an answer"),
            DrawResult::Denied { .. } | DrawResult::ExceedsBurst { .. } => return sum,
        }
    }
    panic!("{sum} tokens and no end")
}

#[test]
fn at_a_standing_clock_the_burst_passes_and_no_more() {
    let mut scope_state = pending();
    assert!(refresh(&mut scope_state, START, START));
    assert_eq!(drawn(&mut scope_state, START), BURST);
    for _ in 0..100 {
        assert_eq!(drawn(&mut scope_state, START), 0);
        // Requests and answers meanwhile change nothing.
        refresh(&mut scope_state, START, START);
    }
    assert_eq!(
        drawn(
            &mut scope_state,
            START.saturating_add(Duration::from_millis(50))
        ),
        5
    );
}

#[test]
fn a_clock_that_goes_back_lets_nothing_more_pass_until_it_has_caught_up() {
    let mut scope_state = pending();
    assert!(refresh(&mut scope_state, START, START));
    assert_eq!(drawn(&mut scope_state, START), BURST);
    for now in [at(9), at(0), at(5), at(9), START] {
        assert_eq!(drawn(&mut scope_state, now), 0, "{now:?}");
        refresh(&mut scope_state, now, now);
        assert_eq!(drawn(&mut scope_state, now), 0, "{now:?}, after a refresh");
    }
    assert_eq!(
        drawn(
            &mut scope_state,
            START.saturating_add(Duration::from_millis(50))
        ),
        5
    );
}

#[test]
fn an_answer_from_before_it_was_asked_for_ends_the_waiting() {
    let mut scope_state = pending();
    assert!(refresh(&mut scope_state, START, at(9)));
    assert!(drawn(&mut scope_state, at(9)) <= BURST);
    let mut scope_state = pending();
    let messages = scope_state.ask(START, &Policy::default());
    let Some((unit, LeaseMessage::Refresh(request))) = messages.first() else {
        panic!("{messages:?}");
    };
    scope_state.handle_failure(at(9), *unit, request.sequence, 1);
    assert!(drawn(&mut scope_state, at(9)) <= 10, "the safe capacity");
}

#[test]
fn at_the_end_of_time_one_burst_passes() {
    let mut scope_state = pending();
    assert!(refresh(&mut scope_state, START, START));
    drawn(&mut scope_state, START);
    let end = Instant::from_nanos(u64::MAX);
    assert!(drawn(&mut scope_state, end) <= BURST);
    assert_eq!(drawn(&mut scope_state, end), 0);
    assert_eq!(drawn(&mut scope_state, START), 0, "and back");
}

#[test]
fn permits_do_not_depend_on_the_clock() {
    let policy = Policy::default();
    let mut limiter = ConcurrencyLimiter::new(START);
    let mut usage = WorkerUsage {
        worker: 1,
        ..WorkerUsage::default()
    };
    for now in [
        START,
        START,
        at(0),
        at(20),
        START,
        Instant::from_nanos(u64::MAX),
    ] {
        if let PermitResult::Held { held, .. } =
            limiter.draw(now, &policy, &usage, 1, AwaitAction::Refuse)
        {
            usage.in_use = (usage.in_use + 1).min(held);
        }
        limiter.sweep(now, &[1]);
        assert!(limiter.held() <= limiter.limit(now, &policy), "{now:?}");
        assert!(limiter.held() >= usage.in_use, "{now:?}");
    }
}

#[test]
fn the_lock_goes_to_one_of_two_at_any_clock() {
    for (heartbeat, now) in [(START, START), (START, at(9)), (START, at(11))] {
        let lock = LeaderLock {
            owner: 1,
            heartbeat,
        };
        let (first, second) = (
            LeaderLock::decide(Some(lock), now, 1),
            LeaderLock::decide(Some(lock), now, 2),
        );
        assert_ne!(first, LeaderRole::Leave, "who has it keeps it");
        // At a clock that has stopped it cannot be told that it is lost; after a jump any worker may have
        // it.
        assert_eq!(second == LeaderRole::Leave, heartbeat == now, "{now:?}");
    }
}
