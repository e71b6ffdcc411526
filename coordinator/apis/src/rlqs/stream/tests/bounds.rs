//! Bounds, errors, and any order of events.

use prost::Message as _;

use super::*;
use crate::rlqs::messages;

#[test]
fn what_cannot_be_a_scope_is_ignored_and_what_is_too_much_is_abandoned() {
    let mut test = StreamContext::new();
    let usage = |name: BucketName, requests| Usage {
        name,
        elapsed: Duration::ZERO,
        requests,
    };
    let pair = |key: &str, value: &str| BucketName::from([(key.to_owned(), value.to_owned())]);
    let many = (0..=KEYS_MAX).map(|key| (format!("{key}"), String::new()));
    let long = "x".repeat(NAME_LEN_MAX - "tenant".len());
    let rows = [
        (BucketName::new(), vec![IgnoredBucket::Unmatched]),
        (pair("user", "x"), vec![IgnoredBucket::Unmatched]),
        (many.collect(), vec![IgnoredBucket::TooLong]),
        (
            pair("tenant", &format!("{long}x")),
            vec![IgnoredBucket::TooLong],
        ),
        (pair("tenant", &long), vec![]),
    ];
    for (name, want) in rows {
        let message = test.state.handle_report(test.now, vec![usage(name, 1)]);
        assert_eq!(message, want);
    }
    let fill = (1..BUCKETS_MAX).map(|i| usage(name(&i.to_string()), 1));
    assert_eq!(test.state.handle_report(test.now, fill.collect()), []);
    assert_eq!(test.state.len(), BUCKETS_MAX);
    let more = vec![usage(name("used"), 1), usage(name("unused"), 0)];
    let message = test.state.handle_report(test.now, more);
    assert_eq!(message, [IgnoredBucket::TooMany; 2]);
    assert_eq!(test.act(), [("unused".to_owned(), ActionKind::Abandon)]);
    // Few of them are remembered; the proxy names the others again.
    let unused = (0..UNWANTED_MAX + 9).map(|i| usage(name(&format!("unused-{i}")), 0));
    test.state.handle_report(test.now, unused.collect());
    assert_eq!(test.act().len(), UNWANTED_MAX);
    // All are asked for, in calls of a bounded size, and answered in messages of one.
    let batch = test.state.poll_batch(test.now).unwrap();
    assert_eq!(batch.scopes.len(), SCOPES_MAX);
    let mut requested: Vec<_> = test.ask();
    requested.extend(
        batch
            .scopes
            .iter()
            .map(|scope| (scope.scope.clone(), scope.asks[0].1.sequence)),
    );
    let answers: Vec<_> = requested
        .iter()
        .map(|(scope, sequence)| scope_answer(scope, *sequence, granted(5)))
        .collect();
    test.state.handle_answers(test.now, &requested, &answers);
    let mut assigned = 0;
    while test.state.has_actions(test.now) {
        let actions = test.state.poll_actions(test.now);
        assigned += actions.len();
        let len = messages::response(&actions).encoded_len();
        assert!(len <= ACTIONS_LEN + NAME_LEN_MAX, "{len}");
        assert!(len > ACTIONS_LEN / 4 || assigned == BUCKETS_MAX, "{len}");
    }
    assert_eq!(assigned, BUCKETS_MAX);
}

#[test]
fn no_message_is_longer_than_its_actions_may_be() {
    let names = [
        // As many keys as there may be, and as many bytes.
        (0..KEYS_MAX)
            .map(|i| (format!("{i:0>8}"), format!("{i:0>8}")))
            .collect(),
        BucketName::from([("k".repeat(NAME_LEN_MAX / 2), "v".repeat(NAME_LEN_MAX / 2))]),
        BucketName::from([(String::new(), String::new())]),
    ];
    let longest = Strategy::Tokens {
        fill: u32::MAX,
        max: u32::MAX,
        interval_s: u32::MAX,
    };
    for bucket in names.map(Arc::new) {
        let kinds = [longest, Strategy::DenyAll, Strategy::AllowAll].map(|strategy| {
            ActionKind::Assign(Assignment {
                strategy,
                time_to_live: Duration::from_secs(u32::MAX.into()),
            })
        });
        for kind in kinds.into_iter().chain([ActionKind::Abandon]) {
            let action = Action {
                bucket: Arc::clone(&bucket),
                kind,
            };
            let len = messages::response(std::slice::from_ref(&action)).encoded_len();
            assert!(len <= action.len_max(), "{len} {action:?}");
        }
    }
}

#[test]
fn streams_share_the_memory_of_buckets_and_give_it_back() {
    // Of three buckets.
    let memory = BucketMemory::new(10 << 10);
    let stream = || {
        let mut test = StreamContext::new();
        test.state.memory = memory.clone();
        test
    };
    let (mut first, mut second) = (stream(), stream());
    let message = first.report(&[("a", 0, 1), ("b", 0, 1), ("c", 0, 1), ("d", 0, 1)]);
    assert_eq!(message, [IgnoredBucket::NoMemory]);
    assert_eq!(
        second.report(&[("used", 0, 1), ("unused", 0, 0)]),
        [IgnoredBucket::NoMemory; 2]
    );
    assert_eq!(second.act(), [("unused".to_owned(), ActionKind::Abandon)]);
    // Known buckets go on, and those that are abandoned make place for others.
    assert_eq!(first.report(&[("a", 5, 1)]), []);
    first.wait(59_000);
    first.report(&[("a", 59, 1)]);
    first.wait(1_500);
    first.act();
    assert_eq!(first.state.len(), 1);
    assert_eq!(second.report(&[("used", 0, 1)]), []);
    drop(first);
    assert_eq!(second.report(&[("x", 0, 1), ("y", 0, 1)]), []);
}

#[test]
fn a_fingerprint_stands_for_the_names_of_the_buckets() {
    let fingerprint = |usages: &[(&str, u64, u64)]| {
        let mut test = StreamContext::new();
        for usage in usages {
            test.report(&[*usage]);
        }
        (test.state.resumes(), test.state.fingerprint())
    };
    let (resumes, both) = fingerprint(&[("a", 0, 1), ("b", 0, 2)]);
    assert!(!resumes);
    assert_eq!(fingerprint(&[("b", 5, 9), ("a", 0, 0)]), (true, both));
    for others in [&[("a", 5, 1)][..], &[("a", 5, 1), ("c", 5, 1)], &[]] {
        assert_ne!(fingerprint(others).1, both, "{others:?}");
    }
}

#[test]
fn an_answer_without_a_scope_or_with_an_error_is_asked_for_again() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1), ("beta", 0, 1)]);
    let requested = test.ask();
    let beta = ScopeAnswer {
        outcome: Err(tollgate_proto::response::ScopeError {
            code: 8,
            message: "full".to_owned(),
        }),
        ..scope_answer(&requested[1].0, requested[1].1, NO_LEASE)
    };
    assert_eq!(test.state.handle_answers(test.now, &requested, &[beta]), 2);
    assert_eq!(test.act(), []);
    assert!(
        test.asks_at()
            .is_some_and(|after| after < Duration::from_secs(5))
    );
}

#[test]
fn no_order_of_events_leaves_a_timer_behind_or_assigns_more_than_is_leased() {
    let mut test = StreamContext::new();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    for step in 0..4000_u64 {
        test.wait(next(700));
        if step % 7 == 0 {
            let tenant = format!("t{}", next(5));
            test.report(&[(&tenant, next(6), next(50))]);
        }
        let share = next(90);
        test.answer(|_| granted(share));
        let now = test.now;
        for (bucket, kind) in test.act() {
            let ActionKind::Assign(assignment) = kind else {
                continue;
            };
            let lease = &test.state.scopes[&*format!("tenant/{bucket}")];
            let id = test.state.names[&name(&bucket)];
            let part = lease.part(now, id).unwrap();
            let ends = now.saturating_add(assignment.time_to_live + TRANSIT);
            assert!(ends <= part.expiry, "step {step}");
            let fill = match assignment.strategy {
                Strategy::Tokens { fill, .. } => fill,
                _ => 0,
            };
            assert!(
                Capacity::from_whole(fill.into()) <= part.share,
                "step {step}"
            );
        }
        let due = test.state.poll_timeout();
        assert!(test.state.len() == 0 || due.is_some(), "step {step}");
    }
}
