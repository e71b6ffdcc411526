use core::num::NonZeroU64;
use std::vec::Vec;

use super::*;
use crate::client::{AwaitAction, DrawResult, LeaseMessage, LeaseState, Policy, WorkerUsage};
use crate::lease::{
    Answer, ClientId, ClientRun, Epoch, LeaseTerms, Origin, ResourceId, Run, UnitAnswer,
};
use crate::lease_server::{Bounds, LeaseServer, Start, Terms};
use crate::limit::Limit;
use crate::units::Tokens;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000_000).saturating_add(Duration::from_millis(ms))
}

/// An answer that lends `gets` of a `whole` capacity.
fn answer(gets: u64, whole: u64) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity: Capacity::from_whole(gets),
            burst: Tokens::from_whole(gets),
            duration: Duration::from_secs(10),
            fingerprint: 1,
        }),
        refresh_interval: Duration::from_millis(100),
        safe: None,
        capacity: Capacity::from_whole(whole),
        period: None,
        burst: None,
        draw: None,
    }
}

/// Sends what is due, and applies `answer` to it.
fn ask(state: &mut ScopeState, now: Instant, answer: Answer) {
    let policy = Policy::default();
    for (unit, message) in state.ask(now, &policy) {
        let LeaseMessage::Refresh(request) = message else {
            panic!("{message:?}");
        };
        let answer = UnitAnswer {
            unit,
            sequence: request.sequence,
            answer,
        };
        state.handle_answer(now, &policy, Origin::alone(Epoch(1)), &answer);
    }
}

fn attempt(state: &mut ScopeState, now: Instant, cost: u64) {
    let cost = Tokens::from_whole(cost);
    state.requests.count(now, 1);
    state
        .requests
        .draw_at_once(now, &Policy::default(), cost, 1);
}

/// A scope with a lease of 100 per second that is full.
fn leased() -> ScopeState {
    used(answer(100, 100))
}

/// A scope with a full bucket and the lease of `first`.
fn used(first: Answer) -> ScopeState {
    let mut state = ScopeState::new(at(0), &Policy::default());
    state.requests.count(at(0), 1);
    state
        .requests
        .draw(at(0), &Policy::default(), Tokens::ONE, 1);
    ask(&mut state, at(0), first);
    state
}

#[test]
fn a_bucket_that_is_not_full_is_worth_its_slot() {
    let mut state = leased();
    assert!(state.worth(at(0)).is_some());
    attempt(&mut state, at(0), 10);
    assert_eq!(state.worth(at(99)), None);
    assert!(state.worth(at(100)).is_some());
}

#[test]
fn a_scope_whose_first_lease_is_awaited_or_that_is_about_to_grow_is_worth_its_slot() {
    let mut state = ScopeState::new(at(0), &Policy::default());
    assert!(state.worth(at(0)).is_some(), "never used");
    state.requests.count(at(0), 1);
    state
        .requests
        .draw(at(0), &Policy::default(), Tokens::ONE, 1);
    assert_eq!(state.worth(at(249)), None);
    assert!(state.worth(at(250)).is_some(), "none are held any more");
    ask(&mut state, at(250), answer(0, 100));
    assert_eq!(state.worth(at(260)), None, "others are to give back");
}

#[test]
fn a_lease_that_has_expired_is_settled_before_it_is_judged() {
    let mut state = leased();
    assert!(state.worth(at(9_999)).is_some());
    // By the old rate it would be full at once, though none of it is leased.
    assert_eq!(state.worth(at(10_000)), None);
    attempt(&mut state, at(10_000), 5);
    assert_eq!(state.worth(at(10_499)), None);
    assert!(state.worth(at(10_500)).is_some());
}

#[test]
fn a_bucket_cut_to_the_safe_burst_has_not_what_a_first_lease_brings() {
    let minute = LeaseTerms {
        capacity: Capacity::from_micros(1_666_666),
        burst: Tokens::from_whole(100),
        ..answer(100, 100).lease.unwrap()
    };
    let minute = Answer {
        lease: Some(minute),
        capacity: minute.capacity,
        burst: Some(minute.burst),
        ..answer(100, 100)
    };
    let mut state = used(minute);
    attempt(&mut state, at(100), 90);
    // The lease is over, and the coordinator silent: 10 tokens are cut to less than 2.
    for ms in [10_100, 20_300] {
        for (_, message) in state.ask(at(ms), &Policy::default()) {
            if let LeaseMessage::Refresh(request) = message {
                state.requests.handle_failure(at(ms), request.sequence, 1);
            }
        }
        assert!(state.requests.is_full(at(ms)));
        assert_eq!(state.worth(at(ms)), None, "after {ms} ms");
        assert!(!state.is_reusable(at(ms)), "after {ms} ms");
    }
    assert!(state.is_reusable(at(60_100)), "abandoned");
}

#[test]
fn a_part_of_a_limit_that_is_leased_is_had_again() {
    let mut state = used(answer(10, 10));
    ask(&mut state, at(100), answer(5, 10));
    assert!(state.requests.is_full(at(100)));
    assert!(state.worth(at(100)).is_some());
}

/// A new bucket could have the larger part again with its first lease.
#[test]
fn a_bucket_cut_to_a_smaller_part_earns_back_what_it_lacked_of_the_larger_one() {
    let mut state = used(answer(10, 10));
    attempt(&mut state, at(0), 8);
    ask(&mut state, at(300), answer(5, 10));
    assert!(state.requests.is_full(at(300)));
    assert_eq!(state.worth(at(1299)), None);
    assert!(state.worth(at(1300)).is_some());
    // Tokens that it takes meanwhile come on top.
    attempt(&mut state, at(800), 2);
    assert_eq!(state.worth(at(1699)), None);
    assert!(state.worth(at(1700)).is_some());
}

/// A process and its coordinator, with 10 requests a minute and a burst as large.
struct Site {
    server: LeaseServer,
    limit: Limit,
    id: ResourceId,
    admitted: u64,
}

impl Site {
    fn new() -> Self {
        let bounds = Bounds {
            max_resources: 1,
            max_clients_per_resource: 2,
            max_leases: 2,
            max_durable: 100_000,
        };
        let mut limit = Limit::new(Capacity::from_micros(166_666));
        limit.burst = Tokens::from_whole(10);
        Self {
            server: LeaseServer::new(at(0), Epoch(1), bounds, Start::Fresh),
            limit,
            id: ResourceId::new("tenant/acme", Unit::Requests).unwrap(),
            admitted: 0,
        }
    }

    /// Makes `attempts` in the process of `client`, and lets it ask if it is due.
    fn work(&mut self, now: Instant, client: &ClientRun, state: &mut ScopeState, attempts: u64) {
        let policy = Policy::default();
        let limiter = &mut state.requests;
        limiter.count(now, attempts);
        for _ in 0..attempts {
            if let DrawResult::Tokens(tokens) = limiter.draw(now, &policy, Tokens::ONE, 1) {
                self.admitted += tokens.whole();
            }
        }
        for (unit, message) in state.ask(now, &policy) {
            let server = &mut self.server;
            let request = match message {
                LeaseMessage::Refresh(request) => request,
                LeaseMessage::Release { sequence } => {
                    server.handle_release(client, &self.id, sequence);
                    continue;
                }
                LeaseMessage::Nothing => continue,
            };
            let (sequence, terms) = (request.sequence, Terms::of(&self.limit));
            let answer = server.handle_refresh(now, client, &self.id, &request, &terms);
            let answer = UnitAnswer {
                unit,
                sequence,
                answer: answer.unwrap(),
            };
            state.handle_answer(now, &policy, Origin::alone(Epoch(1)), &answer);
        }
    }
}

/// It waits until it has earned half of the burst, wants so little that only half of the limit is lent
/// to it, and has the whole again when it comes back.
#[test]
fn a_process_that_gives_a_slot_away_again_and_again_has_one_burst() {
    for is_shared in [false, true] {
        let mut site = Site::new();
        let [client, greedy] = ["a/1", "b/1"].map(|id| ClientRun {
            id: ClientId::new(id).unwrap(),
            run: Run::Incarnation(NonZeroU64::MIN),
        });
        let new = |ms| ScopeState::new(at(ms), &Policy::default());
        let (mut state, mut other) = (new(0), new(0));
        let (mut came_at, mut returns) = (0, 0);
        for ms in (0..600_000).step_by(100) {
            let now = at(ms);
            site.server.handle_timeout(now);
            if is_shared {
                site.work(now, &greedy, &mut other, 10);
            }
            let attempts = match ms - came_at {
                0..500 => 20,
                32_000 => 1,
                _ => 0,
            };
            site.work(now, &client, &mut state, attempts);
            let holds_nothing = state.worth(now).is_some() || state.is_reusable(now);
            if ms - came_at >= 500 && holds_nothing {
                for (_, sequence) in state.releases(now) {
                    site.server.handle_release(&client, &site.id, sequence);
                }
                (state, came_at) = (new(ms + 100), ms + 100);
                returns += 1;
            }
        }
        let admitted = site.admitted;
        assert!(returns > 3, "{returns} returns, shared: {is_shared}");
        assert!(
            admitted <= 111,
            "{admitted}, {returns} returns, shared: {is_shared}"
        );
    }
}

#[test]
fn those_whose_limit_is_unknown_go_first_and_then_the_longest_idle() {
    let (mut long, mut lately) = (leased(), leased());
    long.requests.lease.client.lease = None;
    long.requests.lease.phase = Phase::Lapsed;
    long.requests
        .bucket
        .set(at(0), Rate::from_whole(10), Tokens::from_whole(100));
    attempt(&mut lately, at(10), 1);
    let without = ScopeState::new(at(900), &Policy::default());
    let mut worths = [&lately, &long, &without].map(|state| state.worth(at(1000)));
    worths.sort_unstable();
    let order = [&without, &long, &lately].map(|state| state.worth(at(1000)));
    assert_eq!(worths, order);
    assert!(order.iter().all(Option::is_some));
}

#[test]
fn a_limit_below_the_safe_capacity_is_not_forgotten_while_none_answers() {
    for whole in [0, 3] {
        let mut state = used(answer(whole, whole));
        assert!(state.worth(at(2000)).is_some(), "it can be had again");
        for ms in [10_000, 21_000] {
            attempt(&mut state, at(ms), 1);
            for (_, message) in state.ask(at(ms), &Policy::default()) {
                if let LeaseMessage::Refresh(request) = message {
                    state.requests.handle_failure(at(ms), request.sequence, 1);
                }
            }
            assert!(state.requests.bucket.is_whole(at(ms + 5000)));
            assert_eq!(state.worth(at(ms + 5000)), None, "{whole} after {ms} ms");
        }
        for (_, message) in state.ask(at(32_000), &Policy::default()) {
            assert!(
                matches!(message, LeaseMessage::Release { .. }),
                "{message:?}"
            );
        }
        assert_eq!(state.requests.state(at(32_000)), LeaseState::Idle);
        assert_eq!(state.worth(at(32_000)), None);
        assert!(!state.is_reusable(at(32_000)));
        assert!(state.is_reusable(at(82_000)), "abandoned");
    }
}

#[test]
fn bytes_and_permits_count_as_well() {
    let policy = Policy::default();
    let mut state = leased();
    state.set_terms(at(0), &policy, &[Unit::RequestBytes], None);
    assert_eq!(state.worth(at(999)), None, "a stream may go on");
    assert!(state.worth(at(1000)).is_some());
    let owed = Tokens::from_whole(5 << 20);
    if let Some(bytes) = state.rate_mut(Unit::RequestBytes) {
        bytes.pay(at(0), &policy, 1, owed);
    }
    assert_eq!(state.worth(at(4999)), None, "a debt");
    assert!(state.worth(at(5000)).is_some());

    let mut state = leased();
    state.set_terms(at(0), &policy, &[Unit::Concurrency], None);
    let usage = WorkerUsage {
        worker: 1,
        ..WorkerUsage::default()
    };
    let limiter = state.concurrency.as_mut().unwrap();
    limiter.draw(at(0), &policy, &usage, 1, AwaitAction::Refuse);
    assert_eq!(state.worth(at(1000)), None, "a permit");
    let limiter = state.concurrency.as_mut().unwrap();
    limiter.report(at(1000), &usage);
    assert!(state.worth(at(1000)).is_some());
}

#[test]
fn leases_held_or_awaited_are_released_with_the_sequence_of_their_request() {
    let mut state = leased();
    let releases = |state: &ScopeState, ms| state.releases(at(ms)).collect::<Vec<_>>();
    assert_eq!(releases(&state, 0), [(Unit::Requests, at(0).as_nanos())]);
    ask(&mut state, at(100), answer(100, 100));
    assert_eq!(
        releases(&state, 200),
        [(Unit::Requests, at(100).as_nanos())]
    );
    assert_eq!(releases(&state, 10_100), [], "none is left");
    attempt(&mut state, at(10_100), 1);
    let requested = state.ask(at(10_100), &Policy::default());
    assert_eq!(requested.len(), 1);
    let awaited = [(Unit::Requests, at(10_100).as_nanos())];
    assert_eq!(releases(&state, 10_100), awaited, "the answer is dropped");
    let never = ScopeState::new(at(0), &Policy::default());
    assert_eq!(releases(&never, 0), []);
}
