//! Clocks that stand still or go back: see the core's tests of the same name for what is decided.

use super::*;

/// The capacity that the fake coordinator lends is both the rate and the burst.
const LENT: usize = 100;
const HOUR: u64 = 3_600_000_000_000;

#[test]
fn at_a_standing_clock_one_burst_passes_and_housekeeping_does_no_harm() {
    let process = Process::new();
    let config = one_rule("");
    let mut proxies: Vec<Proxy> = (1..=3)
        .map(|id| Proxy::new(&process, id, &config))
        .collect();
    proxies[0].lease("acme", LENT as f64);
    let mut passed = 1;
    for _ in 0..200 {
        for proxy in &mut proxies {
            passed += proxy.admitted("acme", 5);
            proxy.tick(Duration::ZERO);
            proxy.answer(LENT as f64);
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
            let process = Process::new();
            let mut proxy = Proxy::new(&process, 1, &one_rule(""));
            assert_eq!(proxy.of("acme"), Decision::Hold);
            proxy.tick(Duration::ZERO);
            let (token, call) = process.take_call().expect("it is asked for at once");
            process.now.set(now);
            match answered {
                true => proxy.worker.handle_answer(token, &call.lend(100.0)),
                false => proxy.worker.handle_failure(token, 14),
            }
            let resumed = proxy.host().resumed.borrow();
            assert_eq!(*resumed, [101], "at {now}, answered: {answered}");
        }
    }
}

#[test]
fn a_clock_that_goes_back_brings_no_second_burst() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.lease("acme", LENT as f64);
    let mut passed = 1 + proxy.admitted("acme", 500);
    let start = process.now.get();
    for now in [start - HOUR, 0, start / 2, start] {
        process.now.set(now);
        for _ in 0..50 {
            passed += proxy.admitted("acme", 20);
            proxy.worker.handle_tick();
            proxy.answer(LENT as f64);
        }
    }
    assert!(passed <= LENT, "{passed}");
    process.now.set(start);
    let mut later = 0;
    for _ in 0..100 {
        proxy.tick(Duration::from_millis(10));
        later += proxy.admitted("acme", 20);
        proxy.answer(LENT as f64);
    }
    assert!((95..=105).contains(&later), "{later}");
}
