//! Requests that wait for the tokens of a group.

use super::*;

#[test]
fn members_of_a_group_take_turns() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 100.0)]),
    ];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &waits());
    for tenant in ["a", "b", "c"] {
        worker.meet(tenant, &all);
    }
    while worker.hasty("a") == Decision::Admit {}
    let (a, b, c) = (
        worker.waiting("a", 5),
        worker.waiting("b", 2),
        worker.waiting("c", 1),
    );
    let order: Vec<u32> = worker.run(100).into_iter().map(|gone| gone.1).collect();
    assert_eq!(order, [a[0], b[0], c[0], a[1], b[1], a[2], a[3], a[4]]);
    let refusal = loop {
        if let Decision::Deny(refusal) = worker.hasty("a") {
            break refusal;
        }
    };
    assert_eq!(refusal.rule(), Some(RuleId(1)), "the group");
}

#[test]
fn requests_of_a_scope_that_leaves_its_group_wait_there_no_longer() {
    let group = || terms("group/", &[(Unit::Requests, 1.0)]);
    let member = |prefix| Terms {
        canonical: Some("group/gold"),
        ..terms(prefix, &[])
    };
    let all = [member("tenant/"), group()];
    let left = [terms("tenant/b", &[]), member("tenant/"), group()];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &waits_for(30_000 * MS));
    for tenant in ["a", "b"] {
        worker.meet(tenant, &all);
    }
    while worker.hasty("a") == Decision::Admit {}
    worker.waiting("a", 4);
    let waiting = worker.waiting("b", 3);
    while !matches!(worker.of("b"), Decision::Admit) {
        worker.pass(TICK, &left);
    }
    worker.tick(TICK);
    let gone = worker.went_on();
    let of_b = gone.iter().filter(|stream| waiting.contains(stream));
    assert_eq!(of_b.count(), 3, "{gone:?}");
}
