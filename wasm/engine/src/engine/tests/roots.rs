//! Several configurations in one engine, as of the listeners of a proxy.

use super::*;
use crate::users::InUse;

const MS: Duration = Duration::from_millis(1);

fn waits() -> EngineConfig {
    rules([shaped(rule("tenant"))])
}

fn off(config: EngineConfig) -> EngineConfig {
    EngineConfig {
        enabled: false,
        ..config
    }
}

/// A worker that has spent a lease of 10 a second.
fn spent(config: &EngineConfig) -> Worker {
    let mut worker = Worker::new(&FakeProcess::new(), 1, config);
    worker.lease("acme", 10.0);
    while worker.hasty("acme") == Decision::Admit {}
    worker
}

impl Worker {
    fn waits(&mut self, requests: usize) {
        for _ in 0..requests {
            assert_eq!(self.of("acme"), Decision::Hold);
        }
    }
}

#[test]
fn switched_off_elsewhere_nobody_is_let_go() {
    let mut worker = spent(&waits());
    worker.waits(2);
    worker
        .engine
        .configure(&off(rules([shaped(rule("other"))])), &InUse::default());
    worker.waits(3);
    for _ in 0..90 {
        worker.tick(MS);
    }
    assert!(worker.resumed.is_empty());
    worker.tick(11 * MS);
    assert_eq!(worker.resumed.len(), 1);
}

/// A host does not say which configuration an update replaces.
#[test]
fn where_a_filter_with_the_same_rules_is_switched_off_later_requests_are_limited() {
    let mut worker = spent(&waits());
    worker.engine.configure(&off(waits()), &InUse::default());
    worker.waits(5);
    for _ in 0..90 {
        worker.tick(MS);
    }
    assert!(worker.resumed.is_empty());
}

#[test]
fn each_configuration_has_its_own_way_with_failures_of_the_host() {
    let closed = EngineConfig {
        host_failure: HostFailure::Closed,
        ..one_rule()
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &closed);
    let open = worker
        .engine
        .configure(&rules([rule("other")]), &InUse::default());
    worker.host().shared_data_fails.set(true);
    let refused = Decision::Deny(Refusal::HostFailure);
    assert_eq!(worker.of("acme"), refused);
    worker.root = open;
    assert_eq!(worker.of("acme"), Decision::Admit);
}

#[test]
fn each_configuration_has_its_own_bounds_on_those_that_wait() {
    let mut worker = spent(&waits());
    let narrow = EngineConfig {
        max_pending: 0,
        max_waiting: 0,
        ..waits()
    };
    let wide = worker.root.clone();
    worker.configure(&narrow);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    assert_eq!(worker.of("beta"), Decision::Admit, "at the safe capacity");
    worker.root = wide;
    worker.waits(1);
    assert_eq!(worker.of("gamma"), Decision::Hold);
}

#[test]
fn each_configuration_has_its_own_reports() {
    let telling = EngineConfig {
        reports_limits: true,
        ..one_rule()
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &telling);
    let silent = worker.engine.configure(&one_rule(), &InUse::default());
    let telling = worker.root.clone();
    worker.lease("acme", 100.0);
    for (root, limits) in [(&silent, 0), (&telling, 1), (&silent, 0), (&telling, 1)] {
        worker.root = root.clone();
        assert_eq!(worker.of("acme"), Decision::Admit);
        let report = worker.reports.get(&worker.streams);
        let shown = report.map_or(0, |report| report.limits.len());
        assert_eq!(shown, limits);
    }
}
