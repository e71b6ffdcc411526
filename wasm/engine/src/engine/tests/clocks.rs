//! Clocks that stand still or go back: see the core's tests of the same name for what is decided.

use super::*;

/// The capacity that the fake coordinator lends is both the rate and the burst.
const LENT: usize = 100;
const HOUR: u64 = 3_600_000_000_000;

#[test]
fn at_a_standing_clock_one_burst_passes_and_housekeeping_does_no_harm() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut workers: Vec<Worker> = (1..=3)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    workers[0].lease("acme", LENT as f64);
    let mut passed = 1;
    for _ in 0..200 {
        for worker in &mut workers {
            passed += worker.admitted("acme", 5);
            worker.tick(Duration::ZERO);
            worker.answer(LENT as f64);
        }
    }
    assert!(passed <= LENT, "{passed}");
    // A worker keeps what it drew: only a tick that time has passed for gives it back.
    assert!(passed >= LENT - 10, "{passed}");
}

#[test]
fn requests_that_wait_go_on_with_the_answer_wherever_the_clock_is() {
    for now in [0, HOUR, u64::MAX] {
        for answered in [true, false] {
            let process = FakeProcess::new();
            let mut worker = Worker::new(&process, 1, &one_rule());
            assert_eq!(worker.of("acme"), Decision::Hold);
            worker.tick(Duration::ZERO);
            let (token, call) = process.take_call().expect("it is asked for at once");
            process.now.set(now);
            if answered {
                worker.handle_answer(token, call.lend(100.0))
            } else {
                worker.fail_call(token)
            }
            assert_eq!(worker.resumed, [101], "at {now}, answered: {answered}");
        }
    }
}

#[test]
fn a_clock_that_goes_back_brings_no_second_burst() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", LENT as f64);
    let mut passed = 1 + worker.admitted("acme", 500);
    let start = process.now.get();
    for now in [start - HOUR, 0, start / 2, start] {
        process.now.set(now);
        for _ in 0..50 {
            passed += worker.admitted("acme", 20);
            worker.tick(Duration::ZERO);
            worker.answer(LENT as f64);
        }
    }
    assert!(passed <= LENT, "{passed}");
    process.now.set(start);
    let mut later = 0;
    for _ in 0..100 {
        worker.tick(Duration::from_millis(10));
        later += worker.admitted("acme", 20);
        worker.answer(LENT as f64);
    }
    assert!((95..=105).contains(&later), "{later}");
}
