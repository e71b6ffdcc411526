//! Costs, bytes and canonical scopes.

use super::permits::{FOUR, in_flight};
use super::*;
use crate::effect::StreamEnd;

#[test]
fn bytes_are_charged_as_they_pass_and_the_next_request_waits_for_the_debt() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[
            (Unit::Requests, 1e6),
            (Unit::RequestBytes, 1e6),
            (Unit::ResponseBytes, 1000.0),
        ],
    )];
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.meet("acme", ALL);
    // A first stream makes the need for bytes known.
    let first = worker.begun("acme", 1)[0];
    worker.sizes.insert(first, [100, 200]);
    // Long enough that a token cache drawn before the lease has gone back.
    worker.pass(Duration::from_millis(900), ALL);
    let others = worker.begun("acme", 2);
    assert_eq!(others.len(), 2, "200 of 1000 are spent");
    // It goes on, and is counted although it has not ended: no request passes until it is paid.
    worker.sizes.insert(first, [100, 4000]);
    worker.pass(Duration::from_millis(220), ALL);
    let refused = denial(worker.of("acme"));
    assert_eq!(refused.unit, Unit::ResponseBytes);
    let pause = refused
        .retry_at
        .unwrap()
        .saturating_since(worker.host().now());
    assert!(
        pause > Duration::from_millis(2000) && pause < Duration::from_millis(3000),
        "{pause:?}"
    );
    worker.end(first);
    process.advance(pause);
    worker.pass(TICK, ALL);
    assert_eq!(worker.begun("acme", 1).len(), 1, "paid");
    // Bytes that no tick has seen are counted at the end.
    worker.sizes.insert(others[0], [0, 1_000_000]);
    worker.end(others[0]);
    let refused = denial(worker.of("acme"));
    let pause = refused
        .retry_at
        .unwrap()
        .saturating_since(worker.host().now());
    assert!(
        pause <= Duration::from_millis(10_001),
        "debt is bounded: {pause:?}"
    );
    assert!(pause > Duration::from_millis(9000), "{pause:?}");
    assert!(worker.refused("tenant").response_bytes.get() > 0);
}

#[test]
fn streams_take_the_bytes_that_they_usually_have_and_give_back_what_they_lack() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::ResponseBytes, 1000.0)],
    )];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", ALL);
    let first = worker.begun("acme", 1)[0];
    worker.sizes.insert(first, [0, 200]);
    worker.end(first);
    worker.pass(Duration::from_millis(1500), ALL);
    let streams = worker.begun("acme", 10);
    assert_eq!(streams.len(), 5, "of 1000 bytes");
    for stream in &streams[..4] {
        worker.sizes.insert(*stream, [0, 50]);
        worker.end(*stream);
    }
    let again = worker.begun("acme", 10).len();
    assert!((3..=6).contains(&again), "{again} of the 600 that are left");
}

#[test]
fn requests_that_another_limit_refuses_take_no_bytes() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 10.0), (Unit::ResponseBytes, 1000.0)],
    )];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", ALL);
    for stream in worker.begun("acme", 20) {
        worker.sizes.insert(stream, [0, 50]);
        worker.end(stream);
    }
    let meter = |worker: &Worker| {
        let entry = worker.engine.admission.entry_of(RuleId(0), b"acme");
        let meters = entry.and_then(|entry| entry.meters.as_deref()).unwrap();
        meters.response_bytes.as_ref().unwrap().cache.left()
    };
    let before = meter(&worker);
    assert_eq!(worker.begun("acme", 20).len(), 0);
    assert_eq!(meter(&worker), before);
}

#[test]
fn a_stream_whose_bytes_are_not_known_teaches_nothing() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::ResponseBytes, 1e6)],
    )];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", ALL);
    let streams = worker.begun("acme", 2);
    worker.sizes.insert(streams[0], [0, 800]);
    worker.end(streams[0]);
    let usual = |worker: &Worker| {
        let entry = worker.engine.admission.entry_of(RuleId(0), b"acme");
        let meters = entry.and_then(|entry| entry.meters.as_deref()).unwrap();
        meters.response_bytes.as_ref().unwrap().usual
    };
    let before = usual(&worker);
    assert!(before > Some(0));
    // As when Envoy has no such stream any more.
    worker
        .engine
        .end_stream(streams[1], &StreamEnd::default(), None);
    assert_eq!(usual(&worker), before);
    assert_eq!(worker.engine.admission.streams_open(), 0);
}

#[test]
fn what_bytes_are_wanted_counts_refused_requests_as_well() {
    const ALL: &[Terms] = &[terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::ResponseBytes, 100_000.0)],
    )];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", ALL);
    let mut wants = 0.0;
    // 100 requests a second of 10 kB: ten times the limit.
    for _ in 0..300 {
        for stream in worker.begun("acme", 1) {
            worker.sizes.insert(stream, [0, 10_000]);
            worker.end(stream);
        }
        worker.tick(Duration::from_millis(10));
        while let Some((token, call)) = worker.process.take_call() {
            if !call.is_refresh() {
                continue;
            }
            wants = call.wants_of(Unit::ResponseBytes).unwrap_or(wants);
            worker.handle_answer(token, call.lend_by(ALL));
        }
    }
    assert!((700_000.0..1_300_000.0).contains(&wants), "{wants}");
}

const GROUP: &[Terms] = &[
    terms(
        "group/",
        &[(Unit::Requests, 10.0), (Unit::Concurrency, 1e6)],
    ),
    Terms {
        scopes: "tenant/",
        limits: &[(Unit::Requests, 8.0)],
        canonical: Some("group/gold"),
    },
];

#[test]
fn requests_also_take_from_the_canonical_scope_and_from_it_once() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut first = Worker::new(&process, 1, &config);
    let mut second = Worker::new(&process, 2, &config);
    for tenant in ["a", "b"] {
        first.meet(tenant, GROUP);
        first.meet(tenant, GROUP);
    }
    second.meet("a", GROUP);
    // Let all that was spent come back.
    for _ in 0..150 {
        process.advance(TICK);
        first.tick(Duration::ZERO);
        first.answer_by(GROUP);
        second.tick(Duration::ZERO);
        second.answer_by(GROUP);
    }
    let passed = first.go_on("a", 5, GROUP) + second.go_on("a", 5, GROUP);
    assert_eq!(passed, 8, "the tenant's own limit");
    assert_eq!(first.go_on("b", 8, GROUP), 2, "the group's");
    let Decision::Deny(refusal) = first.of("b") else {
        panic!("b is refused")
    };
    let rules = (refusal.rule(), refusal.told_by());
    assert_eq!(
        rules,
        (Some(RuleId(1)), Some(RuleId(0))),
        "the group, as the tenant says"
    );
    // Without a lease it does as the first rule says, by the latest configuration.
    let mut changed = one_rule();
    changed.rules[0].policy.safe = Capacity::from_whole(7);
    first.configure(&changed);
    let policy = first.engine.process.rules.policy_of("group/gold");
    assert_eq!(policy.safe_of(Unit::Requests), Capacity::from_whole(7));
}

#[test]
fn a_scope_that_is_detached_is_free_of_the_group_with_the_next_answer() {
    const ALONE: &[Terms] = &[terms("", &[(Unit::Requests, 8.0)])];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("a", GROUP);
    worker.meet("b", GROUP);
    worker.pass(Duration::from_secs(1), GROUP);
    let both = |worker: &mut Worker, all| worker.go_on("a", 20, all) + worker.go_on("b", 20, all);
    assert_eq!(both(&mut worker, GROUP), 10);
    worker.pass(Duration::from_millis(2000), ALONE);
    both(&mut worker, ALONE);
    worker.pass(Duration::from_millis(2000), ALONE);
    assert_eq!(both(&mut worker, ALONE), 16);
}

#[test]
fn a_request_whose_rules_lead_to_one_canonical_scope_is_charged_there_once() {
    let config = rules([rule("tenant"), rule("namespace")]);
    let all = &[
        terms("group/", &[(Unit::Requests, 10.0)]),
        Terms {
            scopes: "",
            limits: &[(Unit::Requests, 1000.0)],
            canonical: Some("group/gold"),
        },
    ];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let keys = ["acme", "orders"];
    for _ in 0..2 {
        worker.request(&keys);
        for _ in 0..5 {
            worker.tick(Duration::from_millis(1));
            worker.answer_by(all);
        }
        worker.pass(Duration::from_millis(2000), all);
    }
    worker.resumed.clear();
    let mut passed = 0;
    for _ in 0..30 {
        passed += usize::from(worker.request(&keys) == Decision::Admit);
        for _ in 0..2 {
            worker.process.advance(Duration::from_micros(10));
            worker.tick(Duration::ZERO);
            worker.answer_by(all);
        }
        passed += worker.resumed.drain(..).count();
    }
    assert_eq!(passed, 10);
}

#[test]
fn while_the_clock_stands_nothing_is_minted_and_nothing_is_lost() {
    let process = FakeProcess::new();
    let config = one_rule();
    let mut workers: Vec<Worker> = (1..=4)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    workers[0].meet("acme", FOUR);
    let mut open = Vec::new();
    for round in 0..200 {
        for (n, worker) in workers.iter_mut().enumerate() {
            for stream in worker.begun("acme", 2) {
                open.push((n, stream));
            }
            worker.tick(Duration::ZERO);
            worker.answer_by(FOUR);
        }
        assert!(open.len() <= 4, "{}", open.len());
        if round % 3 == 0 && !open.is_empty() {
            let (n, stream) = open.remove(0);
            workers[n].end(stream);
        }
    }
    for (n, stream) in open {
        workers[n].end(stream);
    }
    assert_eq!(in_flight(&workers[0]), 0);
}
