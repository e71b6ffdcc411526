use super::*;
use crate::client::{Draw, Permits, Usage};
use crate::lease::{Epoch, LeaseTerms};
use crate::units::{Capacity, Tokens};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000).saturating_add(Duration::from_millis(ms))
}

fn answer(gets: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets),
            duration: Duration::from_secs(10),
            basis: 1,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: None,
        capacity: Capacity::from_whole(gets),
    }
}

/// Sequences of what is asked for now.
fn asked(holding: &mut Holding, now: Instant) -> Vec<(Unit, u64)> {
    let todos = holding.ask(now, &Policy::default());
    let sequence = |todo| match todo {
        Todo::Refresh(ask) => ask.sequence,
        other => panic!("{other:?}"),
    };
    todos
        .into_iter()
        .map(|(unit, todo)| (unit, sequence(todo)))
        .collect()
}

fn units(asked: &[(Unit, u64)]) -> Vec<Unit> {
    asked.iter().map(|(unit, _)| *unit).collect()
}

fn use_all(holding: &mut Holding, now: Instant) {
    let policy = Policy::default();
    for unit in Unit::ALL {
        if let Some(rate) = holding.rate_mut(unit) {
            rate.count(now, 100_000);
            rate.draw_at_once(now, &policy, Tokens::ONE, 1);
        }
    }
    if let Some(gauge) = &mut holding.concurrency {
        let usage = Usage {
            worker: 1,
            in_use: 3,
            ..Usage::default()
        };
        gauge.draw(now, &policy, &usage, 1, true);
    }
}

#[test]
fn units_are_discovered_and_then_asked_for_together() {
    let policy = Policy::default();
    let mut holding = Holding::new(at(0), &policy);
    use_all(&mut holding, at(0));
    let first = asked(&mut holding, at(0));
    assert_eq!(units(&first), [Unit::Requests]);
    let (unit, sequence) = first[0];
    assert!(holding.handle_answer(
        at(2),
        &policy,
        unit,
        sequence,
        Origin::alone(Epoch(1)),
        &answer(100)
    ));
    let limited = [Unit::Requests, Unit::RequestBytes, Unit::Concurrency];
    holding.set_terms(at(2), &policy, &limited, None);
    assert_eq!(holding.due(), Some(at(1002)), "nobody uses them yet");

    use_all(&mut holding, at(10));
    let second = asked(&mut holding, at(10));
    assert_eq!(
        units(&second),
        limited,
        "requests go along, they are due soon"
    );
    for (unit, sequence) in second {
        assert!(holding.handle_answer(
            at(12),
            &policy,
            unit,
            sequence,
            Origin::alone(Epoch(1)),
            &answer(100)
        ));
    }
    // Those due a little later go along, and from then on all are due together.
    use_all(&mut holding, at(1002));
    let third = asked(&mut holding, at(1002));
    assert_eq!(units(&third), limited);
    assert_eq!(asked(&mut holding, at(1003)), [], "asked already");
}

#[test]
fn the_shard_to_ask_is_that_of_the_last_answer_unless_a_call_has_failed_since() {
    let policy = Policy::default();
    let mut holding = Holding::new(at(0), &policy);
    assert_eq!(holding.shard(), None);
    let of = |shard| Origin {
        shard: Some(ShardId(shard)),
        epoch: Epoch(1),
    };
    for (start, shard) in [(0, 2), (2000, 0)] {
        use_all(&mut holding, at(start));
        for (unit, sequence) in asked(&mut holding, at(start)) {
            let lent = answer(100);
            holding.handle_answer(at(start), &policy, unit, sequence, of(shard), &lent);
        }
        holding.set_terms(at(start), &policy, &[Unit::Concurrency], None);
        assert_eq!(holding.shard(), Some(ShardId(shard)));
    }
    // One that nobody has asked for yet has nothing to say, and what is asked for last counts.
    assert!(holding.has(Unit::Concurrency));
    use_all(&mut holding, at(4000));
    for (unit, sequence) in asked(&mut holding, at(4000)) {
        assert_eq!(
            holding.shard(),
            Some(ShardId(0)),
            "while an answer is awaited"
        );
        holding.handle_failure(at(4001), unit, sequence, 1);
    }
    assert_eq!(holding.shard(), None);
}

#[test]
fn what_is_not_limited_any_more_is_forgotten_and_what_stays_keeps_its_state() {
    let policy = Policy::default();
    let mut holding = Holding::new(at(0), &policy);
    holding.set_terms(at(0), &policy, &Unit::ALL, Some(&"group/gold".into()));
    use_all(&mut holding, at(0));
    assert_eq!(holding.canonical().map(|id| &**id), Some("group/gold"));
    let before = holding.clone();
    holding.set_terms(at(1), &policy, &Unit::ALL, Some(&"group/gold".into()));
    assert_eq!(holding, before);
    holding.set_terms(at(2), &policy, &[Unit::Requests, Unit::Concurrency], None);
    assert_eq!(holding.concurrency, before.concurrency);
    assert!(!holding.has(Unit::RequestBytes) && !holding.has(Unit::ResponseBytes));
    assert_eq!(holding.canonical(), None);
    holding.set_terms(at(3), &policy, &[], None);
    assert!(!holding.has(Unit::Concurrency) && holding.has(Unit::Requests));
}

#[test]
fn a_holding_with_something_in_flight_is_nobody_elses() {
    let policy = Policy::default();
    let mut holding = Holding::new(at(0), &policy);
    assert!(holding.is_reusable(at(0)));
    holding.set_terms(at(0), &policy, &[Unit::Concurrency], None);
    let gauge = holding.concurrency.as_mut().unwrap();
    let usage = Usage {
        worker: 1,
        ..Usage::default()
    };
    assert!(matches!(
        gauge.draw(at(0), &policy, &usage, 1, false),
        Permits::Held { .. }
    ));
    assert!(!holding.is_reusable(at(3_600_000)));
}

#[test]
fn bytes_may_be_owed_up_to_a_bound_and_the_next_waits_for_exactly_as_long() {
    let policy = Policy {
        max_debt: Duration::from_secs(3),
        ..Policy::default()
    };
    let mut holding = Holding::new(at(0), &policy);
    holding.set_terms(at(0), &policy, &[Unit::ResponseBytes], None);
    let bytes = holding.response_bytes.as_mut().unwrap();
    bytes.pay(at(0), &policy, 1, Tokens::ZERO);
    let Todo::Refresh(ask) = bytes.ask(at(0), &policy) else {
        panic!("nothing asked")
    };
    bytes.handle_answer(
        at(0),
        &policy,
        ask.sequence,
        Origin::alone(Epoch(1)),
        &answer(1000),
    );
    // A debt below the bound is owed in full, one above it as far as the bound.
    for (owed, wait_ms) in [(1000, 1000), (1_000_000, 3000)] {
        let mut bytes = bytes.clone();
        let left = bytes.bucket.balance(at(0)).unsigned_abs();
        bytes.pay(at(0), &policy, 1, Tokens::from_micros(left));
        bytes.pay(at(0), &policy, 1, Tokens::from_whole(owed));
        let denied = bytes.advance(at(0), &policy, 1);
        let Draw::Denied {
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
    let mut bytes = Holder::of(Unit::ResponseBytes, at(0), &policy);
    bytes.pay(at(0), &policy, 10_000_000, Tokens::from_whole(10_000_000));
    let mut asked = Vec::new();
    let mut now = 0;
    while bytes.bucket.balance(at(now)) < 0 {
        // Those that are refused meanwhile want little.
        bytes.pay(at(now), &policy, 500, Tokens::ZERO);
        match bytes.ask(at(now), &policy) {
            Todo::Refresh(ask) => {
                asked.push(ask.demand.wants());
                let given = answer(1_000_000);
                bytes.handle_answer(
                    at(now),
                    &policy,
                    ask.sequence,
                    Origin::alone(Epoch(1)),
                    &given,
                );
            }
            other => assert_eq!(other, Todo::Nothing),
        }
        now += 100;
    }
    // Each time the same is no reason to ask more often than every second.
    assert!((8..=11).contains(&asked.len()), "{asked:?}");
    assert!(asked.is_sorted(), "{asked:?}");
}

#[test]
fn whoever_uses_no_bytes_does_not_ask_for_any_and_keeps_its_burst() {
    let policy = Policy::default();
    let mut holding = Holding::new(at(0), &policy);
    holding.set_terms(at(0), &policy, &[Unit::RequestBytes], None);
    let bytes = holding.request_bytes.as_mut().unwrap();
    for ms in 0..100 {
        let Draw::Slab(tokens) = bytes.advance(at(ms), &policy, 1) else {
            panic!("refused")
        };
        bytes.give_back(at(ms), &policy, tokens);
    }
    assert_eq!((bytes.due(), bytes.state(at(100))), (None, State::Idle));
    bytes.pay(at(100), &policy, 100_000, Tokens::from_whole(100_000));
    assert_eq!(bytes.due(), Some(at(100)));
    let Todo::Refresh(ask) = bytes.ask(at(100), &policy) else {
        panic!("nothing asked")
    };
    let large = answer(100_000_000);
    assert!(bytes.handle_answer(
        at(102),
        &policy,
        ask.sequence,
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
    let mut holder = Holder::new(at(0), &policy);
    holder.count(at(0), 1);
    let need = Tokens::from_whole(11);
    let dear = holder.draw_at_once(at(0), &policy, need, 1);
    let burst = Tokens::from_whole(10);
    assert_eq!(dear, Draw::ExceedsBurst { burst });
    let dear = holder.draw_at_once(at(0), &policy, burst, 1);
    assert_eq!(dear, Draw::Slab(burst));
}
