//! Requests in flight.

use super::*;

pub(super) const FOUR: &[Terms] = &[terms(
    "tenant/",
    &[(Unit::Requests, 1e6), (Unit::Concurrency, 4.0)],
)];

#[test]
fn a_request_costs_what_it_costs_in_all_buckets_or_in_none() {
    let config = rules([safe_rule("a", 20), safe_rule("b", 10)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let mut at = |cost: u64, y: &str| worker.decide(&["1", y], Tokens::from_whole(cost), None);
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
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    worker.admitted("acme", 300);
    let cheap = denial(worker.at("acme", 1)).retry_at.unwrap();
    let dear = denial(worker.at("acme", 50));
    assert_eq!(dear.need, Tokens::from_whole(50));
    let dear = dear.retry_at.unwrap();
    let more = dear.saturating_since(cheap);
    assert_eq!(more, Duration::from_millis(490));
    worker.process.now.set(dear.as_nanos());
    assert_eq!(worker.at("acme", 50), Decision::Admit);
}

#[test]
fn no_more_are_in_flight_than_are_leased_and_each_end_lets_one_in() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.meet("acme", FOUR);
    let mut begun = worker.begun("acme", 10);
    assert_eq!(begun.len(), 4);
    let refused = denial(worker.of("acme"));
    assert_eq!((refused.unit, refused.retry_at), (Unit::Concurrency, None));
    assert_eq!((refused.limit, refused.without_lease), (4_000_000, false));
    for _ in 0..20 {
        let ended = begun.remove(0);
        worker.end(ended);
        let next = worker.begun("acme", 3);
        assert_eq!(next.len(), 1);
        begun.extend(next);
        worker.pass(TICK, FOUR);
    }
    for stream in begun {
        worker.end(stream);
    }
    assert_eq!(worker.engine.admission.streams_open(), 0);
    assert_eq!(in_flight(&worker), 0);
    worker.pass(Duration::from_secs(1), FOUR);
    assert_eq!(worker.refused("tenant").concurrency.get(), 47);
}

#[test]
fn who_began_before_a_limit_came_back_gives_back_nothing_of_it() {
    const OPEN: &[Terms] = &[terms("tenant/", &[(Unit::Requests, 1e6)])];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    let before = worker.begun("acme", 4);
    assert_eq!(before.len(), 4);
    // One goes on before, so that the worker hears of the change.
    for (all, fit) in [(OPEN, 10), (FOUR, 3)] {
        worker.pass(Duration::from_millis(2000), all);
        worker.go_on("acme", 1, all);
        worker.pass(Duration::from_millis(2000), all);
        assert_eq!(worker.begun("acme", 10).len(), fit);
    }
    for stream in before {
        worker.end(stream);
    }
    worker.pass(TICK, FOUR);
    assert_eq!(worker.begun("acme", 10).len(), 0);
}

/// Permits of the one scope that all workers hold, by the shared table.
pub(super) fn in_flight(worker: &Worker) -> u32 {
    let (host, slots) = (worker.host(), worker.engine.process.table.slots().unwrap());
    let held = |slot| {
        let (_, scope_state) = slots.look(host, slot).unwrap()?;
        Some(scope_state.concurrency?.held())
    };
    (0..slots.slots_in_all()).filter_map(held).sum()
}

#[test]
fn workers_share_permits_and_those_of_a_dead_worker_come_back() {
    for count in 2..=8_u64 {
        let process = FakeProcess::new();
        let config = one_rule();
        let mut workers: Vec<Worker> = (1..=count)
            .map(|id| Worker::new(&process, id, &config))
            .collect();
        workers[0].meet("acme", FOUR);
        let begun: usize = workers
            .iter_mut()
            .map(|worker| worker.begun("acme", 3).len())
            .sum();
        assert_eq!(begun, 4, "{count} workers");
        // The first one's VM is lost, with its streams; the others go on.
        let lost = workers.remove(0);
        drop(lost);
        for _ in 0..300 {
            process.advance(TICK);
            for worker in &mut workers {
                worker.tick(Duration::ZERO);
                worker.answer_by(FOUR);
            }
        }
        let more: usize = workers
            .iter_mut()
            .map(|worker| worker.go_on("acme", 4, FOUR))
            .sum();
        assert_eq!(more, 3, "{count} workers");
    }
}

/// Lends four permits for a minute, and asks to come back after half of that.
fn lend_for_long(worker: &mut Worker) {
    while let Some((token, call)) = worker.process.take_call() {
        let mut answer = call.lend_by(FOUR);
        for scope in answer.scopes.iter_mut().flatten() {
            for unit in scope.outcome.iter_mut().flatten() {
                unit.answer.refresh_interval = Duration::from_secs(30);
                if let Some(lease) = &mut unit.answer.lease {
                    lease.duration = Duration::from_secs(60);
                }
            }
        }
        worker.handle_answer(token, answer);
    }
}

#[test]
fn permits_of_a_lost_worker_come_back_without_a_refresh() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    let attempts = |first: &mut Worker, millis: u64| {
        let mut passed = 0;
        for _ in 0..millis / 20 {
            passed += first.admitted("acme", 1);
            first.tick(TICK);
            lend_for_long(first);
        }
        passed
    };
    first.of("acme");
    first.tick(Duration::from_millis(1));
    lend_for_long(&mut first);
    first.end(first.streams);
    attempts(&mut first, 400);
    for stream in 101..=first.streams {
        first.end(stream);
    }
    assert_eq!(second.admitted("acme", 9), 4);
    // Its streams are lost with it, and others know it until three seconds have passed.
    drop(second);
    assert_eq!(attempts(&mut first, 2900), 0);
    assert!(attempts(&mut first, 400) > 0);
}

#[test]
fn permits_of_a_lost_worker_are_not_counted_any_more_even_if_none_misses_them() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    let pass = |first: &mut Worker, millis: u64| {
        for _ in 0..millis / 20 {
            first.tick(TICK);
            lend_for_long(first);
        }
    };
    first.meet("acme", FOUR);
    assert_eq!(first.admitted("acme", 1), 1);
    pass(&mut first, 2000);
    assert_eq!(second.admitted("acme", 2), 2);
    drop(second);
    pass(&mut first, 3400);
    assert_eq!(in_flight(&first), 1);
}

/// Its heartbeat says that it lives, when it has not reported its permits for long.
#[test]
fn permits_of_a_slow_worker_that_lives_stay_its_own() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    first.meet("acme", FOUR);
    assert_eq!(first.admitted("acme", 1), 1);
    assert_eq!(second.admitted("acme", 2), 2);
    for tick in 0..500 {
        first.pass(TICK, FOUR);
        if tick % 50 == 0 {
            second.tick(Duration::ZERO);
        }
        assert_eq!(in_flight(&first), 3, "tick {tick}");
    }
}

#[test]
fn a_flood_of_requests_without_permits_makes_no_work_for_the_sync_leader() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    assert_eq!(worker.admitted("acme", 4), 4);
    for _ in 0..50 {
        worker.pass(TICK, FOUR);
        assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    }
    worker.process.advance(Duration::from_millis(10));
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    assert!(worker.engine.process.table.take_dirty().is_empty());
    // Nor is a heartbeat written before the next tick, however late that is.
    let heartbeats = worker.process.get("tollgate.c.workers");
    assert!(heartbeats.is_some());
    worker.process.advance(Duration::from_millis(1500));
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    assert_eq!(worker.process.get("tollgate.c.workers"), heartbeats);
}

#[test]
fn requests_that_wait_for_a_permit_are_not_wanted_again_at_each_look() {
    let config = rules([shaped(rule("tenant"))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.meet("acme", FOUR);
    assert_eq!(worker.admitted("acme", 4), 4);
    for _ in 0..3 {
        assert_eq!(worker.of("acme"), Decision::Hold);
    }
    let mut wants = Vec::new();
    for _ in 0..45 {
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            wants.extend(call.wants_of(Unit::Concurrency));
            worker.handle_answer(token, call.lend_by(FOUR));
        }
    }
    // The first of those that wait may count as the one that is looked at, too.
    let last = wants.last().copied().unwrap_or_default();
    assert!((7.0..=8.0).contains(&last), "{wants:?}");
}

#[test]
fn an_end_that_the_shared_table_does_not_hear_of_is_told_on_a_tick() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    let begun = worker.begun("acme", 4);
    worker.host().shared_data_fails.set(true);
    for stream in begun {
        worker.end(stream);
    }
    worker.host().shared_data_fails.set(false);
    assert_eq!(in_flight(&worker), 4);
    worker.pass(Duration::from_millis(500), FOUR);
    assert_eq!(in_flight(&worker), 0);
}

#[test]
fn what_is_refused_elsewhere_takes_no_permit() {
    let config = rules([rule("tenant"), rule("route")]);
    let all = &[
        terms(
            "tenant/",
            &[(Unit::Requests, 1e6), (Unit::Concurrency, 3.0)],
        ),
        terms("route/", &[(Unit::Requests, 1e6), (Unit::Concurrency, 1.0)]),
    ];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let both = |worker: &mut Worker, y| worker.request(&["acme", y]);
    for _ in 0..3 {
        both(&mut worker, "1");
        let stream = worker.streams;
        for _ in 0..5 {
            worker.tick(Duration::from_millis(1));
            worker.answer_by(all);
        }
        worker.end(stream);
        worker.pass(Duration::from_millis(400), all);
    }
    assert_eq!(both(&mut worker, "1"), Decision::Admit);
    for _ in 0..10 {
        let refused = both(&mut worker, "1");
        assert!(matches!(
            refused,
            Decision::Deny(Refusal::Denied {
                rule: RuleId(1),
                ..
            })
        ));
    }
    assert_eq!(
        in_flight(&worker),
        2,
        "one for each scope of the one request"
    );
}

#[test]
fn a_stream_that_began_as_the_limit_came_has_a_permit() {
    const BYTES: (Unit, f64) = (Unit::ResponseBytes, 1e6);
    const BEFORE: &[Terms] = &[terms("tenant/", &[(Unit::Requests, 1e6), BYTES])];
    const AFTER: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), BYTES, (Unit::Concurrency, 4.0)],
    )];
    let mut config = one_rule();
    config.rules[0].policy.first_lease_wait = Duration::ZERO;
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.meet("acme", BEFORE);
    let (token, call) = loop {
        worker.tick(TICK);
        if let Some(call) = worker.process.take_call() {
            break call;
        }
    };
    let first = worker.begun("acme", 1)[0];
    worker.sizes.insert(first, [0, 100_000]);
    worker.end(first);
    worker.handle_answer(token, call.lend_by(AFTER));
    // It finds the limit out when it pays for the bytes of the first one.
    worker.process.advance(Duration::from_millis(200));
    let open = worker.begun("acme", 1);
    assert_eq!(open.len(), 1);
    let used = |worker: &Worker| {
        worker
            .engine
            .scope(RuleId(0), b"acme")
            .unwrap()
            .permits_used
    };
    assert_eq!(used(&worker), 1);
    let more = worker.begun("acme", 2);
    worker.end(open[0]);
    assert_eq!(used(&worker) as usize, more.len());
}
