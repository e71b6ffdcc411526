//! Leases that are about to grow.

use super::*;
use crate::client::Holder;
use crate::lease::{Epoch, LeaseTerms};
use crate::units::Rate;

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
            basis: 1,
        }),
        refresh_interval: Duration::from_millis(refresh_ms),
        safe: None,
        capacity: Capacity::from_whole(200),
    }
}

fn asked(holder: &mut Holder, now: Instant) -> Ask {
    match holder.ask(now, &Policy::default()) {
        Todo::Refresh(ask) => ask,
        todo => panic!("{todo:?}"),
    }
}

/// Asks at `ms` and is answered a millisecond later.
fn refresh(holder: &mut Holder, ms: u64, answer: &Answer) {
    let ask = asked(holder, at(ms));
    let (origin, policy) = (Origin::alone(Epoch(1)), Policy::default());
    assert!(holder.handle_answer(at(ms + 1), &policy, ask.sequence, origin, answer));
}

/// A holder that wants a hundred per second and got `answer` at 1 ms.
fn newcomer(answer: &Answer) -> Holder {
    let policy = Policy::default();
    let mut holder = Holder::new(START, &policy);
    holder.count(START, 10);
    holder.draw(START, &policy, Tokens::ONE, 1);
    refresh(&mut holder, 0, answer);
    holder
}

fn whole() -> Option<Rate> {
    Some(Rate::from_whole(200))
}

#[test]
fn a_newcomers_lease_grows_until_it_has_its_share() {
    let mut holder = newcomer(&answer(0, SHORT_MS));
    for (ms, gets) in [(101, 0), (202, 10), (303, 10), (404, 25)] {
        assert_eq!(holder.prospect(at(ms)), whole(), "{ms}");
        holder.count(at(ms), 10);
        refresh(&mut holder, ms, &answer(gets, SHORT_MS));
    }
    assert_eq!(holder.prospect(at(410)), whole());
    holder.count(at(505), 10);
    refresh(&mut holder, 505, &answer(40, REGULAR_MS));
    assert_eq!(holder.prospect(at(510)), None);
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
        let holder = newcomer(&answer);
        assert_eq!(holder.prospect(at(2)), None, "{what}");
    }
}

#[test]
fn who_has_to_give_back_does_not_grow() {
    let mut holder = newcomer(&answer(80, REGULAR_MS));
    for ms in (100..=1000).step_by(100) {
        holder.count(at(ms), 10);
    }
    refresh(&mut holder, 1001, &answer(40, SHORT_MS));
    assert_eq!(holder.prospect(at(1003)), None);
}

#[test]
fn what_has_not_grown_in_a_leases_time_does_not() {
    let mut holder = newcomer(&answer(0, SHORT_MS));
    for ms in (110..=20_000).step_by(110) {
        assert_eq!(holder.prospect(at(ms)).is_some(), ms <= 10_000, "{ms}");
        holder.count(at(ms), 10);
        refresh(&mut holder, ms, &answer(0, SHORT_MS));
    }
}

#[test]
fn who_wants_much_more_than_before_may_get_it() {
    let mut holder = newcomer(&answer(100, REGULAR_MS));
    holder.count(at(110), 0);
    assert_eq!(holder.prospect(at(110)), None);
    holder.count(at(210), 50);
    assert_eq!(holder.prospect(at(210)), whole(), "not told yet");
    let ask = asked(&mut holder, at(211));
    assert_eq!(holder.prospect(at(212)), whole(), "told, not answered");
    let (origin, policy) = (Origin::alone(Epoch(1)), Policy::default());
    let granted = answer(100, REGULAR_MS);
    assert!(holder.handle_answer(at(213), &policy, ask.sequence, origin, &granted));
    assert_eq!(holder.prospect(at(214)), None, "it is all that there is");
    holder.count(at(310), 100);
    holder.count(at(410), 100);
    let ask = asked(&mut holder, at(411));
    assert!(holder.prospect(at(412)).is_some());
    holder.handle_failure(at(412), ask.sequence, 1);
    assert_eq!(holder.prospect(at(413)), None, "nobody answers");
}
