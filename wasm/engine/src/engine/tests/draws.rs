//! Requests that wait for tokens of the fleet's bucket.

use core::time::Duration;

use tollgate_core::lease::{DrawAnswer, UnitAnswer};
use tollgate_core::message::{Refreshed, ScopeAnswer};
use tollgate_core::units::{Capacity, Tokens};

use super::calls::{OpenCall, lent};
use super::*;

/// Limit of a hundred requests, of which some have been granted.
struct Bucket {
    granted: u64,
}

// === impl Bucket ===

impl Bucket {
    /// Grants what a call needs. Returns the answer, and how many tokens it grants.
    fn grant(&mut self, call: &OpenCall) -> (Refreshed, u64) {
        let draw = call.refresh().scopes[0].asks[0].1.draw.unwrap();
        let needs = draw.needs.whole();
        self.granted += needs;
        let answer = call.answer(|scope| {
            let answer = lent(scope, 0.0);
            let units = answer.outcome.unwrap().into_iter();
            let units = units.map(|unit| self.unit_answer(unit)).collect();
            ScopeAnswer {
                outcome: Ok(units),
                ..lent(scope, 0.0)
            }
        });
        (answer, needs)
    }

    fn unit_answer(&self, mut unit: UnitAnswer) -> UnitAnswer {
        unit.answer.capacity = Capacity::from_whole(1);
        unit.answer.burst = Some(Tokens::from_whole(100));
        unit.answer.draw = Some(DrawAnswer {
            granted: Tokens::from_whole(self.granted),
            left: Tokens::from_whole(100 - self.granted),
            next: None,
        });
        unit
    }
}

#[test]
fn a_call_asks_for_all_requests_that_have_come_during_the_one_before() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    let mut bucket = Bucket { granted: 0 };
    let mut needs = Vec::new();
    for requests in [1, 8, 8, 0] {
        // 80 ms there and back, while others come.
        for _ in 0..requests {
            assert_eq!(worker.of("acme"), Decision::Hold);
            worker.tick(Duration::from_millis(10));
        }
        if let Some((token, call)) = worker.process.take_call() {
            let (answer, granted) = bucket.grant(&call);
            needs.push(granted);
            worker.handle_answer(token, answer);
            worker.tick(Duration::from_millis(1));
        }
    }
    // The first of the eight is asked for at once, and the others when that is answered.
    assert_eq!(needs, [1, 1, 7, 8]);
    assert_eq!(worker.resumed.len(), 17);
    assert_eq!(worker.denied, []);
}
