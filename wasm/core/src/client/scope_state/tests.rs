use super::*;
use crate::client::{AwaitAction, DrawResult, PermitResult, WorkerUsage};
use crate::lease::{Answer, Epoch, LeaseTerms};
use crate::units::{Capacity, Tokens};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000).saturating_add(Duration::from_millis(ms))
}

fn lent(gets: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets),
            duration: Duration::from_secs(10),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: None,
        capacity: Capacity::from_whole(gets),
        period: None,
        burst: None,
        draw: None,
    }
}

/// Sequences of what is asked for now.
fn asked(scope_state: &mut ScopeState, now: Instant) -> Vec<(Unit, u64)> {
    let messages = scope_state.ask(now, &Policy::default());
    let sequence = |message| match message {
        LeaseMessage::Refresh(request) => request.sequence,
        other => panic!("{other:?}"),
    };
    messages
        .into_iter()
        .map(|(unit, message)| (unit, sequence(message)))
        .collect()
}

fn units(asked: &[(Unit, u64)]) -> Vec<Unit> {
    asked.iter().map(|(unit, _)| *unit).collect()
}

fn use_all(scope_state: &mut ScopeState, now: Instant) {
    let policy = Policy::default();
    for unit in Unit::ALL {
        if let Some(rate) = scope_state.rate_mut(unit) {
            rate.count(now, 100_000);
            rate.draw_at_once(now, &policy, Tokens::ONE, 1);
        }
    }
    if let Some(concurrency) = &mut scope_state.concurrency {
        let usage = WorkerUsage {
            worker: 1,
            in_use: 3,
            ..WorkerUsage::default()
        };
        concurrency.draw(now, &policy, &usage, 1, AwaitAction::Hold);
    }
}

#[test]
fn units_are_discovered_and_then_asked_for_together() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    use_all(&mut scope_state, at(0));
    let first = asked(&mut scope_state, at(0));
    assert_eq!(units(&first), [Unit::Requests]);
    let (unit, sequence) = first[0];
    let answer = UnitAnswer {
        unit,
        sequence,
        answer: lent(100),
    };
    assert!(scope_state.handle_answer(at(2), &policy, Origin::alone(Epoch(1)), &answer));
    let limited = [Unit::Requests, Unit::RequestBytes, Unit::Concurrency];
    scope_state.set_terms(at(2), &policy, &limited, None);
    assert_eq!(scope_state.due(), Some(at(1002)), "nobody uses them yet");

    use_all(&mut scope_state, at(10));
    let second = asked(&mut scope_state, at(10));
    assert_eq!(
        units(&second),
        limited,
        "requests go along, they are due soon"
    );
    for (unit, sequence) in second {
        let answer = UnitAnswer {
            unit,
            sequence,
            answer: lent(100),
        };
        assert!(scope_state.handle_answer(at(12), &policy, Origin::alone(Epoch(1)), &answer));
    }
    // Those due a little later go along, and from then on all are due together.
    use_all(&mut scope_state, at(1002));
    let third = asked(&mut scope_state, at(1002));
    assert_eq!(units(&third), limited);
    assert_eq!(asked(&mut scope_state, at(1003)), [], "asked already");
}

#[test]
fn the_shard_to_ask_is_that_of_the_last_answer_unless_a_call_has_failed_since() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    assert_eq!(scope_state.shard(), None);
    let of = |shard| Origin {
        shard: Some(ShardId(shard)),
        epoch: Epoch(1),
    };
    for (start, shard) in [(0, 2), (2000, 0)] {
        use_all(&mut scope_state, at(start));
        for (unit, sequence) in asked(&mut scope_state, at(start)) {
            let lent = lent(100);
            let answer = UnitAnswer {
                unit,
                sequence,
                answer: lent,
            };
            scope_state.handle_answer(at(start), &policy, of(shard), &answer);
        }
        scope_state.set_terms(at(start), &policy, &[Unit::Concurrency], None);
        assert_eq!(scope_state.shard(), Some(ShardId(shard)));
    }
    // One that nobody has asked for yet has nothing to say, and what is asked for last counts.
    assert!(scope_state.has(Unit::Concurrency));
    use_all(&mut scope_state, at(4000));
    for (unit, sequence) in asked(&mut scope_state, at(4000)) {
        assert_eq!(
            scope_state.shard(),
            Some(ShardId(0)),
            "while an answer is awaited"
        );
        scope_state.handle_failure(at(4001), unit, sequence, 1);
    }
    assert_eq!(scope_state.shard(), None);
}

#[test]
fn what_is_not_limited_any_more_is_forgotten_and_what_stays_keeps_its_state() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    scope_state.set_terms(at(0), &policy, &Unit::ALL, Some(&"group/gold".into()));
    use_all(&mut scope_state, at(0));
    assert_eq!(scope_state.canonical().map(|id| &**id), Some("group/gold"));
    let before = scope_state.clone();
    scope_state.set_terms(at(1), &policy, &Unit::ALL, Some(&"group/gold".into()));
    assert_eq!(scope_state, before);
    scope_state.set_terms(at(2), &policy, &[Unit::Requests, Unit::Concurrency], None);
    assert_eq!(scope_state.concurrency, before.concurrency);
    assert!(!scope_state.has(Unit::RequestBytes) && !scope_state.has(Unit::ResponseBytes));
    assert_eq!(scope_state.canonical(), None);
    scope_state.set_terms(at(3), &policy, &[], None);
    assert!(!scope_state.has(Unit::Concurrency) && scope_state.has(Unit::Requests));
}

#[test]
fn a_scope_state_with_something_in_flight_is_nobody_elses() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    assert!(scope_state.is_reusable(at(0)));
    scope_state.set_terms(at(0), &policy, &[Unit::Concurrency], None);
    let concurrency = scope_state.concurrency.as_mut().unwrap();
    let usage = WorkerUsage {
        worker: 1,
        ..WorkerUsage::default()
    };
    assert!(matches!(
        concurrency.draw(at(0), &policy, &usage, 1, AwaitAction::Refuse),
        PermitResult::Held { .. }
    ));
    assert!(!scope_state.is_reusable(at(3_600_000)));
}

#[test]
fn bytes_may_be_owed_up_to_a_bound_and_the_next_waits_for_exactly_as_long() {
    let policy = Policy {
        max_debt: Duration::from_secs(3),
        ..Policy::default()
    };
    let mut scope_state = ScopeState::new(at(0), &policy);
    scope_state.set_terms(at(0), &policy, &[Unit::ResponseBytes], None);
    let bytes = scope_state.response_bytes.as_mut().unwrap();
    bytes.pay(at(0), &policy, 1, Tokens::ZERO);
    let LeaseMessage::Refresh(request) = bytes.ask(at(0), &policy) else {
        panic!("nothing asked")
    };
    bytes.handle_answer(
        at(0),
        &policy,
        request.sequence,
        Origin::alone(Epoch(1)),
        &lent(1000),
    );
    // A debt below the bound is owed in full, one above it as far as the bound.
    for (owed, wait_ms) in [(1000, 1000), (1_000_000, 3000)] {
        let mut bytes = bytes.clone();
        let left = bytes.bucket.balance(at(0)).unsigned_abs();
        bytes.pay(at(0), &policy, 1, Tokens::from_micros(left));
        bytes.pay(at(0), &policy, 1, Tokens::from_whole(owed));
        let denied = bytes.draw_bytes(at(0), &policy, Tokens::ZERO, 1, AwaitAction::Refuse);
        let DrawResult::Denied {
            retry_at: Some(retry_at),
        } = denied
        else {
            panic!("{denied:?}")
        };
        let wait = retry_at.saturating_since(at(0));
        assert_eq!(wait, Duration::from_millis(wait_ms + 1), "{owed}");
    }
}

#[test]
fn whoever_owes_goes_on_wanting_what_it_wanted_so_that_the_pause_stays_true() {
    let policy = Policy::default();
    let mut bytes = RateLimiter::of(Unit::ResponseBytes, at(0), &policy);
    bytes.pay(at(0), &policy, 10_000_000, Tokens::from_whole(10_000_000));
    let mut requested = Vec::new();
    let mut now = 0;
    while bytes.bucket.balance(at(now)) < 0 {
        // Those that are refused meanwhile want little.
        bytes.pay(at(now), &policy, 500, Tokens::ZERO);
        match bytes.ask(at(now), &policy) {
            LeaseMessage::Refresh(request) => {
                requested.push(request.demand.wants());
                let given = lent(1_000_000);
                bytes.handle_answer(
                    at(now),
                    &policy,
                    request.sequence,
                    Origin::alone(Epoch(1)),
                    &given,
                );
            }
            other => assert_eq!(other, LeaseMessage::Nothing),
        }
        now += 100;
    }
    // Each time the same is no reason to ask more often than every second.
    assert!((8..=11).contains(&requested.len()), "{requested:?}");
    assert!(requested.is_sorted(), "{requested:?}");
}

#[test]
fn whoever_uses_no_bytes_does_not_ask_for_any_and_keeps_its_burst() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    scope_state.set_terms(at(0), &policy, &[Unit::RequestBytes], None);
    let bytes = scope_state.request_bytes.as_mut().unwrap();
    for ms in 0..100 {
        let DrawResult::Tokens(tokens) =
            bytes.draw_bytes(at(ms), &policy, Tokens::ZERO, 1, AwaitAction::Refuse)
        else {
            panic!("refused")
        };
        bytes.give_back(at(ms), &policy, tokens);
    }
    assert_eq!(
        (bytes.due(), bytes.state(at(100))),
        (None, LeaseState::Idle)
    );
    bytes.pay(at(100), &policy, 100_000, Tokens::from_whole(100_000));
    assert_eq!(bytes.due(), Some(at(100)));
    let LeaseMessage::Refresh(request) = bytes.ask(at(100), &policy) else {
        panic!("nothing asked")
    };
    let large = lent(100_000_000);
    assert!(bytes.handle_answer(
        at(102),
        &policy,
        request.sequence,
        Origin::alone(Epoch(1)),
        &large
    ));
    let left = bytes.bucket.balance(at(102)) / 1_000_000;
    // And with what 2 ms earned before it came.
    assert!((99_900_000..99_903_000).contains(&left), "{left}");
}

#[test]
fn a_request_dearer_than_a_full_bucket_never_passes_and_costs_nothing() {
    let policy = Policy::default();
    let mut limiter = RateLimiter::new(at(0), &policy);
    limiter.count(at(0), 1);
    let need = Tokens::from_whole(11);
    let dear = limiter.draw_at_once(at(0), &policy, need, 1);
    let burst = Tokens::from_whole(10);
    assert_eq!(dear, DrawResult::ExceedsBurst { burst });
    let dear = limiter.draw_at_once(at(0), &policy, burst, 1);
    assert_eq!(dear, DrawResult::Tokens(burst));
}

#[test]
fn a_nudge_asks_whatever_the_interval_but_neither_idle_nor_twice() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    assert_eq!(
        scope_state.nudge(at(0), Unit::Requests),
        NudgeEffect::Ignored,
        "nothing is wanted"
    );
    use_all(&mut scope_state, at(0));
    let (unit, sequence) = asked(&mut scope_state, at(0))[0];
    assert_eq!(scope_state.nudge(at(1), unit), NudgeEffect::Awaited);
    assert_eq!(asked(&mut scope_state, at(1)), []);
    let answer = UnitAnswer {
        unit,
        sequence,
        answer: lent(100),
    };
    assert!(scope_state.handle_answer(at(2), &policy, Origin::alone(Epoch(1)), &answer));
    assert_eq!(scope_state.due(), Some(at(1002)));
    // One millisecond after the answer, long before the minimum interval.
    assert_eq!(scope_state.nudge(at(3), unit), NudgeEffect::Due);
    assert_eq!(units(&asked(&mut scope_state, at(3))), [Unit::Requests]);
    for other in [Unit::RequestBytes, Unit::Concurrency] {
        assert_eq!(scope_state.nudge(at(3), other), NudgeEffect::Ignored);
    }
    // An answer that is overdue is not waited for.
    let lost = at(3).saturating_add(policy.call_timeout);
    assert_eq!(scope_state.nudge(lost, unit), NudgeEffect::Due);
}

#[test]
fn a_nudge_reaches_requests_in_flight() {
    let policy = Policy::default();
    let mut scope_state = ScopeState::new(at(0), &policy);
    scope_state.set_terms(at(0), &policy, &[Unit::Concurrency], None);
    use_all(&mut scope_state, at(0));
    for (unit, sequence) in asked(&mut scope_state, at(0)) {
        let answer = UnitAnswer {
            unit,
            sequence,
            answer: lent(100),
        };
        assert!(scope_state.handle_answer(at(2), &policy, Origin::alone(Epoch(1)), &answer));
    }
    assert_eq!(
        scope_state.nudge(at(5), Unit::Concurrency),
        NudgeEffect::Due
    );
    assert_eq!(scope_state.due(), Some(at(5)));
}
