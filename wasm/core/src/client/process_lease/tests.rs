//! Leases that are about to grow.

use super::*;
use crate::client::RateLimiter;
use crate::lease::{Epoch, LeaseTerms};
use crate::units::{Rate, Tokens};

const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// When who has less than its share is told to come back, and when the others are.
const SHORT_MS: u64 = 100;
const REGULAR_MS: u64 = 1000;

fn at(ms: u64) -> Instant {
    START.saturating_add(Duration::from_millis(ms))
}

/// A part of 200 per second.
fn answer(gets: u64, refresh_ms: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets),
            duration: Duration::from_secs(10),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_millis(refresh_ms),
        safe: None,
        capacity: Capacity::from_whole(200),
        period: None,
        burst: None,
        draw: None,
    }
}

fn asked(limiter: &mut RateLimiter, now: Instant) -> LeaseRequest {
    match limiter.ask(now, &Policy::default()) {
        LeaseMessage::Refresh(request) => request,
        message => panic!("{message:?}"),
    }
}

/// Asks at `ms` and is answered a millisecond later.
fn refresh(limiter: &mut RateLimiter, ms: u64, answer: &Answer) {
    let request = asked(limiter, at(ms));
    let (origin, policy) = (Origin::alone(Epoch(1)), Policy::default());
    assert!(limiter.handle_answer(at(ms + 1), &policy, request.sequence, origin, answer));
}

/// A holder that wants a hundred per second and got `answer` at 1 ms.
fn newcomer(answer: &Answer) -> RateLimiter {
    let policy = Policy::default();
    let mut limiter = RateLimiter::new(START, &policy);
    limiter.count(START, 10);
    limiter.draw(START, &policy, Tokens::ONE, 1);
    refresh(&mut limiter, 0, answer);
    limiter
}

fn whole() -> Option<Rate> {
    Some(Rate::from_whole(200))
}

#[test]
fn a_newcomers_lease_grows_until_it_has_its_share() {
    let mut limiter = newcomer(&answer(0, SHORT_MS));
    for (ms, gets) in [(101, 0), (202, 10), (303, 10), (404, 25)] {
        assert_eq!(limiter.expected_rate(at(ms)), whole(), "{ms}");
        limiter.count(at(ms), 10);
        refresh(&mut limiter, ms, &answer(gets, SHORT_MS));
    }
    assert_eq!(limiter.expected_rate(at(410)), whole());
    limiter.count(at(505), 10);
    refresh(&mut limiter, 505, &answer(40, REGULAR_MS));
    assert_eq!(limiter.expected_rate(at(510)), None);
}

#[test]
fn nothing_grows_where_there_is_nothing_to_come() {
    let mut blocked = answer(0, SHORT_MS);
    blocked.capacity = Capacity::ZERO;
    let mut unknown = answer(0, SHORT_MS);
    unknown.lease = None;
    let rows = [
        ("blocked", blocked),
        ("others go first", answer(0, REGULAR_MS)),
        ("all that is wanted", answer(100, SHORT_MS)),
        ("not known yet", unknown),
    ];
    for (what, answer) in rows {
        let limiter = newcomer(&answer);
        assert_eq!(limiter.expected_rate(at(2)), None, "{what}");
    }
}

#[test]
fn who_has_to_give_back_does_not_grow() {
    let mut limiter = newcomer(&answer(80, REGULAR_MS));
    for ms in (100..=1000).step_by(100) {
        limiter.count(at(ms), 10);
    }
    refresh(&mut limiter, 1001, &answer(40, SHORT_MS));
    assert_eq!(limiter.expected_rate(at(1003)), None);
}

#[test]
fn what_has_not_grown_in_a_leases_time_does_not() {
    let mut limiter = newcomer(&answer(0, SHORT_MS));
    for ms in (110..=20_000).step_by(110) {
        assert_eq!(
            limiter.expected_rate(at(ms)).is_some(),
            ms <= 10_000,
            "{ms}"
        );
        limiter.count(at(ms), 10);
        refresh(&mut limiter, ms, &answer(0, SHORT_MS));
    }
}

#[test]
fn who_wants_much_more_than_before_may_get_it() {
    let mut limiter = newcomer(&answer(100, REGULAR_MS));
    limiter.count(at(110), 0);
    assert_eq!(limiter.expected_rate(at(110)), None);
    limiter.count(at(210), 50);
    assert_eq!(limiter.expected_rate(at(210)), whole(), "not told yet");
    let request = asked(&mut limiter, at(211));
    assert_eq!(
        limiter.expected_rate(at(212)),
        whole(),
        "told, not answered"
    );
    let (origin, policy) = (Origin::alone(Epoch(1)), Policy::default());
    let granted = answer(100, REGULAR_MS);
    assert!(limiter.handle_answer(at(213), &policy, request.sequence, origin, &granted));
    assert_eq!(
        limiter.expected_rate(at(214)),
        None,
        "it is all that there is"
    );
    limiter.count(at(310), 100);
    limiter.count(at(410), 100);
    let request = asked(&mut limiter, at(411));
    assert!(limiter.expected_rate(at(412)).is_some());
    limiter.handle_failure(at(412), request.sequence, 1);
    assert_eq!(limiter.expected_rate(at(413)), None, "nobody answers");
}
