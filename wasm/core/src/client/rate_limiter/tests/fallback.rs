//! Limits that are known, and what passes under them without a lease.

use super::*;

/// The number of 60 attempts that pass, one each 50 ms.
fn passes_in_three_seconds(p: &mut Process) -> usize {
    (0..60)
        .map(|_| {
            p.after(50).count(1);
            p.passes(1)
        })
        .sum()
}

/// Three logins per minute, as a coordinator that learns tells them: there is no lease yet.
fn three_per_minute() -> Answer {
    Answer {
        lease: None,
        safe: None,
        capacity: Capacity::from_micros(50_000),
        burst: Some(Tokens::from_whole(3)),
        ..answer(0)
    }
}

fn lent(capacity: Capacity, answer: Answer) -> Answer {
    let terms = LeaseTerms {
        capacity,
        burst: Tokens::from_whole(3),
        duration: Duration::from_secs(10),
        fingerprint: 1,
    };
    Answer {
        lease: Some(terms),
        ..answer
    }
}

fn answered(policy: Policy, answer: &Answer) -> Process {
    let mut p = Process::new();
    p.policy = policy;
    p.attempt(1);
    let request = p.ask();
    assert!(p.after(2).answer(request.sequence, 1, answer));
    p
}

#[test]
fn what_passes_after_the_expiry_is_the_mode() {
    // The mode; what passes of 200 attempts in each of 20 seconds, once the lease is over.
    let rows = [
        (Mode::Safe, 20_usize..=20),
        (Mode::Optimistic, 199..=200),
        (Mode::Pessimistic, 0..=0),
    ];
    for (mode, want) in rows {
        let mut p = Process::leased(100);
        p.policy.no_lease = mode;
        let mut passed = 0;
        for _ in 0..20 {
            p.after(1000).count(200);
            passed = p.passes(200);
        }
        assert_eq!(p.limiter.state(p.now), LeaseState::NoLease);
        assert!(want.contains(&passed), "{mode:?} {passed}");
    }
}

#[test]
fn while_the_coordinator_learns_no_more_passes_than_the_limit() {
    let mut p = answered(Policy::default(), &three_per_minute());
    assert_eq!(passes_in_three_seconds(&mut p), 1, "a token, and its rate");
}

#[test]
fn after_the_lease_no_more_passes_than_the_limit() {
    let limit = Capacity::from_micros(50_000);
    for (no_lease, want) in [
        (Mode::Safe, 1),
        (Mode::Optimistic, 2),
        (Mode::Pessimistic, 0),
    ] {
        let policy = Policy {
            no_lease,
            ..Policy::default()
        };
        let mut p = answered(policy, &lent(limit, three_per_minute()));
        assert_eq!(p.passes(60), 3, "the burst");
        p.after(50_000).count(60);
        let passed = p.passes(60) + passes_in_three_seconds(&mut p);
        assert_eq!(p.limiter.state(p.now), LeaseState::NoLease);
        assert!(passed <= want, "{no_lease:?} {passed}");
    }
}

#[test]
fn the_fallback_has_no_larger_burst_than_the_limit() {
    let known = |burst| Answer {
        capacity: Capacity::from_whole(100),
        burst,
        ..three_per_minute()
    };
    for (burst, want) in [
        (Some(Tokens::from_whole(5)), 5),
        (Some(Tokens::from_whole(200)), 10),
        (None, 10),
    ] {
        let mut p = answered(Policy::default(), &known(burst));
        assert_eq!(p.passes(60), want, "{burst:?}");
    }
}

#[test]
fn a_safe_capacity_above_the_limit_is_cut() {
    let mut known = three_per_minute();
    known.safe = Some(Capacity::from_whole(20));
    let mut p = answered(Policy::default(), &known);
    assert_eq!(passes_in_three_seconds(&mut p), 1);
}

#[test]
fn a_limit_of_bytes_bounds_its_fallback_too() {
    let (now, policy) = (Instant::from_nanos(1_000_000_000), Policy::default());
    let mut limiter = RateLimiter::of(Unit::RequestBytes, now, &policy);
    limiter.count(now, 1);
    limiter.draw_bytes(
        now,
        &policy,
        Tokens::ONE,
        1,
        crate::client::AwaitAction::Refuse,
    );
    limiter.pay(now, &policy, 1, Tokens::ONE);
    let LeaseMessage::Refresh(request) = limiter.ask(now, &policy) else {
        panic!("nothing is asked")
    };
    let known = Answer {
        capacity: Capacity::from_whole(1000),
        burst: Some(Tokens::from_whole(500)),
        ..three_per_minute()
    };
    let origin = Origin::alone(Epoch(1));
    assert!(limiter.handle_answer(now, &policy, request.sequence, origin, &known));
    let want = (Rate::from_whole(1000), Tokens::from_whole(500));
    assert_eq!(limiter.flow(now, &policy), want, "less than 1 MiB");
}

#[test]
fn a_scope_without_a_limit_is_not_throttled_when_the_coordinator_is_away() {
    let free = Answer {
        capacity: Capacity::UNLIMITED,
        burst: None,
        ..three_per_minute()
    };
    let unlimited = lent(Capacity::UNLIMITED, free);
    let with_safe = Answer {
        safe: Some(Capacity::from_whole(5)),
        ..unlimited
    };
    // Answers, and the attempts of 1000 that pass long after the last lease.
    let rows: [(&[Answer], usize); 5] = [
        (&[unlimited], 1000),
        // A coordinator that waits for its parent does not take back what it said.
        (&[unlimited, free], 1000),
        (&[free], 10),
        (&[with_safe], 5),
        (&[unlimited, three_per_minute()], 1),
    ];
    for (answers, want) in rows {
        let mut p = answered(Policy::default(), &answers[0]);
        for answer in &answers[1..] {
            let request = p.after(1000).ask();
            assert!(p.answer(request.sequence, 1, answer));
        }
        p.after(30_000).count(1000);
        assert_eq!(p.passes(1000), want, "{answers:?}");
    }
}

#[test]
fn a_coordinator_that_waits_for_its_parent_does_not_take_back_the_limit() {
    let mut p = answered(Policy::default(), &three_per_minute());
    let waiting = Answer {
        capacity: Capacity::UNLIMITED,
        burst: None,
        ..three_per_minute()
    };
    let request = p.after(1000).ask();
    assert!(p.answer(request.sequence, 1, &waiting));
    assert_eq!(passes_in_three_seconds(&mut p), 1);
}

#[test]
fn of_a_scope_that_is_not_known_the_usual_limit_of_its_rule_holds() {
    let limit = |capacity, safe| {
        Some(KnownLimit {
            capacity,
            burst: Some(Tokens::from_whole(3)),
            safe,
        })
    };
    let rows = [
        (None, 10),
        (limit(Capacity::from_micros(50_000), None), 1),
        (
            limit(Capacity::from_whole(50), Some(Capacity::from_whole(2))),
            2,
        ),
        (limit(Capacity::from_whole(50), None), 3),
        (
            Some(KnownLimit {
                capacity: Capacity::UNLIMITED,
                burst: None,
                safe: Some(Capacity::UNLIMITED),
            }),
            60,
        ),
    ];
    for (usual, want) in rows {
        let mut p = Process::new();
        p.policy.usual = usual;
        p.policy.first_lease_wait = Duration::ZERO;
        p.limiter = RateLimiter::new(p.now, &p.policy);
        let first = usize::from(matches!(p.attempt(1), DrawResult::Tokens(_)));
        let request = p.ask();
        p.fail(request.sequence);
        let passed = first + p.passes(59);
        assert_eq!(passed, want, "{usual:?}");
    }
    // The limit of the scope itself comes first, if it is known.
    let mut p = answered(Policy::default(), &three_per_minute());
    p.policy.usual = limit(Capacity::from_whole(50), Some(Capacity::from_whole(20)));
    assert_eq!(passes_in_three_seconds(&mut p), 1);
}
