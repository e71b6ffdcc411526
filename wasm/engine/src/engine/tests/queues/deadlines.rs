//! Turns that come about the deadline.

use super::*;

/// The token is there after 100 ms. The bucket is asked half a millisecond before that, and then no
/// sooner than after one more; timers are as late as they like.
#[test]
fn who_waits_for_a_token_that_comes_about_the_deadline_is_refused_at_once_or_goes() {
    for (max_wait, waits) in [(99, false), (100, false), (101, false), (102, true)] {
        for late_us in [0, 200, 700, 2500, 30_000] {
            for is_client in [false, true] {
                let rule = if is_client {
                    waits_for(Duration::from_secs(1))
                } else {
                    waits_for(Duration::from_millis(max_wait))
                };
                let mut worker = spent(&FakeProcess::new(), &rule, 10.0);
                let decision = if is_client {
                    worker.request_within(&["acme"], max_wait)
                } else {
                    worker.of("acme")
                };
                assert_eq!(decision == Decision::Hold, waits, "{max_wait}");
                worker.tick(Duration::from_micros(99_500));
                worker.tick(Duration::from_micros(500 + late_us));
                for _ in 0..2 {
                    worker.tick(worker.engine.tick_period());
                }
                assert_eq!(worker.denied, [], "{max_wait} ms, {late_us} us late");
                assert_eq!(worker.went_on().len(), usize::from(waits));
            }
        }
    }
}
