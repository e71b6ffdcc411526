use serde_json::json;

use super::*;
use crate::scenario::{Amount, OnOff, Program, Span, Walk};

const SECOND: Duration = Duration::from_secs(1);

fn stream(program: Program, arrivals: Arrivals) -> RequestStream {
    let spec = DemandSpec {
        arrivals,
        ..DemandSpec::default()
    };
    let shape = DemandShape::new(vec![0], spec);
    let course = Course::new(Rc::new(program));
    RequestStream::new(Duration::ZERO, Rc::new(shape), course, Random::new(1))
}

/// Returns the requests of each of the first `seconds`.
fn per_second(stream: &mut RequestStream, seconds: u32) -> Vec<u32> {
    let second = |i| {
        let mut count = 0;
        while stream.due().is_some_and(|at| at <= SECOND * (i + 1)) {
            let at = stream.due().unwrap();
            count += u32::from(stream.take(at).is_some());
        }
        count
    };
    (0..seconds).map(second).collect()
}

#[test]
fn programs_say_how_many_requests_come() {
    let rows = [
        (json!(50), [50; 6]),
        (
            json!({"ramp": {"from": 0, "to": 80, "at": "1s", "over": "4s"}}),
            [0, 10, 30, 50, 70, 80],
        ),
        (
            json!({"spike": {"from": 10, "to": 200, "at": "2s", "for": "1s"}}),
            [10, 10, 200, 10, 10, 10],
        ),
        (
            json!({"on_off": {"rate": 30, "on": "1s", "off": "2s", "at": "1s"}}),
            [0, 30, 0, 0, 30, 0],
        ),
        (json!({"trace": "a.csv"}), [0, 20, 20, 5, 5, 5]),
    ];
    for (program, want) in rows {
        let mut program = serde_json::from_value(program).unwrap();
        if let Program::Trace(trace) = &mut program {
            let points = [(1, 20.0), (3, 5.0)];
            trace.points = points
                .map(|(at, rate)| (Span::from_secs(at), Amount(rate)))
                .into();
        }
        let text = format!("{program:?}");
        let got = per_second(&mut stream(program, Arrivals::Even), 6);
        let near = got
            .iter()
            .zip(want)
            .all(|(got, want)| got.abs_diff(want) <= 1);
        assert!(near, "{text}: {got:?}, not {want:?}");
    }
}

#[test]
fn random_requests_have_the_rate_as_their_mean() {
    let program = Program::Constant(Amount(200.0));
    let counts = per_second(&mut stream(program, Arrivals::Poisson), 200);
    let mean = f64::from(counts.iter().sum::<u32>()) / 200.0;
    assert!((mean - 200.0).abs() < 3.0, "{mean}");
    let far = |count: &f64| (count - mean).powi(2);
    let square = counts.iter().map(|count| far(&f64::from(*count)));
    let variance = square.sum::<f64>() / 200.0;
    assert!((100.0..300.0).contains(&variance), "{variance}");
}

#[test]
fn a_walk_goes_on_from_where_an_event_has_put_it() {
    let walk = Walk {
        from: Amount(100.0),
        by: crate::scenario::Share(0.1),
        every: Span::from_secs(10),
    };
    let mut stream = stream(Program::Walk(walk), Arrivals::Even);
    assert!((stream.token_rate() - 100.0).abs() < 1e-9);
    while stream.take(SECOND * 25).is_some() {}
    let before = stream.token_rate();
    assert!(
        (80.0..122.0).contains(&before) && before != 100.0,
        "{before}"
    );
    let add = Overlay {
        add: 50.0,
        ..Overlay::NONE
    };
    stream.change(SECOND * 25, |course| course.apply(add));
    assert!((stream.token_rate() - before - 50.0).abs() < 1e-9);
    while stream.take(SECOND * 35).is_some() {}
    let after = stream.token_rate();
    assert!((after / (before + 50.0) - 1.0).abs() <= 0.1, "{after}");
}

const NONE: Overlay = Overlay::NONE;

const fn set(rate: f64) -> Overlay {
    Overlay {
        set: Some(rate),
        ..NONE
    }
}

const fn times(times: f64) -> Overlay {
    Overlay { times, ..NONE }
}

const fn add(add: f64) -> Overlay {
    Overlay { add, ..NONE }
}

#[test]
fn changes_for_a_while_are_taken_back_one_by_one() {
    // Two changes, the rates while both last, when the first has ended, and when the second has.
    let rows = [
        ([times(2.0), NONE], [20.0, 10.0], 20.0),
        ([times(0.0), NONE], [0.0, 10.0], 0.0),
        ([times(0.0), times(3.0)], [0.0, 30.0], 0.0),
        ([set(5.0), set(7.0)], [7.0, 7.0], 5.0),
        ([set(5.0), add(1.0)], [6.0, 11.0], 5.0),
        ([add(1.0), times(3.0)], [33.0, 30.0], 11.0),
        ([times(3.0), set(4.0)], [4.0, 4.0], 30.0),
    ];
    for ([first, second], [both, without_first], without_second) in rows {
        for (ends, want) in [(0, without_first), (1, without_second)] {
            let mut stream = stream(Program::Constant(Amount(10.0)), Arrivals::Even);
            stream.change(SECOND, |course| course.lay(0, first));
            stream.change(SECOND, |course| course.lay(1, second));
            let text = format!("{first:?} and {second:?}, {ends} ends");
            assert_eq!(stream.token_rate(), both, "{text}");
            stream.change(SECOND * 2, |course| course.lift(ends));
            assert_eq!(stream.token_rate(), want, "{text}");
            stream.change(SECOND * 3, |course| course.lift(1 - ends));
            assert_eq!(stream.token_rate(), 10.0, "{text}");
        }
    }
}

#[test]
fn changes_for_good_stay_when_others_end_and_make_no_rate_infinite() {
    let mut stream = stream(Program::Constant(Amount(10.0)), Arrivals::Even);
    stream.change(SECOND, |course| course.apply(add(2.0)));
    stream.change(SECOND, |course| course.lay(0, times(0.0)));
    stream.change(SECOND, |course| course.apply(add(3.0)));
    assert_eq!(stream.token_rate(), 3.0);
    stream.change(SECOND * 2, |course| course.lift(0));
    assert_eq!(stream.token_rate(), 15.0);
    for (change, rate) in [(times(2.0), 30.0), (set(4.0), 4.0)] {
        stream.change(SECOND * 2, |course| course.apply(change));
        assert_eq!(stream.token_rate(), rate);
    }
    for _ in 0..40 {
        stream.change(SECOND, |course| course.apply(times(1e9)));
    }
    assert_eq!(stream.token_rate(), Amount::MAX.0);
}

#[test]
fn turns_that_are_longer_than_time_do_not_end() {
    let ages = Span(Duration::from_nanos(u64::MAX / 3 * 2));
    let on_off = OnOff {
        rate: Amount(3.0),
        on: ages,
        off: ages,
        at: Span::from_secs(1),
    };
    let counts = per_second(&mut stream(Program::OnOff(on_off), Arrivals::Even), 3);
    assert!(counts[0] == 0 && counts[2].abs_diff(3) <= 1, "{counts:?}");
    let walk = Walk {
        from: Amount(3.0),
        by: crate::scenario::Share(0.0),
        every: Span(Duration::MAX),
    };
    let counts = per_second(&mut stream(Program::Walk(walk), Arrivals::Even), 3);
    assert!(counts[2].abs_diff(3) <= 1, "{counts:?}");
}

#[test]
fn bursts_come_at_once_and_as_often_as_the_rate_says() {
    let mut stream = stream(Program::Constant(Amount(26.0)), Arrivals::Bursts(13));
    let mut times = Vec::new();
    while let Some(at) = stream.due().filter(|at| *at < 5 * SECOND) {
        times.extend(stream.take(at).map(|_| at));
    }
    let bursts: Vec<_> = times.chunks(13).collect();
    assert_eq!(bursts.len(), 10, "{times:?}");
    assert!(
        bursts
            .iter()
            .all(|burst| burst.iter().all(|at| *at == burst[0]))
    );
    let apart = bursts[1][0] - bursts[0][0];
    assert!(
        apart.abs_diff(SECOND / 2) < Duration::from_micros(1),
        "{apart:?}"
    );
}

#[test]
fn a_pause_begins_at_the_last_request_and_changes_do_not_end_it() {
    let mut stream = stream(Program::Constant(Amount(1.0)), Arrivals::Even);
    let first = stream.due().unwrap();
    assert!(stream.take(first).is_some());
    stream.pause(10 * SECOND);
    assert_eq!(stream.due(), Some(first + 11 * SECOND));
    stream.change(first + SECOND, |course| course.apply(times(2.0)));
    assert_eq!(stream.take(first + 10 * SECOND), None);
    assert_eq!(stream.due(), Some(first + 10 * SECOND + SECOND / 2));
}
