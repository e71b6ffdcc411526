//! Requests of which only their end says what they have cost.

use super::*;
/// A rule whose requests say at their end what they have cost, and the longest wait for a debt.
fn settings(max_debt_ms: u64) -> EngineConfig {
    let policy = Policy {
        max_debt: Duration::from_millis(max_debt_ms),
        ..Policy::default()
    };
    rules([RuleConfig {
        policy,
        final_cost: true,
        ..rule("tenant")
    }])
}

impl Worker {
    fn pause(&mut self, tenant: &str) -> Duration {
        let now = self.host().now();
        let retry_at = denial(self.of(tenant)).retry_at.unwrap();
        retry_at.saturating_since(now)
    }

    /// Answers all calls, and says what the last one wanted, if there was one.
    fn wanted(&mut self) -> Option<f64> {
        let mut wanted = None;
        while let Some((token, call)) = self.process.take_call() {
            wanted = Some(call.wants());
            self.handle_answer(token, call.lend(100.0));
        }
        wanted
    }
}

/// A worker with a lease of 100 tokens a second for `acme` and all of its burst but one.
fn leased() -> Worker {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(60_000));
    worker.lease("acme", 100.0);
    worker
}

#[test]
fn what_a_request_has_cost_is_a_debt_that_the_next_one_waits_for() {
    let mut worker = leased();
    assert_eq!(worker.of("acme"), Decision::Admit);
    let stream = worker.streams;
    assert!(worker.engine.remembers(stream));
    // Two of the burst of 100 are spent: 98 pay, 401 are owed, and one more is needed.
    worker.end_at(stream, 500);
    assert_eq!(worker.pause("acme"), Duration::from_millis(4020));
    worker
        .process
        .advance(Duration::from_millis(4020) - Duration::from_nanos(1));
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    worker.process.advance(Duration::from_nanos(1));
    assert_eq!(worker.of("acme"), Decision::Admit);
    assert_eq!(
        worker.engine.admission.streams_open(),
        2,
        "the first, which was held, and this"
    );
}

#[test]
fn a_refusal_after_the_end_knows_of_the_debt() {
    let mut worker = leased();
    assert_eq!(worker.of("acme"), Decision::Admit);
    let stream = worker.streams;
    assert_eq!(worker.admitted("acme", 200), 98);
    assert_eq!(worker.pause("acme"), Duration::from_millis(10));
    worker.end_at(stream, 101);
    assert_eq!(worker.pause("acme"), Duration::from_millis(1010));
}

#[test]
fn what_was_paid_counts_and_nothing_is_given_back() {
    let mut worker = leased();
    for cost in [Some(1), Some(0), None, None, None] {
        assert_eq!(worker.of("acme"), Decision::Admit);
        let stream = worker.streams;
        match cost {
            Some(cost) => worker.end_at(stream, cost),
            None => worker.end(stream),
        }
    }
    worker.tick(TICK);
    // Six are spent, and two have come in since.
    assert_eq!(worker.admitted("acme", 200), 96);
}

#[test]
fn a_debt_is_bounded_by_the_configuration() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(2000));
    worker.lease("acme", 100.0);
    assert_eq!(worker.of("acme"), Decision::Admit);
    let stream = worker.streams;
    worker.end_at(stream, 99_999_999_999_999);
    assert_eq!(worker.pause("acme"), Duration::from_millis(2010));
}

#[test]
fn refused_requests_want_what_they_would_have_cost() {
    let mut worker = leased();
    let mut wants = 0.0;
    // Ten requests a second for five seconds, and then 25, at 20 each. The burst and five seconds of
    // the lease are worth 30, the next five seconds 25.
    for (every, want_passed, want) in [(5, 27..=33, 180.0..=230.0), (2, 22..=28, 450.0..=575.0)] {
        let mut passed = 0;
        for tick in 0..250 {
            if tick % every == 0 {
                passed += usize::from(worker.of("acme") == Decision::Admit);
                let stream = worker.streams;
                worker.end_at(stream, 20);
            }
            worker.tick(TICK);
            wants = worker.wanted().unwrap_or(wants);
        }
        assert!(want_passed.contains(&passed), "{passed}");
        assert!(want.contains(&wants), "{wants}");
    }
}

#[test]
fn without_metadata_and_without_the_rule_nothing_is_charged() {
    let mut worker = leased();
    assert_eq!(worker.of("acme"), Decision::Admit);
    let stream = worker.streams;
    worker.end(stream);
    assert_eq!(worker.admitted("acme", 200), 98);

    let mut plain = Worker::new(&FakeProcess::new(), 1, &one_rule());
    plain.lease("acme", 100.0);
    assert_eq!(plain.of("acme"), Decision::Admit);
    let stream = plain.streams;
    assert!(!plain.engine.remembers(stream));
    plain.end_at(stream, 500);
    assert_eq!(plain.admitted("acme", 200), 98);
}
