//! Order of requests of one key that wait for different buckets.

use super::*;
use crate::config::Shape;

const MS: Duration = Duration::from_millis(1);
const ALL: &[Terms] = &[
    Terms {
        canonical: Some("group/gold"),
        ..terms("tenant/", &[(Unit::Requests, 100.0)])
    },
    terms("group/", &[(Unit::Requests, 100.0)]),
];

/// A worker whose rule lets so many requests of a key wait at a bucket.
fn waits(max_waiting: usize) -> Worker {
    let shape = Some(Shape {
        max_wait: Duration::from_secs(1),
        max_waiting,
    });
    let config = rules([RuleConfig {
        shape,
        ..rule("tenant")
    }]);
    Worker::new(&FakeProcess::new(), 1, &config)
}

/// The rule of the bucket that a request waits for.
fn waits_for(decision: Decision) -> Option<RuleId> {
    match decision {
        Decision::Queue(shortfall) => shortfall.refusal().rule(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_came_first_goes_first_whichever_bucket_each_waits_for() {
    for max_waiting in [1, 1000] {
        let mut worker = waits(max_waiting);
        worker.meet("a", ALL);
        worker.meet("b", ALL);
        while worker.hasty("a") == Decision::Admit {}
        worker.process.advance(10 * MS);
        assert_eq!(worker.of("b"), Decision::Admit, "the group's token");
        let group = waits_for(worker.at("a", 1));
        let first = worker.streams;
        let own = waits_for(worker.at("a", 2));
        assert_eq!((group, own), (Some(RuleId(1)), Some(RuleId(0))));
        // Both buckets have enough now, and the tenant's is looked at first.
        worker.tick(30 * MS);
        assert_eq!(worker.resumed, [first, worker.streams], "{max_waiting}");
        assert_eq!(worker.denied, []);
    }
}
