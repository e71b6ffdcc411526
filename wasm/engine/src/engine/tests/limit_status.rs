//! Limit status of admitted requests.

use super::*;
use crate::refusal::LimitStatus;

/// A worker that reports limits, with a lease of `capacity` for `acme`.
fn reporting(capacity: f64) -> Worker {
    let config = EngineConfig {
        reports_limits: true,
        ..one_rule()
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.lease("acme", capacity);
    worker
}

impl Worker {
    /// The report on the latest stream, taken away.
    fn told(&mut self) -> Option<LimitStatus> {
        let report = self.reports.remove(&self.streams)?;
        let [(RuleId(0), status)] = report.limits[..] else {
            panic!("{report:?}")
        };
        Some(status)
    }
}

#[test]
fn admitted_requests_are_told_what_is_left_and_refused_ones_are_not() {
    let mut worker = reporting(100.0);
    let shown = |left| {
        Some(LimitStatus {
            limit: 100_000_000,
            period: None,
            left: Tokens::from_whole(left),
            full_in: Some(Duration::from_millis(10 * (100 - left))),
            quota: None,
        })
    };
    assert_eq!(worker.told(), shown(99), "it was held");
    for left in (0..99).rev() {
        assert_eq!(worker.of("acme"), Decision::Admit);
        assert_eq!(worker.told(), shown(left));
    }
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    assert_eq!(worker.told(), None);
}

#[test]
fn what_a_worker_has_drawn_ahead_is_left_too() {
    let mut worker = reporting(10_000.0);
    for left in (9800..9999).rev() {
        assert_eq!(worker.of("acme"), Decision::Admit);
        let shown = worker.told().map(|status| status.left);
        assert_eq!(shown, Some(Tokens::from_whole(left)));
    }
}

#[test]
fn nothing_is_told_unless_it_is_asked_for() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    worker.reports.clear();
    assert_eq!(worker.of("acme"), Decision::Admit);
    assert!(worker.reports.is_empty());
    let target = worker.engine.admission.find(RuleId(0), b"acme").unwrap();
    assert_eq!(worker.engine.admission.limit_status(target), None);
}
