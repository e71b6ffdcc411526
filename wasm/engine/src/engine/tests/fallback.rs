//! Limits that are known, and what passes under them while the coordinator lends nothing.

use tollgate_core::lease::{Answer, UnitAnswer};
use tollgate_core::message::ScopeAnswer;

use super::calls::unit_lent;
use super::*;
use crate::rules::planned_key;

/// Three a minute, or no limit.
const LOGIN: Option<f64> = Some(0.05);
const NO_LIMIT: Option<f64> = None;

impl Worker {
    /// Answers all open calls with the limit of a scope, which may be the usual one of its rule; only
    /// what has no limit is lent.
    fn tell_limit(&mut self, limit: Option<f64>, usual: Option<bool>) {
        while let Some((token, call)) = self.process.take_call() {
            let answer = call.answer(|scope| {
                let units = scope
                    .asks
                    .iter()
                    .map(|ask| told(unit_lent(ask, 1.0), limit));
                ScopeAnswer {
                    limited: limit.iter().map(|_| Unit::Requests).collect(),
                    usual,
                    outcome: Ok(units.collect()),
                    ..lent(scope, 1.0)
                }
            });
            self.handle_answer(token, answer);
        }
    }

    /// Gets to know the limit of `tenant`, by one request.
    fn learn(&mut self, tenant: &str, limit: Option<f64>, usual: Option<bool>) {
        self.of(tenant);
        self.tick(Duration::from_millis(1));
        self.tell_limit(limit, usual);
        self.resumed.clear();
    }

    /// Returns the number of 60 requests that pass in three seconds while all calls fail.
    fn passes_alone(&mut self, tenant: &str) -> usize {
        let mut passed = 0;
        for _ in 0..60 {
            passed += self.admitted(tenant, 1);
            for ms in [1, 49] {
                self.tick(Duration::from_millis(ms));
                while let Some((token, _)) = self.process.take_call() {
                    self.fail_call(token);
                }
            }
            passed += self.resumed.drain(..).count();
        }
        passed
    }
}

fn told(unit: UnitAnswer, limit: Option<f64>) -> UnitAnswer {
    let limit = limit.map(|limit| Capacity::try_from_f64(limit).unwrap());
    let capacity = limit.unwrap_or(Capacity::UNLIMITED);
    let lease = unit.answer.lease.filter(|_| limit.is_none());
    UnitAnswer {
        answer: Answer {
            lease: lease.map(|terms| tollgate_core::lease::LeaseTerms { capacity, ..terms }),
            capacity,
            burst: limit.map(|_| Tokens::from_whole(3)),
            ..unit.answer
        },
        ..unit
    }
}

#[test]
fn while_the_coordinator_learns_and_when_it_is_gone_no_more_passes_than_the_limit() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.learn("acme", LOGIN, None);
    let passed = worker.passes_alone("acme");
    assert!(passed <= 3, "{passed} of three a minute");
}

#[test]
fn a_scope_without_a_limit_is_not_throttled_when_the_coordinator_is_gone() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.learn("acme", NO_LIMIT, None);
    worker.process.advance(Duration::from_secs(30));
    assert_eq!(worker.passes_alone("acme"), 60);
    assert_eq!(worker.admitted("acme", 1000), 1000);
}

#[test]
fn of_scopes_that_are_new_the_usual_limit_of_their_rule_holds_in_every_worker() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    second.learn("acme", LOGIN, None);
    assert!(second.passes_alone("bolt") > 10, "it is not the usual one");
    first.learn("coda", LOGIN, Some(true));
    first.tick(Duration::from_secs(1));
    second.tick(Duration::from_secs(1));
    let mut third = Worker::new(&process, 3, &config);
    for (worker, tenant) in [(&mut first, "d"), (&mut second, "e"), (&mut third, "f")] {
        let passed = worker.passes_alone(tenant);
        assert!(passed <= 3, "{passed} of {tenant} pass");
    }
    // An edit of the configuration forgets nothing.
    first.configure(&EngineConfig {
        max_pending: 1,
        ..one_rule()
    });
    assert!(first.passes_alone("g") <= 3);
}

#[test]
fn scopes_that_are_new_are_not_throttled_as_long_as_none_of_their_rule_has_a_limit() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.learn("acme", NO_LIMIT, Some(true));
    worker.tick(Duration::from_secs(1));
    assert_eq!(worker.passes_alone("bolt"), 60);
    // An overflow scope, which may have a limit of its own, is none of them.
    let rules = &mut worker.engine.process.rules;
    let known = rules.policy_of("tenant/acme").usual.unwrap();
    rules.learn_limit("tenant/~overflow-3", known, None);
    assert_eq!(worker.passes_alone("beta"), 60);
    worker.learn("coda", NO_LIMIT, None);
    worker.tick(Duration::from_secs(1));
    let passed = worker.passes_alone("delta");
    assert!((10..45).contains(&passed), "{passed} at the safe capacity");
}

#[test]
fn of_scopes_that_are_new_the_usual_limit_of_their_plan_holds() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    let of = |plan, user| planned_key(plan, user);
    first.learn(&of("free", "acme"), LOGIN, Some(true));
    first.learn(&of("gold", "acme"), NO_LIMIT, Some(true));
    for worker in [&mut first, &mut second] {
        worker.tick(Duration::from_secs(1));
    }
    for worker in [&mut first, &mut second] {
        let (free, gold) = (of("free", "bolt"), of("gold", "bolt"));
        assert!(worker.passes_alone(&free) <= 3);
        assert_eq!(worker.passes_alone(&gold), 60);
    }
    let passed = second.passes_alone(&of("other", "coda"));
    assert!((10..45).contains(&passed), "{passed} at the safe capacity");
}

#[test]
fn a_usual_limit_ends_when_an_answer_says_that_there_is_none() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    let exchange = |first: &mut Worker, second: &mut Worker| {
        for worker in [first, second] {
            worker.tick(Duration::from_secs(1));
        }
    };
    first.learn("acme", LOGIN, Some(true));
    exchange(&mut first, &mut second);
    assert!(second.passes_alone("bolt") <= 3);
    // A scope with a limit of its own says nothing of the others, however long it is the only one.
    first.learn("written", Some(1000.0), None);
    exchange(&mut first, &mut second);
    assert!(second.passes_alone("coda") <= 3);
    // A glob for some scopes of the kind has come before the one for all.
    first.learn("delta", Some(1000.0), Some(false));
    exchange(&mut first, &mut second);
    for (worker, tenant) in [(&mut first, "echo"), (&mut second, "fox")] {
        let passed = worker.passes_alone(tenant);
        assert!(
            (10..45).contains(&passed),
            "{passed} of {tenant} at the safe capacity"
        );
    }
}
