//! Looks at scopes and changes of their balances outside of any request.

use super::*;
use crate::refusal::ScopeLevel;

/// A worker with a lease of 100 tokens a second for `acme` and all of its burst but one.
fn leased() -> Worker {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    worker
}

impl Worker {
    fn level(&mut self) -> ScopeLevel {
        let levels = self.engine.levels(RuleId(0), "acme");
        assert_eq!(levels.len(), 1, "it leads to no other scope");
        levels[0]
    }
}

#[test]
fn a_look_draws_nothing_and_tells_all() {
    let mut worker = leased();
    for _ in 0..3 {
        let level = worker.level();
        assert_eq!(level.left, Tokens::from_whole(99));
        assert_eq!(level.capacity, Some(Capacity::from_whole(100)));
        assert_eq!(level.rate, Capacity::from_whole(100).as_rate());
        assert_eq!(level.next_in, Some(Duration::ZERO));
        assert_eq!(level.full_in, Some(Duration::from_millis(10)));
        assert!(level.is_leased);
    }
    assert_eq!(worker.admitted("acme", 300), 99);
    let level = worker.level();
    assert_eq!(
        (level.left, level.next_in),
        (Tokens::ZERO, Some(Duration::from_millis(10)))
    );
}

#[test]
fn a_look_at_an_unseen_scope_tells_of_the_fallback() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    let level = worker.level();
    assert_eq!((level.is_leased, level.capacity), (false, None));
    assert!(
        worker.process.take_call().is_none(),
        "nobody wants anything"
    );
}

#[test]
fn what_is_given_back_can_be_taken_again_up_to_the_burst() {
    let mut worker = leased();
    assert_eq!(worker.admitted("acme", 300), 99);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    worker
        .engine
        .give_back(RuleId(0), "acme", Tokens::from_whole(5));
    assert_eq!(worker.admitted("acme", 300), 5, "a refusal is forgotten");
    worker
        .engine
        .give_back(RuleId(0), "acme", Tokens::from_whole(1000));
    assert_eq!(worker.level().left, Tokens::from_whole(100));
    assert_eq!(worker.admitted("acme", 300), 100);
}

#[test]
fn a_charge_beyond_what_there_is_becomes_a_debt() {
    let mut worker = leased();
    worker
        .engine
        .charge(RuleId(0), "acme", Tokens::from_whole(149));
    let level = worker.level();
    assert_eq!(level.left, Tokens::ZERO);
    // A debt of 50, and one token more.
    assert_eq!(level.next_in, Some(Duration::from_millis(510)));
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    worker.process.advance(Duration::from_millis(510));
    assert_eq!(worker.of("acme"), Decision::Admit);
}
