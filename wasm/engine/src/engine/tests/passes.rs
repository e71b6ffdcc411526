//! Requests that come again within their proxy, such as after a redirect that it follows itself.

use super::permits::FOUR;
use super::*;
use crate::admission::Charge;

impl Worker {
    /// Decides on a pass of a request that comes from an `earlier` one; returns what it has been charged.
    fn pass_after(
        &mut self,
        earlier: &Charge,
        keys: &[&str],
        cost: u64,
    ) -> Result<Charge, Decision> {
        self.streams += 1;
        let root = self.root.clone();
        let cost = Tokens::from_whole(cost);
        let mut request = self.engine.begin(root.settings, self.streams, cost);
        for (rule, key) in root.rules.into_iter().zip(keys) {
            if !self.engine.add(&mut request, rule, key.as_bytes()) {
                self.engine.add_new(&mut request, rule, key)?;
            }
        }
        if request.shares_scope(earlier) {
            request.go_on_from(earlier);
        }
        match self.engine.admit(&mut request, || None) {
            Decision::Admit => {
                let mut charge = Charge::default();
                request.note_charge(&mut charge);
                charge.merge(earlier);
                Ok(charge)
            }
            decision => Err(decision),
        }
    }

    fn first_pass(&mut self, keys: &[&str], cost: u64) -> Result<Charge, Decision> {
        self.pass_after(&Charge::default(), keys, cost)
    }
}

fn pause(worker: &Worker, decision: Decision) -> Duration {
    let at = denial(decision).retry_at.expect("a pause");
    at.saturating_since(worker.host().now())
}

#[test]
fn a_request_that_comes_again_is_charged_and_counted_once() {
    let config = rules([safe_rule("tenant", 10)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    for _ in 0..10 {
        let mut charge = worker.first_pass(&["acme"], 1).unwrap();
        for _ in 0..3 {
            charge = worker.pass_after(&charge, &["acme"], 1).unwrap();
        }
    }
    let refused = worker.first_pass(&["acme"], 1).unwrap_err();
    assert!(pause(&worker, refused) <= Duration::from_millis(100));
    worker.tick(TICK);
    assert_eq!(worker.stats().allowed.get(), 10);
    let entry = worker.engine.admission.entry_of(RuleId(0), b"acme");
    assert_eq!(entry.unwrap().cache.left(), Tokens::ZERO);
}

#[test]
fn a_later_pass_pays_for_new_scopes_and_for_what_it_costs_more() {
    let config = rules([safe_rule("tenant", 10), safe_rule("path", 10)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let cheap = worker.first_pass(&["acme", "old"], 1).unwrap();
    let dear = worker.pass_after(&cheap, &["acme", "new"], 6).unwrap();
    // 4 are left of acme, 4 of new, 9 of old.
    worker.pass_after(&dear, &["acme", "old"], 1).unwrap();
    let too_dear = worker.first_pass(&["acme", "other"], 5).unwrap_err();
    assert_eq!(denial(too_dear).need, Tokens::from_whole(5));
    worker.first_pass(&["acme", "old"], 4).unwrap();
    worker.first_pass(&["beta", "new"], 4).unwrap();
    let short = worker.first_pass(&["gamma", "new"], 1).unwrap_err();
    assert_eq!(denial(short).unit, Unit::Requests);
    worker.first_pass(&["gamma", "old"], 5).unwrap();
    // A pass whose new scope is short is refused, and charged nowhere.
    let charge = worker.first_pass(&["gamma", "free"], 1).unwrap();
    worker
        .pass_after(&charge, &["gamma", "new"], 1)
        .unwrap_err();
    worker.first_pass(&["gamma", "free"], 4).unwrap();
}

#[test]
fn a_group_is_charged_once_too() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 10.0)]),
    ];
    let passed = |passes: usize| {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        worker.meet("acme", &all);
        let mut passed = 0;
        while let Ok(mut charge) = worker.first_pass(&["acme"], 1) {
            for _ in 1..passes {
                charge = worker.pass_after(&charge, &["acme"], 1).unwrap();
            }
            passed += 1;
        }
        passed
    };
    assert_eq!(passed(2), passed(1));
}

#[test]
fn a_later_pass_waits_behind_nobody() {
    let config = rules([shaped(safe_rule("tenant", 10))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let charge = worker.first_pass(&["acme"], 10).unwrap();
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.pass_after(&charge, &["acme"], 10).unwrap();
}

/// The permit of the pass before is back by then.
#[test]
fn each_pass_has_a_permit_of_its_own() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    worker.begun("acme", 3);
    let charge = worker.first_pass(&["acme"], 1).unwrap();
    let refused = worker.first_pass(&["acme"], 1).unwrap_err();
    assert_eq!(denial(refused).unit, Unit::Concurrency);
    worker.end(worker.streams - 1);
    worker.pass_after(&charge, &["acme"], 1).unwrap();
    let refused = worker.first_pass(&["acme"], 1).unwrap_err();
    assert_eq!(denial(refused).unit, Unit::Concurrency);
}

#[test]
fn a_body_that_is_sent_again_is_charged_once_and_holds_up_no_pass() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::RequestBytes, 1000.0)],
    )];
    let owed = |passes: usize| {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        worker.meet("acme", ALL);
        // It makes the need for bytes known.
        let first = worker.begun("acme", 1)[0];
        worker.sizes.insert(first, [100, 0]);
        worker.end(first);
        worker.pass(Duration::from_millis(900), ALL);
        let mut charge = Charge::default();
        for _ in 0..passes {
            charge = worker.pass_after(&charge, &["acme"], 1).unwrap();
            worker.sizes.insert(worker.streams, [5000, 0]);
            worker.end(worker.streams);
            charge.add_request_bytes(5000);
        }
        let refused = worker.of("acme");
        pause(&worker, refused)
    };
    assert!(owed(1) > Duration::from_secs(3));
    assert_eq!(owed(3), owed(1));
}
