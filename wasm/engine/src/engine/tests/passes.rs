//! Requests that come again within their proxy, such as after a redirect that it follows itself.

use super::permits::FOUR;
use super::*;
use crate::admission::Charge;
use crate::config::Estimate;
use crate::effect::StreamEnd;

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
        if self.engine.shares_scope(&request, earlier) {
            self.engine.go_on_from(&mut request, earlier);
        }
        match self.engine.admit(&mut request, || None) {
            Decision::Admit => {
                let mut charge = Charge::default();
                self.engine.note_charge(&mut request, 0, &mut charge);
                Ok(charge)
            }
            decision => Err(decision),
        }
    }

    /// Returns the charge of a pass with a body, which has ended.
    fn pass_with_body(&mut self, earlier: &Charge, keys: &[&str]) -> Charge {
        let mut charge = self.pass_after(earlier, keys, 1).unwrap();
        self.sizes.insert(self.streams, [5000, 0]);
        self.end(self.streams);
        charge.add_request_bytes(5000);
        charge
    }

    /// Ends the pass of `charge`, the latest, which has cost nothing by the first rule.
    fn end_free(&mut self, charge: &mut Charge) {
        let end = StreamEnd {
            costs: vec![(RuleId(0), Tokens::ZERO)],
            ..StreamEnd::default()
        };
        self.engine.end_stream(self.streams, &end, Some(charge));
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
fn a_scope_pays_for_the_dearest_pass_of_a_chain() {
    let config = rules([safe_rule("tenant", 20), safe_rule("path", 20)]);
    // Costs and paths of the passes, and what is left of acme and of each path.
    type Pass = (u64, &'static str);
    let rows: [(&[Pass], [u64; 3]); 4] = [
        (&[(1, "a"), (5, "a"), (5, "a")], [15, 15, 20]),
        (&[(5, "a"), (1, "a"), (5, "a")], [15, 15, 20]),
        (&[(1, "a"), (5, "b"), (5, "b"), (6, "a")], [14, 14, 15]),
        (&[(5, "a"), (1, "b"), (1, "a"), (2, "b")], [15, 15, 18]),
    ];
    for (row, (passes, left)) in rows.into_iter().enumerate() {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
        let mut charge = Charge::default();
        for (cost, path) in passes {
            charge = worker.pass_after(&charge, &["acme", path], *cost).unwrap();
        }
        let keys = [["acme", "c"], ["beta", "a"], ["gamma", "b"]];
        for (keys, left) in keys.iter().zip(left) {
            let more = worker.first_pass(keys, left + 1);
            assert!(more.is_err(), "row {row}: {keys:?}");
            worker.first_pass(keys, left).unwrap();
        }
    }
}

#[test]
fn a_group_is_charged_once_whichever_members_the_passes_are_of() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 10.0)]),
    ];
    let passed = |passes: &[&str]| {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        worker.meet("acme", &all);
        worker.meet("beta", &all);
        let mut passed = 0;
        while let Ok(mut charge) = worker.first_pass(&["acme"], 1) {
            for member in passes {
                charge = worker.pass_after(&charge, &[member], 1).unwrap();
            }
            passed += 1;
        }
        passed
    };
    let once = passed(&[]);
    assert!(once > 5, "{once}");
    assert_eq!(passed(&["acme"]), once);
    assert_eq!(passed(&["beta", "acme"]), once);
}

#[test]
fn a_scope_that_has_the_place_of_a_forgotten_one_pays_itself() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &rules([safe_rule("tenant", 10)]));
    let charge = worker.first_pass(&["acme"], 1).unwrap();
    let place = |worker: &Worker, tenant: &str| {
        let target = worker.engine.admission.find(RuleId(0), tenant.as_bytes());
        target.map(crate::decision::Target::bucket)
    };
    let before = place(&worker, "acme");
    while place(&worker, "acme").is_some() {
        worker.tick(TICK);
    }
    worker.pass_after(&charge, &["beta"], 1).unwrap();
    assert_eq!(place(&worker, "beta"), before);
    assert_eq!(worker.admitted("beta", 20), 9);
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
            charge = worker.pass_with_body(&charge, &["acme"]);
        }
        let refused = worker.of("acme");
        pause(&worker, refused)
    };
    assert!(owed(1) > Duration::from_secs(3));
    assert_eq!(owed(3), owed(1));
}

#[test]
fn a_scope_that_a_later_pass_has_first_pays_for_the_body() {
    const ALL: &[Terms] = &[
        terms("tenant/", &[(Unit::Requests, 1e6)]),
        terms(
            "path/",
            &[(Unit::Requests, 1e6), (Unit::RequestBytes, 1000.0)],
        ),
    ];
    let mut worker = Worker::new(
        &FakeProcess::new(),
        1,
        &rules([rule("tenant"), rule("path")]),
    );
    for path in ["old", "new"] {
        worker.request(&["acme", path]);
        worker.pass(Duration::from_millis(500), ALL);
        worker.end(worker.streams);
        // It makes the need for bytes known.
        worker.request(&["acme", path]);
        worker.sizes.insert(worker.streams, [100, 0]);
        worker.end(worker.streams);
    }
    worker.pass(Duration::from_millis(900), ALL);
    let charge = worker.pass_with_body(&Charge::default(), &["acme", "old"]);
    worker.pass_with_body(&charge, &["acme", "new"]);
    for path in ["old", "new"] {
        let refused = worker.request(&["acme", path]);
        assert!(pause(&worker, refused) > Duration::from_secs(3), "{path}");
    }
}

#[test]
fn a_bucket_that_has_given_back_is_charged_again_and_the_others_are_not() {
    let free = RuleConfig {
        final_cost: Some(Estimate::Request),
        ..safe_rule("login", 10)
    };
    let config = rules([free, safe_rule("tenant", 10)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let mut charge = worker.first_pass(&["a", "acme"], 1).unwrap();
    worker.end_free(&mut charge);
    worker.pass_after(&charge, &["a", "acme"], 1).unwrap();
    worker.tick(TICK);
    let left = |worker: &mut Worker, keys: &[&str]| {
        let mut passed = 0;
        while worker.first_pass(keys, 1).is_ok() {
            passed += 1;
        }
        passed
    };
    assert_eq!(left(&mut worker, &["a", "other"]), 9);
    assert_eq!(left(&mut worker, &["b", "acme"]), 9);
}

#[test]
fn what_an_earlier_pass_was_charged_does_not_come_back_with_a_later_one() {
    let late = RuleConfig {
        final_cost: Some(Estimate::Tokens(Tokens::from_whole(5))),
        ..safe_rule("tenant", 10)
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &rules([late]));
    let charge = worker.first_pass(&["acme"], 1).unwrap();
    worker.end(worker.streams);
    worker.pass_after(&charge, &["acme"], 1).unwrap();
    worker.end_at(worker.streams, 0);
    worker.first_pass(&["acme"], 1).unwrap();
    worker.first_pass(&["acme"], 1).unwrap_err();
}

#[test]
fn a_later_pass_brings_back_what_it_took_itself() {
    let free = RuleConfig {
        final_cost: Some(Estimate::Request),
        ..safe_rule("login", 10)
    };
    let config = rules([free, safe_rule("tenant", 10)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let mut charge = Charge::default();
    for _ in 0..2 {
        charge = worker.pass_after(&charge, &["a", "acme"], 1).unwrap();
        worker.end_free(&mut charge);
    }
    let mut left = 0;
    while worker.first_pass(&["a", "other"], 1).is_ok() {
        left += 1;
    }
    assert_eq!(left, 10);
}
