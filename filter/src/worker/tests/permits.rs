//! Requests in flight.

use super::units::{Terms, terms};
use super::*;
use tollgate_core::lease::Unit;

pub(super) const FOUR: &[Terms] = &[terms(
    "tenant/",
    &[(Unit::Requests, 1e6), (Unit::Concurrency, 4.0)],
)];

#[test]
fn a_request_costs_what_it_costs_in_all_buckets_or_in_none() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "safe_capacity": 20},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 10}]}"#;
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config(json));
    let mut at = |cost: u64, y: &str| {
        proxy.streams += 1;
        proxy.host().set_headers(&[("x", "1"), ("y", y)]);
        let cost = Tokens::from_whole(cost);
        proxy.worker.admit_at(&proxy.rules, proxy.streams, cost)
    };
    assert_eq!(at(7, "1"), Decision::Admit);
    let short = denial(at(7, "1"));
    assert!(!short.never && short.retry_at.is_some());
    assert_eq!(at(0, "1"), Decision::Admit, "what costs nothing passes");
    assert_eq!(at(3, "1"), Decision::Admit, "a refusal cost nothing");
    let never = denial(at(11, "2"));
    assert!(never.never && never.retry_at.is_none(), "{never:?}");
    // 10 of 20 are left of a, all of the other b.
    assert_eq!(at(10, "2"), Decision::Admit);
    assert!(matches!(at(1, "3"), Decision::Deny(_)), "a is empty");
}

#[test]
fn a_pause_is_as_long_as_the_cost_needs() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.admitted("acme", 300);
    let cheap = denial(proxy.at("acme", 1)).retry_at.unwrap();
    let dear = denial(proxy.at("acme", 50)).retry_at.unwrap();
    let more = dear.saturating_since(cheap);
    assert_eq!(more, Duration::from_millis(490));
    proxy.host().process.now.set(dear.as_nanos());
    assert_eq!(proxy.at("acme", 50), Decision::Admit);
}

#[test]
fn no_more_are_in_flight_than_are_leased_and_each_end_lets_one_in() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.meet("acme", FOUR);
    let mut begun = proxy.begun("acme", 10);
    assert_eq!(begun.len(), 4);
    let refused = denial(proxy.of("acme"));
    assert_eq!((refused.unit, refused.retry_at), (Unit::Concurrency, None));
    for _ in 0..20 {
        let ended = begun.remove(0);
        proxy.end(ended);
        let next = proxy.begun("acme", 3);
        assert_eq!(next.len(), 1);
        begun.extend(next);
        proxy.pass(TICK, FOUR);
    }
    for context in begun {
        proxy.end(context);
    }
    assert_eq!(proxy.worker.engine.streams_open(), 0);
    assert_eq!(in_flight(&proxy), 0);
    proxy.pass(Duration::from_secs(1), FOUR);
    assert_eq!(process.metric("refused.tenant.concurrency"), 47);
}

#[test]
fn who_began_before_a_limit_came_back_gives_back_nothing_of_it() {
    const OPEN: &[Terms] = &[terms("tenant/", &[(Unit::Requests, 1e6)])];
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.meet("acme", FOUR);
    let before = proxy.begun("acme", 4);
    assert_eq!(before.len(), 4);
    // One goes on before, so that the worker hears of the change.
    for (all, fit) in [(OPEN, 10), (FOUR, 3)] {
        proxy.pass(Duration::from_millis(2000), all);
        proxy.go_on("acme", 1, all);
        proxy.pass(Duration::from_millis(2000), all);
        assert_eq!(proxy.begun("acme", 10).len(), fit);
    }
    for context in before {
        proxy.end(context);
    }
    proxy.pass(TICK, FOUR);
    assert_eq!(proxy.begun("acme", 10).len(), 0);
}

/// Permits of the one scope that all workers hold, by the shared table.
pub(super) fn in_flight(proxy: &Proxy) -> u32 {
    proxy.worker.engine.permits_held()
}

#[test]
fn workers_share_permits_and_those_of_a_dead_worker_come_back() {
    for workers in 2..=8_u64 {
        let process = Process::new();
        let config = one_rule("");
        let mut proxies: Vec<Proxy> = (1..=workers)
            .map(|id| Proxy::new(&process, id, &config))
            .collect();
        proxies[0].meet("acme", FOUR);
        let begun: usize = proxies
            .iter_mut()
            .map(|proxy| proxy.begun("acme", 3).len())
            .sum();
        assert_eq!(begun, 4, "{workers} workers");
        // The first one's VM is lost, with its streams; the others go on.
        let lost = proxies.remove(0);
        drop(lost);
        for _ in 0..300 {
            process.advance(TICK);
            for proxy in &mut proxies {
                proxy.worker.handle_tick();
                proxy.answer_by(FOUR);
            }
        }
        let more: usize = proxies
            .iter_mut()
            .map(|proxy| proxy.go_on("acme", 4, FOUR))
            .sum();
        assert_eq!(more, 3, "{workers} workers");
    }
}

#[test]
fn what_the_ledger_does_not_hear_of_an_end_it_hears_on_a_tick() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.meet("acme", FOUR);
    let begun = proxy.begun("acme", 4);
    proxy.host().shared_data_fails.set(true);
    for context in begun {
        proxy.end(context);
    }
    proxy.host().shared_data_fails.set(false);
    assert_eq!(in_flight(&proxy), 4);
    proxy.pass(Duration::from_millis(500), FOUR);
    assert_eq!(in_flight(&proxy), 0);
}

#[test]
fn what_is_refused_elsewhere_takes_no_permit() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "tenant", "key": {"header": "x"}},
        {"name": "route", "key": {"header": "y"}}]}"#;
    let all = &[
        terms(
            "tenant/",
            &[(Unit::Requests, 1e6), (Unit::Concurrency, 3.0)],
        ),
        terms("route/", &[(Unit::Requests, 1e6), (Unit::Concurrency, 1.0)]),
    ];
    let mut proxy = Proxy::new(&Process::new(), 1, &config(json));
    let both = |proxy: &mut Proxy, y| proxy.request(&[("x", "acme"), ("y", y)]);
    for _ in 0..3 {
        both(&mut proxy, "1");
        let context = proxy.streams;
        for _ in 0..5 {
            proxy.tick(Duration::from_millis(1));
            proxy.answer_by(all);
        }
        proxy.worker.forget(context);
        proxy.pass(Duration::from_millis(400), all);
    }
    assert_eq!(both(&mut proxy, "1"), Decision::Admit);
    for _ in 0..10 {
        let refused = both(&mut proxy, "1");
        assert!(matches!(
            refused,
            Decision::Deny(Refusal::Denied {
                rule: RuleId(1),
                ..
            })
        ));
    }
    assert_eq!(
        in_flight(&proxy),
        2,
        "one for each scope of the one request"
    );
}
