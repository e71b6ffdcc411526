//! Clocks that stand still, go back or jump to the end of time.
//!
//! None of them is to be expected of a monotonic clock, and none may let more pass than the burst and
//! the time that has really gone by, divide by nothing, or keep anybody waiting after an answer.

use core::time::Duration;

use super::*;
use crate::lease::{Answer, Epoch, LeaseTerms, Origin, Unit};
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
            basis: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: None,
        capacity: Capacity::from_whole(100),
    }
}

/// A holding whose first request waits for the answer.
fn cold() -> Holding {
    let policy = Policy::default();
    let mut holding = Holding::new(START, &policy);
    holding.requests.count(START, 1);
    let draw = holding.requests.draw(START, &policy, Tokens::ONE, 1);
    assert!(matches!(draw, Draw::Cold { .. }), "{draw:?}");
    holding
}

/// Asks at `asked` and is answered at `answered`; whether the answer counted.
fn refresh(holding: &mut Holding, asked: Instant, answered: Instant) -> bool {
    let policy = Policy::default();
    let todos = holding.ask(asked, &policy);
    let Some((Unit::Requests, Todo::Refresh(ask))) = todos.into_iter().next() else {
        return false;
    };
    let (sequence, origin) = (ask.sequence, Origin::alone(Epoch(1)));
    holding.handle_answer(
        answered,
        &policy,
        Unit::Requests,
        sequence,
        origin,
        &answer(),
    )
}

/// Tokens that are drawn at `now` until no more are given.
fn drawn(holding: &mut Holding, now: Instant) -> u64 {
    let policy = Policy::default();
    let mut sum = 0;
    for _ in 0..1000 {
        holding.requests.count(now, 1);
        match holding.requests.draw(now, &policy, Tokens::ONE, 1) {
            Draw::Slab(tokens) => sum += tokens.whole(),
            Draw::Cold { .. } => panic!("nobody waits after an answer"),
            Draw::Denied { .. } | Draw::ExceedsBurst { .. } => return sum,
        }
    }
    panic!("{sum} tokens and no end")
}

#[test]
fn at_a_standing_clock_the_burst_passes_and_no_more() {
    let mut holding = cold();
    assert!(refresh(&mut holding, START, START));
    assert_eq!(drawn(&mut holding, START), BURST);
    for _ in 0..100 {
        assert_eq!(drawn(&mut holding, START), 0);
        // Whatever is asked and answered meanwhile.
        refresh(&mut holding, START, START);
    }
    assert_eq!(
        drawn(
            &mut holding,
            START.saturating_add(Duration::from_millis(50))
        ),
        5
    );
}

#[test]
fn a_clock_that_goes_back_lets_nothing_more_pass_until_it_has_caught_up() {
    let mut holding = cold();
    assert!(refresh(&mut holding, START, START));
    assert_eq!(drawn(&mut holding, START), BURST);
    for now in [at(9), at(0), at(5), at(9), START] {
        assert_eq!(drawn(&mut holding, now), 0, "{now:?}");
        refresh(&mut holding, now, now);
        assert_eq!(drawn(&mut holding, now), 0, "{now:?}, after a refresh");
    }
    assert_eq!(
        drawn(
            &mut holding,
            START.saturating_add(Duration::from_millis(50))
        ),
        5
    );
}

#[test]
fn an_answer_from_before_it_was_asked_for_ends_the_waiting() {
    let mut holding = cold();
    assert!(refresh(&mut holding, START, at(9)));
    assert!(drawn(&mut holding, at(9)) <= BURST);
    let mut holding = cold();
    let todos = holding.ask(START, &Policy::default());
    let Some((unit, Todo::Refresh(ask))) = todos.first() else {
        panic!("{todos:?}");
    };
    holding.handle_failure(at(9), *unit, ask.sequence, 1);
    assert!(drawn(&mut holding, at(9)) <= 10, "the safe capacity");
}

#[test]
fn at_the_end_of_time_one_burst_passes() {
    let mut holding = cold();
    assert!(refresh(&mut holding, START, START));
    drawn(&mut holding, START);
    let end = Instant::from_nanos(u64::MAX);
    assert!(drawn(&mut holding, end) <= BURST);
    assert_eq!(drawn(&mut holding, end), 0);
    assert_eq!(drawn(&mut holding, START), 0, "and back");
}

#[test]
fn permits_do_not_depend_on_the_clock() {
    let policy = Policy::default();
    let mut gauge = Gauge::new(START);
    let mut usage = Usage {
        worker: 1,
        ..Usage::default()
    };
    for now in [
        START,
        START,
        at(0),
        at(20),
        START,
        Instant::from_nanos(u64::MAX),
    ] {
        if let Permits::Held { held, .. } = gauge.draw(now, &policy, &usage, 1, false) {
            usage.in_use = (usage.in_use + 1).min(held);
        }
        gauge.sweep(now, &[1]);
        assert!(gauge.held() <= gauge.limit(now, &policy), "{now:?}");
        assert!(gauge.held() >= usage.in_use, "{now:?}");
    }
}

#[test]
fn the_pen_goes_to_one_of_two_at_any_clock() {
    for (heartbeat, now) in [(START, START), (START, at(9)), (START, at(11))] {
        let pen = Pen {
            owner: 1,
            heartbeat,
        };
        let (first, second) = (
            Pen::decide(Some(pen), now, 1),
            Pen::decide(Some(pen), now, 2),
        );
        assert_ne!(first, Turn::Leave, "who has it keeps it");
        // At a standing clock nobody can tell that it is lost; after a jump anybody may have it.
        assert_eq!(second == Turn::Leave, heartbeat == now, "{now:?}");
    }
}
