//! Requests that wait for the first answer.

use super::*;

#[test]
fn the_first_request_is_held_until_the_answer_and_then_goes_on() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    assert_eq!(proxy.of("acme"), Decision::Hold);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(1));
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(5));

    let (token, call) = proxy.host().process.take_call().unwrap();
    let asked = call.refresh();
    assert!(asked.client_id.starts_with("node/"), "{}", asked.client_id);
    assert_eq!(asked.scopes.len(), 1);
    assert_eq!(asked.scopes[0].scope, "tenant/acme");
    assert!(asked.scopes[0].units[0].wants > 0.0);
    proxy.worker.handle_answer(token, &call.lend(100.0));
    assert_eq!(*proxy.host().resumed.borrow(), [101, 102]);
    assert_eq!(proxy.worker.tick_period(), TICK);
    assert_eq!(proxy.of("acme"), Decision::Admit);
}

#[test]
fn scopes_that_turn_up_together_are_asked_for_in_one_call() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for tenant in ["a", "b", "c"] {
        assert_eq!(proxy.of(tenant), Decision::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.host().process.calls.borrow().len(), 1);
    let (_, call) = proxy.host().process.take_call().unwrap();
    assert_eq!(call.refresh().scopes.len(), 3);
}

#[test]
fn without_an_answer_the_held_fall_to_the_safe_capacity() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for _ in 0..15 {
        assert_eq!(proxy.of("acme"), Decision::Hold);
    }
    proxy.tick(Duration::from_millis(49));
    assert!(proxy.host().resumed.borrow().is_empty());
    proxy.tick(Duration::from_millis(1));
    // Ten are a second's worth of the default safe capacity.
    assert_eq!(proxy.host().resumed.borrow().len(), 10);
    let replies = proxy.host().replies.borrow();
    assert_eq!(replies.len(), 5);
    assert!(replies.iter().all(|(_, status, headers)| {
        *status == 429 && headers["tollgate-reason"] == "tenant/requests"
    }));
}

#[test]
fn a_call_that_fails_at_once_lets_the_held_go_at_once() {
    let process = Process::new();
    process.calls_fail.set(true);
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(1));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    proxy.tick(TICK);
    assert!(process.metric("refresh_errors") >= 1);
}

#[test]
fn a_failure_status_lets_the_held_go() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(1));
    let (token, _) = proxy.host().process.take_call().unwrap();
    proxy.worker.handle_failure(token, 14);
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
}

/// The next call, which comes within `limit`.
fn call_within(proxy: &mut Proxy, limit: Duration) -> (u32, crate::fake::Call) {
    for _ in 0..=limit.as_millis() / TICK.as_millis() {
        proxy.tick(TICK);
        if let Some(call) = proxy.host().process.take_call() {
            return call;
        }
    }
    panic!("no call within {limit:?}");
}

/// A shard without a master is an error of its scopes, or of the whole call if there are no others.
#[test]
fn a_scope_without_a_master_keeps_its_lease_and_is_asked_for_again_soon() {
    for whole_call in [false, true] {
        let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
        proxy.lease("acme", 100.0);
        for _ in 0..3 {
            proxy.admitted("acme", 20);
            let (token, call) = call_within(&mut proxy, Duration::from_secs(2));
            match whole_call {
                true => proxy.worker.handle_failure(token, 14),
                false => proxy.worker.handle_answer(token, &call.refuse(14)),
            }
            assert_eq!(
                proxy.of("acme"),
                Decision::Admit,
                "at the rate of its lease"
            );
        }
        // It doubles with each failure from a tenth of a second; a lease lasts ten.
        let (token, call) = call_within(&mut proxy, Duration::from_millis(500));
        proxy.worker.handle_answer(token, &call.lend(50.0));
        assert_eq!(proxy.of("acme"), Decision::Admit);
        assert!(proxy.host().process.metric("refresh_errors") >= 3);
    }
}

#[test]
fn answers_that_make_no_sense_count_as_failures() {
    for answer in [&b"\xff\xff\xff"[..], b"", b"\x08\x01"] {
        let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
        assert_eq!(proxy.of("acme"), Decision::Hold);
        proxy.tick(Duration::from_millis(1));
        let (token, _) = proxy.host().process.take_call().unwrap();
        proxy.worker.handle_answer(token, answer);
        assert_eq!(*proxy.host().resumed.borrow(), [101], "{answer:?}");
        // Unknown tokens belong to no call.
        proxy.worker.handle_answer(token, answer);
        proxy.worker.handle_failure(77, 14);
    }
}

#[test]
fn more_than_max_held_are_decided_at_the_safe_capacity_at_once() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(r#", "max_pending": 3"#));
    let decisions: Vec<Decision> = (0..20).map(|_| proxy.of("acme")).collect();
    assert_eq!(
        decisions.iter().filter(|v| **v == Decision::Hold).count(),
        3
    );
    let passed = decisions.iter().filter(|v| **v == Decision::Admit).count();
    assert!((7..=11).contains(&passed), "{passed}");
    let mut none = Proxy::new(&Process::new(), 1, &one_rule(r#", "max_pending": 0"#));
    assert_eq!(none.of("acme"), Decision::Admit);
    none.tick(Duration::from_millis(1));
    assert_eq!(none.host().process.calls.borrow().len(), 1);
}

#[test]
fn a_held_stream_that_ends_is_forgotten() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.of("acme");
    proxy.of("acme");
    proxy.worker.forget(101);
    // The host may know of an end before the filter does.
    proxy.of("acme");
    proxy.host().gone.borrow_mut().push(103);
    proxy.tick(Duration::from_millis(1));
    proxy.answer(100.0);
    assert_eq!(*proxy.host().resumed.borrow(), [102]);
}

#[test]
fn many_streams_are_released_in_order_and_in_small_parts() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for _ in 0..100 {
        assert_eq!(proxy.of("acme"), Decision::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    proxy.answer(1_000_000.0);
    assert_eq!(proxy.host().resumed.borrow().len(), 32);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(1));
    for _ in 0..3 {
        proxy.tick(Duration::from_millis(1));
    }
    assert_eq!(
        *proxy.host().resumed.borrow(),
        (101..=200).collect::<Vec<_>>()
    );
    assert_eq!(proxy.worker.tick_period(), TICK);
}

#[test]
fn held_grpc_requests_are_refused_in_grpc() {
    let config = one_rule(r#", "no_lease": "pessimistic""#);
    let mut proxy = Proxy::new(&Process::new(), 1, &config);
    let headers = [("x", "acme"), ("content-type", "application/grpc+proto")];
    assert_eq!(proxy.request(&headers), Decision::Hold);
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(60));
    let statuses: Vec<u32> = proxy
        .host()
        .replies
        .borrow()
        .iter()
        .map(|reply| reply.1)
        .collect();
    assert_eq!(statuses, [8, 429]);
}

#[test]
fn those_beyond_max_held_do_not_end_the_wait_of_the_held() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(r#", "max_pending": 20"#));
    for _ in 0..50 {
        proxy.of("acme");
    }
    proxy.tick(Duration::from_millis(1));
    proxy.tick(Duration::from_millis(5));
    assert!(proxy.host().replies.borrow().is_empty());
    assert!(proxy.host().resumed.borrow().is_empty());
    proxy.answer(1000.0);
    assert_eq!(
        *proxy.host().resumed.borrow(),
        (101..=120).collect::<Vec<_>>()
    );
}

#[test]
fn who_would_rather_not_wait_is_decided_at_once() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    let hasty = [("x", "acme"), ("tollgate-max-wait-ms", "0")];
    let passed = (0..15).filter(|_| proxy.request(&hasty) == Decision::Admit);
    // A second's worth of the default safe capacity.
    assert_eq!(passed.count(), 10);
    assert!(matches!(proxy.request(&hasty), Decision::Deny(_)));
    assert_eq!(proxy.of("acme"), Decision::Hold);
}

#[test]
fn a_request_is_not_held_beyond_its_clients_max_wait() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    assert_eq!(
        proxy.request(&[("x", "acme"), ("grpc-timeout", "25m")]),
        Decision::Hold
    );
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(19));
    assert!(proxy.host().resumed.borrow().is_empty());
    proxy.tick(Duration::from_millis(1));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    let notes = proxy.host().notes.borrow();
    assert_eq!(notes[&(101, "tollgate.waited_ms".to_owned())], "20");
}

/// A worker that has leases for the tenant acme, whose rule shapes, and for the route "old".
fn two_rules(tenant: &str, route: &str) -> Proxy {
    let json = format!(
        r#"{{"coordinator": "c", "scopes": [
            {{"name": "tenant", "key": {{"header": "x"}}, "on_limit": "shape" {tenant}}},
            {{"name": "route", "key": {{"header": "y"}} {route}}}]}}"#
    );
    let mut proxy = Proxy::new(&Process::new(), 1, &config(&json));
    proxy.request(&[("x", "acme"), ("y", "old")]);
    proxy.tick(Duration::from_millis(1));
    proxy.answer(1000.0);
    assert_eq!(proxy.host().resumed.borrow_mut().pop(), Some(proxy.streams));
    proxy
}

/// The cold start of an unseen key delays no other, even if both have other scopes in common.
#[test]
fn who_is_held_for_one_scope_keeps_nobody_waiting_at_another() {
    let mut proxy = two_rules("", "");
    let new = [("x", "acme"), ("y", "new")];
    let old = [("x", "acme"), ("y", "old")];
    for _ in 0..20 {
        assert_eq!(proxy.request(&new), Decision::Hold);
        assert_eq!(proxy.request(&old), Decision::Admit);
        proxy.tick(Duration::from_millis(1));
    }
    proxy.answer(1000.0);
    assert_eq!(proxy.host().resumed.borrow().len(), 20);
}

/// Where the first answer is awaited that they are held for, all go in order; and nowhere else, also while
/// there are more of them than go at once.
#[test]
fn those_who_are_held_go_first_where_their_answer_was_awaited() {
    let mut proxy = two_rules("", r#", "on_limit": "shape""#);
    let new = [("x", "acme"), ("y", "new")];
    for _ in 0..40 {
        assert_eq!(proxy.request(&new), Decision::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    proxy.answer(1000.0);
    assert_eq!(proxy.host().resumed.borrow().len(), 32);
    assert_eq!(
        proxy.request(&[("x", "acme"), ("y", "old")]),
        Decision::Admit
    );
    assert_eq!(proxy.request(&new), Decision::Hold);
    // A request that costs nothing has nothing to wait for.
    proxy.host().set_headers(&new);
    let nothing = proxy.worker.admit_at(&proxy.rules, 7, Tokens::ZERO);
    assert_eq!(nothing, Decision::Admit);
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.host().resumed.borrow().len(), 41);
    assert_eq!(proxy.request(&new), Decision::Admit);
}

/// Requests that the rule shadows are held for the first answer as well, but not behind others.
#[test]
fn nobody_is_held_behind_another_for_a_rule_that_only_pretends() {
    let half = r#", "on_limit": "shape", "enforced_percent": 50"#;
    let mut proxy = two_rules("", half);
    let new = [("x", "acme"), ("y", "new")];
    for _ in 0..40 {
        assert_eq!(proxy.request(&new), Decision::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    proxy.answer(1000.0);
    assert_eq!(proxy.host().resumed.borrow().len(), 32);
    let shadowed = (0..100).filter(|_| proxy.request(&new) == Decision::Admit);
    assert!((30..70).contains(&shadowed.count()));
}

#[test]
fn switched_off_the_held_go_on_at_once() {
    let on = r#", "no_lease": "pessimistic""#;
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(on));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    let off = one_rule(r#", "no_lease": "pessimistic", "enabled": false"#);
    proxy.worker.configure(&off).unwrap();
    proxy.tick(Duration::from_millis(1));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    assert_eq!(proxy.worker.engine.streams_open(), 0);
}
