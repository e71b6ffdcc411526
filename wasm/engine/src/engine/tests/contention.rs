//! Workers that are faster each time: a request is never let go because its worker found nothing out.

use super::permits::FOUR;
use super::*;

const BYTES: &[Terms] = &[terms(
    "tenant/",
    &[(Unit::Requests, 1e6), (Unit::ResponseBytes, 1000.0)],
)];

/// Lets another worker write before each write from now on: the records that there are with
/// `part` in their names.
fn rival(process: &FakeProcess, part: &'static str) {
    for key in process.keys() {
        if key.contains(part) {
            let record = process.get(&key).unwrap();
            process.set(&key, &record, 0);
        }
    }
    let again = move |process: &FakeProcess| rival(process, part);
    *process.intruder.borrow_mut() = Some(Box::new(again));
}

/// The denial of a request that finds nothing out, and that goes on when the other worker is gone.
fn contended(worker: &mut Worker, part: &'static str) -> Denial {
    let failures = worker.stats().host_failures.get();
    rival(&worker.process, part);
    let denial = denial(worker.of("acme"));
    assert_eq!(worker.stats().host_failures.get(), failures);
    worker.process.intruder.borrow_mut().take();
    denial
}

#[test]
fn without_a_look_at_the_bucket_no_token_is_taken() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    first.lease("acme", 100.0);
    while first.of("acme") == Decision::Admit {}
    let mut second = Worker::new(&process, 2, &one_rule());
    let denial = contended(&mut second, ".slot.");
    let pause = denial
        .retry_at
        .unwrap()
        .saturating_since(second.host().now());
    assert_eq!(pause, Duration::from_millis(1));
    assert!(!denial.without_lease);
    assert_eq!(second.stats().contended.get(), 1);
    process.advance(Duration::from_millis(10));
    assert_eq!(second.of("acme"), Decision::Admit);
}

#[test]
fn without_a_look_at_the_bucket_a_request_waits_for_its_turn() {
    let process = FakeProcess::new();
    let config = rules([shaped(rule("tenant"))]);
    let mut first = Worker::new(&process, 1, &config);
    first.lease("acme", 100.0);
    while first.hasty("acme") == Decision::Admit {}
    let mut second = Worker::new(&process, 2, &config);
    rival(&process, ".slot.");
    assert_eq!([second.of("acme"), second.of("acme")], [Decision::Hold; 2]);
    second.tick(Duration::from_millis(11));
    assert!(second.resumed.is_empty());
    process.intruder.borrow_mut().take();
    for _ in 0..30 {
        second.tick(Duration::from_millis(1));
    }
    assert_eq!(second.resumed, [201, 202]);
    assert_eq!(second.stats().host_failures.get(), 0);
}

#[test]
fn a_scope_that_finds_no_slot_in_time_is_refused_for_a_moment() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 1,
        ..one_rule()
    };
    let mut worker = Worker::new(&process, 1, &config);
    process.set("tollgate.c.slot.0", &[0], 0);
    contended(&mut worker, ".slot.");
    worker.lease("acme", 100.0);
}

#[test]
fn without_a_look_at_the_permits_none_is_taken() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", FOUR);
    assert_eq!(worker.admitted("acme", 9), 4);
    worker.process.advance(Duration::from_millis(6));
    let denial = contended(&mut worker, ".slot.");
    assert_eq!(denial.unit, Unit::Concurrency);
}

#[test]
fn a_heartbeat_that_is_late_gives_no_permit_away() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    first.meet("acme", FOUR);
    assert_eq!(first.admitted("acme", 9), 4);
    let mut second = Worker::new(&process, 2, &one_rule());
    let denial = contended(&mut second, ".workers");
    assert_eq!(denial.unit, Unit::Concurrency);
    assert_eq!(second.stats().contended.get(), 0);
}

#[test]
fn without_a_look_at_the_debt_of_bytes_none_pass() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.meet("acme", BYTES);
    // A first stream makes the need for bytes known.
    let stream = worker.begun("acme", 1)[0];
    worker.sizes.insert(stream, [0, 200]);
    worker.end(stream);
    worker.pass(Duration::from_millis(900), BYTES);
    let stream = worker.begun("acme", 1)[0];
    worker.sizes.insert(stream, [0, 4000]);
    worker.end(stream);
    worker.process.advance(Duration::from_millis(21));
    let denial = contended(&mut worker, ".slot.");
    assert_eq!(denial.unit, Unit::ResponseBytes);
}
