//! Requests that wait for the first answer.

use tollgate_core::message::{Refreshed, ScopeAnswer, UnusableAnswer};

use super::*;

#[test]
fn the_first_request_is_held_until_the_answer_and_then_goes_on() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    assert_eq!(worker.of("acme"), Decision::Hold);
    assert_eq!(worker.of("acme"), Decision::Hold);
    assert_eq!(worker.engine.tick_period(), Duration::from_millis(1));
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.engine.tick_period(), Duration::from_millis(5));

    let (token, call) = worker.process.take_call().unwrap();
    let client = call.refresh().client.id.as_str();
    assert!(client.starts_with("node/"), "{client}");
    assert_eq!(call.scopes(), ["tenant/acme".into()]);
    assert!(call.wants() > 0.0);
    worker.handle_answer(token, call.lend(100.0));
    assert_eq!(worker.resumed, [101, 102]);
    assert_eq!(worker.engine.tick_period(), TICK);
    assert_eq!(worker.of("acme"), Decision::Admit);
}

#[test]
fn scopes_that_turn_up_together_are_asked_for_in_one_call() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    for tenant in ["a", "b", "c"] {
        assert_eq!(worker.of(tenant), Decision::Hold);
    }
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.process.calls.borrow().len(), 1);
    let (_, call) = worker.process.take_call().unwrap();
    assert_eq!(call.refresh().scopes.len(), 3);
}

#[test]
fn without_an_answer_pending_requests_fall_to_the_safe_capacity() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    for _ in 0..15 {
        assert_eq!(worker.of("acme"), Decision::Hold);
    }
    worker.tick(Duration::from_millis(249));
    assert!(worker.resumed.is_empty());
    worker.tick(Duration::from_millis(1));
    // Ten are a second's worth of the default safe capacity.
    assert_eq!(worker.resumed.len(), 10);
    let reasons: Vec<_> = worker
        .denied
        .iter()
        .map(|denied| reason(denied.1))
        .collect();
    assert_eq!(reasons, [(0, Some(Unit::Requests)); 5]);
}

#[test]
fn a_call_that_fails_at_once_lets_pending_requests_go_at_once() {
    let process = FakeProcess::new();
    process.calls_fail.set(true);
    let mut worker = Worker::new(&process, 1, &one_rule());
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.resumed, [101]);
    worker.tick(TICK);
    assert!(worker.stats().refresh_errors.get() >= 1);
}

#[test]
fn a_failed_call_lets_pending_requests_go() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    let (token, _) = worker.process.take_call().unwrap();
    worker.fail_call(token);
    assert_eq!(worker.resumed, [101]);
}

#[test]
fn scopes_whose_first_leases_are_awaited_are_looked_at_in_turn() {
    let mut config = one_rule();
    config.rules[0].policy.first_lease_wait = Duration::from_secs(1);
    let process = FakeProcess::new();
    let mut workers = [1, 2].map(|id| Worker::new(&process, id, &config));
    // Until the sync leader has looked at all slots.
    for _ in 0..30 {
        workers[0].tick(TICK);
    }
    for (worker, most) in workers.iter_mut().zip([8, 72]) {
        for n in 0..500 {
            assert_eq!(worker.of(&format!("t{n}")), Decision::Hold);
        }
        worker.tick(TICK);
        let before = process.reads.get();
        worker.tick(Duration::ZERO);
        let reads = process.reads.get() - before;
        assert!(reads <= most, "{reads}");
    }
    let [first, second] = &mut workers;
    first.answer(1000.0);
    for _ in 0..30 {
        first.tick(Duration::from_millis(1));
        second.tick(Duration::from_millis(1));
    }
    assert_eq!((first.resumed.len(), second.resumed.len()), (500, 500));
}

/// The next call, which comes within `limit`.
fn call_within(worker: &mut Worker, limit: Duration) -> (u32, OpenCall) {
    for _ in 0..=limit.as_millis() / TICK.as_millis() {
        worker.tick(TICK);
        if let Some(call) = worker.process.take_call() {
            return call;
        }
    }
    panic!("no call within {limit:?}");
}

/// A shard without a master is an error of its scopes, or of the whole call if there are no others.
#[test]
fn a_scope_without_a_master_keeps_its_lease_and_is_asked_for_again_soon() {
    for whole_call in [false, true] {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        worker.lease("acme", 100.0);
        for _ in 0..3 {
            worker.admitted("acme", 20);
            let (token, call) = call_within(&mut worker, Duration::from_secs(2));
            if whole_call {
                worker.fail_call(token)
            } else {
                worker.handle_answer(token, call.refuse(14))
            }
            assert_eq!(
                worker.of("acme"),
                Decision::Admit,
                "at the rate of its lease"
            );
        }
        // It doubles with each failure from a tenth of a second; a lease lasts ten.
        let (token, call) = call_within(&mut worker, Duration::from_millis(500));
        worker.handle_answer(token, call.lend(50.0));
        assert_eq!(worker.of("acme"), Decision::Admit);
        assert!(worker.stats().refresh_errors.get() >= 3);
    }
}

#[test]
fn answers_that_make_no_sense_count_as_failures() {
    let answers: [fn(&OpenCall) -> Refreshed; 3] = [
        |_| Refreshed { scopes: Vec::new() },
        |_| Refreshed {
            scopes: vec![Err(UnusableAnswer("made up".to_owned()))],
        },
        |call| {
            call.answer(|asked| ScopeAnswer {
                scope: "tenant/other".into(),
                ..lent(asked, 100.0)
            })
        },
    ];
    for answer in answers {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
        assert_eq!(worker.of("acme"), Decision::Hold);
        worker.tick(Duration::from_millis(1));
        let (token, call) = worker.process.take_call().unwrap();
        worker.handle_answer(token, answer(&call));
        assert_eq!(worker.resumed, [101], "{:?}", answer(&call));
        assert_eq!(worker.stats().refresh_errors.get(), 1);
        // Unknown tokens belong to no call.
        worker.handle_answer(token, answer(&call));
        worker.fail_call(77);
    }
}

/// Creates a worker that keeps at most `max_pending` requests waiting for their first lease.
fn worker_with_max_pending(max_pending: usize) -> Worker {
    let config = EngineConfig {
        max_pending,
        ..one_rule()
    };
    Worker::new(&FakeProcess::new(), 1, &config)
}

#[test]
fn more_than_max_pending_are_decided_at_the_safe_capacity_at_once() {
    let mut worker = worker_with_max_pending(3);
    let decisions: Vec<Decision> = (0..20).map(|_| worker.of("acme")).collect();
    assert_eq!(
        decisions.iter().filter(|v| **v == Decision::Hold).count(),
        3
    );
    let passed = decisions.iter().filter(|v| **v == Decision::Admit).count();
    assert!((7..=11).contains(&passed), "{passed}");
    let mut none = worker_with_max_pending(0);
    assert_eq!(none.of("acme"), Decision::Admit);
    none.tick(Duration::from_millis(1));
    assert_eq!(none.process.calls.borrow().len(), 1);
}

#[test]
fn a_held_stream_that_ends_is_forgotten() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.of("acme");
    worker.of("acme");
    worker.end(101);
    // The host may know of an end before the filter does.
    worker.of("acme");
    worker.gone.push(103);
    worker.tick(Duration::from_millis(1));
    worker.answer(100.0);
    assert_eq!(worker.resumed, [102]);
}

#[test]
fn many_streams_are_released_in_order_and_in_small_parts() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    for _ in 0..100 {
        assert_eq!(worker.of("acme"), Decision::Hold);
    }
    worker.tick(Duration::from_millis(1));
    worker.answer(1_000_000.0);
    assert_eq!(worker.resumed.len(), 32);
    assert_eq!(worker.engine.tick_period(), Duration::from_millis(1));
    for _ in 0..3 {
        worker.tick(Duration::from_millis(1));
    }
    assert_eq!(worker.resumed, (101..=200).collect::<Vec<_>>());
    assert_eq!(worker.engine.tick_period(), TICK);
}

#[test]
fn requests_beyond_max_pending_do_not_end_the_wait_of_the_others() {
    let mut worker = worker_with_max_pending(20);
    for _ in 0..50 {
        worker.of("acme");
    }
    worker.tick(Duration::from_millis(1));
    worker.tick(Duration::from_millis(5));
    assert!(worker.denied.is_empty());
    assert!(worker.resumed.is_empty());
    worker.answer(1000.0);
    assert_eq!(worker.resumed, (101..=120).collect::<Vec<_>>());
}

#[test]
fn who_would_rather_not_wait_is_decided_at_once() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    let passed = (0..15).filter(|_| worker.hasty("acme") == Decision::Admit);
    // A second's worth of the default safe capacity.
    assert_eq!(passed.count(), 10);
    assert!(matches!(worker.hasty("acme"), Decision::Deny(_)));
    assert_eq!(worker.of("acme"), Decision::Hold);
}

#[test]
fn a_request_is_not_held_beyond_its_clients_max_wait() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    assert_eq!(worker.request_within(&["acme"], 20), Decision::Hold);
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(19));
    assert!(worker.resumed.is_empty());
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.resumed, [101]);
    let waited = worker.waited[&101];
    assert_eq!((waited.time, waited.queued), (TICK, false));
}

/// A worker that has leases for the tenant acme, whose rule shapes, and for the route "old".
fn two_rules(route: RuleConfig) -> Worker {
    let config = rules([shaped(rule("tenant")), route]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.request(&["acme", "old"]);
    worker.tick(Duration::from_millis(1));
    worker.answer(1000.0);
    assert_eq!(worker.resumed.pop(), Some(worker.streams));
    worker
}

/// The cold start of an unseen key delays no other, even if both have other scopes in common.
#[test]
fn a_request_held_for_one_scope_keeps_no_other_waiting_at_another() {
    let mut worker = two_rules(rule("route"));
    let new = ["acme", "new"];
    let old = ["acme", "old"];
    for _ in 0..20 {
        assert_eq!(worker.request(&new), Decision::Hold);
        assert_eq!(worker.request(&old), Decision::Admit);
        worker.tick(Duration::from_millis(1));
    }
    worker.answer(1000.0);
    assert_eq!(worker.resumed.len(), 20);
}

/// Where the first answer is awaited that they are held for, all go in order; and nowhere else, also while
/// there are more of them than go at once.
#[test]
fn pending_requests_go_first_where_their_answer_was_awaited() {
    let mut worker = two_rules(shaped(rule("route")));
    let new = ["acme", "new"];
    for _ in 0..40 {
        assert_eq!(worker.request(&new), Decision::Hold);
    }
    worker.tick(Duration::from_millis(1));
    worker.answer(1000.0);
    assert_eq!(worker.resumed.len(), 32);
    assert_eq!(worker.request(&["acme", "old"]), Decision::Admit);
    assert_eq!(worker.request(&new), Decision::Hold);
    // A request that costs nothing has nothing to wait for.
    assert_eq!(worker.decide(&new, Tokens::ZERO, None), Decision::Admit);
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.resumed.len(), 41);
    assert_eq!(worker.request(&new), Decision::Admit);
}

/// A request that is held behind others has not been decided on, and does not say that it needs the
/// group; but its scope is known to lead there.
#[test]
fn no_request_overtakes_those_that_are_held_for_the_first_lease_of_a_group() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 1000.0)]),
    ];
    let config = rules([shaped(rule("tenant"))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    worker.answer_by(&all);
    for _ in 0..40 {
        assert_eq!(worker.of("acme"), Decision::Hold);
    }
    worker.tick(Duration::from_millis(1));
    worker.answer_by(&all);
    assert_eq!(worker.resumed.len(), 32);
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.resumed, (101..=142).collect::<Vec<_>>());
}

/// The second request awaits the group's lease as well once the first has been led there, and longer.
#[test]
fn no_request_overtakes_one_that_has_come_to_await_the_first_lease_of_a_group() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 1000.0)]),
    ];
    let config = rules([shaped(rule("tenant"))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.process.advance(Duration::from_millis(1));
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::ZERO);
    worker.answer_by(&all);
    // Nothing answers for the group, and the first request's wait ends before the second's.
    worker.tick(Duration::from_millis(249));
    assert_eq!(worker.resumed, [101]);
    worker.process.advance(Duration::from_millis(1));
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::ZERO);
    assert_eq!(worker.resumed, [101, 102, 103]);
}

/// Requests that the rule shadows are held for the first answer as well, but not behind others.
#[test]
fn no_request_is_held_behind_another_for_a_rule_in_shadow_mode() {
    let mut worker = two_rules(RuleConfig {
        enforced: 50,
        ..shaped(rule("route"))
    });
    let new = ["acme", "new"];
    for _ in 0..40 {
        assert_eq!(worker.request(&new), Decision::Hold);
    }
    worker.tick(Duration::from_millis(1));
    worker.answer(1000.0);
    assert_eq!(worker.resumed.len(), 32);
    let shadowed = (0..100).filter(|_| worker.request(&new) == Decision::Admit);
    assert!((30..70).contains(&shadowed.count()));
}

#[test]
fn switched_off_pending_requests_go_on_at_once() {
    let on = rules([pessimistic(rule("tenant"))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &on);
    assert_eq!(worker.of("acme"), Decision::Hold);
    let off = EngineConfig {
        enabled: false,
        ..on
    };
    worker.configure(&off);
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.resumed, [101]);
    assert_eq!(worker.engine.admission.streams_open(), 0);
}
