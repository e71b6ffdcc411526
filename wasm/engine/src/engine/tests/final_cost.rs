//! Requests of which only their end says what they have cost.

use std::collections::VecDeque;

use super::*;
use crate::config::Estimate;

/// A rule whose requests say at their end what they have cost, and the longest wait for a debt.
fn settings(max_debt_ms: u64) -> EngineConfig {
    rules([RuleConfig {
        policy: Policy {
            max_debt: Duration::from_millis(max_debt_ms),
            ..Policy::default()
        },
        ..estimating("tenant", Estimate::Request)
    }])
}

/// A rule whose requests reserve `estimate`.
fn estimating(name: &str, estimate: Estimate) -> RuleConfig {
    RuleConfig {
        final_cost: Some(estimate),
        ..rule(name)
    }
}

fn tokens(whole: u64) -> Estimate {
    Estimate::Tokens(Tokens::from_whole(whole))
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
    leased_by(settings(60_000))
}

/// The same by other settings, and all of its burst: the first request has cost nothing.
fn leased_by(config: EngineConfig) -> Worker {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
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
fn what_was_paid_counts_and_only_what_costs_less_comes_back() {
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
    // Five are spent, and two have come in since.
    assert_eq!(worker.admitted("acme", 200), 97);
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

#[test]
fn what_requests_reserve_bounds_those_that_go_on_at_once_and_what_is_left_comes_back() {
    let mut worker = leased_by(rules([estimating("tenant", tokens(20))]));
    worker.end_at(worker.streams, 0);
    let begun = worker.begun("acme", 50);
    assert_eq!(begun.len(), 5);
    for stream in &begun {
        worker.end_at(*stream, 8);
    }
    assert_eq!(worker.begun("acme", 50).len(), 3, "60 have come back");
    let stats = worker.stats();
    let counted = [
        stats.tokens_reserved,
        stats.tokens_refunded,
        stats.tokens_charged,
    ];
    assert_eq!(counted.map(|counter| counter.get()), [180, 80, 0]);
}

#[test]
fn who_aborts_has_cost_the_estimate() {
    let mut worker = leased_by(rules([estimating("tenant", tokens(20))]));
    worker.end(worker.streams);
    for stream in worker.begun("acme", 50) {
        worker.end(stream);
    }
    assert_eq!(worker.begun("acme", 50).len(), 0);
}

#[test]
fn an_estimate_beyond_what_a_bucket_holds_takes_all_of_it_and_the_rest_is_owed() {
    let mut worker = leased_by(rules([RuleConfig {
        policy: Policy {
            max_debt: Duration::from_secs(60),
            ..Policy::default()
        },
        ..estimating("tenant", tokens(5000))
    }]));
    worker.end_at(worker.streams, 0);
    assert_eq!(worker.of("acme"), Decision::Admit);
    let stream = worker.streams;
    let Decision::Deny(refusal) = worker.of("acme") else {
        panic!("all of it is taken")
    };
    assert!(matches!(refusal, Refusal::Denied { denial, .. } if !denial.never));
    worker.end_at(stream, 300);
    // The burst has paid 100, 200 are owed, and all of the burst is needed.
    assert_eq!(worker.pause("acme"), Duration::from_secs(3));
}

#[test]
fn what_a_refusal_without_effect_did_not_take_does_not_come_back() {
    let shadow = RuleConfig {
        enforced: 0,
        ..estimating("tenant", tokens(20))
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &rules([shadow]));
    // Nobody waits in shadow mode; the safe capacity is 10.
    assert_eq!(worker.of("acme"), Decision::Admit);
    worker.tick(Duration::from_millis(1));
    worker.answer(100.0);
    worker.end_at(worker.streams, 0);
    let begun = worker.begun("acme", 50);
    let refused = worker.shadowed("tenant").requests.get();
    for stream in &begun {
        worker.end_at(*stream, 0);
    }
    let again = worker.begun("acme", 50);
    assert_eq!((begun.len(), again.len()), (50, 50));
    let refused_again = worker.shadowed("tenant").requests.get() - refused;
    assert_eq!(refused_again, 45, "five reserve the burst, as before");
}

#[test]
fn a_rule_that_counts_requests_takes_one_beside_an_estimate() {
    let mut worker = leased_by(rules([estimating("tokens", tokens(20)), rule("requests")]));
    worker.end_at(worker.streams, 0);
    assert_eq!(worker.request(&["acme", "acme"]), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    worker.answer(100.0);
    let mut begun = 1;
    while worker.request(&["acme", "acme"]) == Decision::Admit {
        begun += 1;
    }
    assert_eq!(begun, 5);
    assert_eq!(worker.refused("tokens").requests.get(), 1);
    assert_eq!(worker.refused("requests").requests.get(), 0);
}

#[test]
fn the_usual_cost_is_reserved_once_it_is_known() {
    let mut worker = leased_by(rules([estimating("tenant", Estimate::Usual)]));
    // One that costs nothing is not usual.
    for cost in [40, 0] {
        assert_eq!(worker.of("acme"), Decision::Admit);
        worker.end_at(worker.streams, cost);
    }
    assert_eq!(worker.begun("acme", 50).len(), 1, "59 are left");
}

#[test]
fn wants_follow_what_requests_have_cost() {
    // The second is more than the bucket holds.
    for estimate in [50, 5000] {
        let mut worker = leased_by(rules([estimating("tenant", tokens(estimate))]));
        worker.end_at(worker.streams, 5);
        let mut wants = 0.0;
        // Ten a second at 5 each.
        for tick in 0..400 {
            if tick % 5 == 0 && worker.of("acme") == Decision::Admit {
                worker.end_at(worker.streams, 5);
            }
            worker.tick(TICK);
            wants = worker.wanted().unwrap_or(wants);
        }
        assert!((40.0..=70.0).contains(&wants), "{wants} with {estimate}");
    }
}

#[test]
fn refused_requests_want_no_more_than_they_would_usually_cost() {
    let mut worker = leased_by(rules([estimating("tenant", tokens(50))]));
    worker.end_at(worker.streams, 5);
    let mut open = VecDeque::new();
    let mut wants = 0.0;
    // 25 a second at 5 each, which go on for a second; two pass at once.
    for tick in 0..500 {
        if tick % 2 == 0 && worker.of("acme") == Decision::Admit {
            open.push_back((tick, worker.streams));
        }
        while open.front().is_some_and(|(begun, _)| tick - begun >= 50) {
            let (_, stream) = open.pop_front().unwrap();
            worker.end_at(stream, 5);
        }
        worker.tick(TICK);
        wants = worker.wanted().unwrap_or(wants);
    }
    assert!((90.0..=180.0).contains(&wants), "{wants}");
}

#[test]
fn what_costs_nothing_reserves_nothing() {
    let mut worker = leased_by(rules([estimating("tenant", tokens(60))]));
    worker.end_at(worker.streams, 0);
    for _ in 0..10 {
        assert_eq!(worker.at("acme", 0), Decision::Admit);
    }
}
