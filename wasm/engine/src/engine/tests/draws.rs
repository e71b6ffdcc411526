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
        let needs = draw.needs.saturating_sub(draw.holds).whole();
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
            ..DrawAnswer::default()
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

#[test]
fn requests_that_wait_at_two_workers_are_asked_for_once() {
    let process = FakeProcess::new();
    let mut workers = [1, 2].map(|id| Worker::new(&process, id, &one_rule()));
    let mut bucket = Bucket { granted: 0 };
    assert_eq!(workers[0].of("acme"), Decision::Hold);
    workers[0].tick(Duration::from_millis(1));
    // These come while the first is asked for.
    for _ in 0..8 {
        assert_eq!(workers[1].of("acme"), Decision::Hold);
        workers[1].tick(Duration::from_millis(1));
    }
    for _ in 0..20 {
        if let Some((token, call)) = process.take_call() {
            let (answer, _) = bucket.grant(&call);
            // Only the one that has called knows the token.
            for worker in &mut workers {
                worker.handle_answer(token, answer.clone());
            }
        }
        for worker in &mut workers {
            worker.tick(Duration::from_millis(2));
        }
    }
    let resumed = workers.each_ref().map(|worker| worker.resumed.len());
    assert_eq!((resumed, bucket.granted), ([1, 8], 9));
}
