//! Debts of limiters that draw, and the times that refusals name.

use super::draws::Drawers;
use super::*;
use crate::client::{DrawResult, LeaseMessage, Policy, RateLimiter};
use crate::lease::{Answer, Epoch, Origin};
use crate::limit::Part;
use crate::units::Tokens;

/// A limiter and its coordinator, a millisecond away.
struct Pair {
    limiter: RateLimiter,
    policy: Policy,
    resource: Resource,
    now: Instant,
    /// Answer that is on its way, and the sequence of its request.
    answer: Option<(Instant, u64, Answer)>,
}

impl Pair {
    fn new(rate: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        let policy = Policy::default();
        let limit = Limit {
            headroom: Part::ALL,
            ..Limit::new(Capacity::from_whole(rate))
        };
        Self {
            limiter: RateLimiter::new(now, &policy),
            policy,
            resource: Resource::new(Unit::Requests, limit, Instant::ZERO),
            now,
            answer: None,
        }
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        if let Some((_, sequence, answer)) = self.answer.take_if(|(at, ..)| *at <= self.now) {
            let origin = Origin::alone(Epoch(1));
            let applied =
                self.limiter
                    .handle_answer(self.now, &self.policy, sequence, origin, &answer);
            assert!(applied);
        }
        let LeaseMessage::Refresh(request) = self.limiter.ask(self.now, &self.policy) else {
            return;
        };
        let client = ClientRun::only(ClientId::new("envoy").unwrap());
        let answer =
            self.resource
                .handle_refresh(self.now, &client, &request, 10, &mut PoolLink(None));
        let at = self.now.saturating_add(Duration::from_millis(1));
        self.answer = Some((at, request.sequence, answer.unwrap()));
    }

    /// Draws a token for a request, which waits if it may.
    fn draw(&mut self) -> DrawResult {
        self.limiter.count(self.now, 1);
        loop {
            let result = self.limiter.draw(self.now, &self.policy, Tokens::ONE, 1);
            match result {
                DrawResult::Pending { .. } => self.step(),
                result => return result,
            }
        }
    }
}

#[test]
fn a_request_passes_when_a_debt_is_paid_as_it_was_told() {
    for cost in [100, 150, 300, 777] {
        let mut pair = Pair::new(100);
        assert!(matches!(pair.draw(), DrawResult::Tokens(_)));
        for _ in 0..5 {
            pair.step();
        }
        pair.limiter
            .pay(pair.now, &pair.policy, 0, Tokens::from_whole(cost));
        for _ in 0..3 {
            pair.step();
        }
        let answer = pair.draw();
        let DrawResult::Denied {
            retry_at: Some(retry_at),
        } = answer
        else {
            panic!("{cost}: {answer:?}");
        };
        while pair.now < retry_at {
            pair.step();
        }
        let again = pair.draw();
        let passed = matches!(again, DrawResult::Tokens(_));
        assert!(passed, "{cost}: {again:?} at {:?}", pair.now);
    }
}

#[test]
fn what_a_client_owes_is_paid_before_others_draw() {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.draw(0, 4).0, 4);
    assert_eq!(fleet.owe(0, 9), 9);
    let (none, next) = fleet.draw(1, 1);
    assert_eq!((none, next.unwrap().as_secs()), (0, 4), "three are lacking");
    assert_eq!(fleet.after(3).draw(1, 1).0, 0);
    assert_eq!(fleet.after(1).draw(1, 1).0, 1);
}

#[test]
fn what_is_owed_beyond_the_longest_debt_is_not_paid() {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.owe(0, 100), 10 + 20);
    assert_eq!(fleet.owe(1, 1), 0, "however many owe");
    assert_eq!(fleet.after(20).draw(1, 1).0, 0);
    assert_eq!(fleet.after(1).draw(1, 1).0, 1);
}

#[test]
fn what_is_owed_is_paid_once_though_an_answer_is_lost() {
    let mut fleet = Drawers::new(1_000_000, 10);
    fleet.owe(0, 8);
    fleet.clients[0].0 = 0;
    assert_eq!(fleet.resource.allocation.held_by_clients(), Tokens::ZERO);
    assert_eq!(fleet.owe(0, 9), 9, "another one since then");
    assert_eq!(fleet.draw(1, 2).0, 1);
}

#[test]
fn a_limit_that_gets_busy_is_not_leased_before_its_debt_is_paid() {
    let mut fleet = Drawers::new(100_000_000, 100);
    fleet.draw(0, 1);
    assert_eq!(fleet.owe(0, 110), 110);
    fleet.wants = 100;
    for _ in 0..10 {
        assert!(fleet.draw_or_lease(0, 1));
        fleet.now = fleet.now.saturating_add(Duration::from_millis(10));
    }
    assert!(!fleet.after(2).draw_or_lease(0, 1));
}

#[test]
fn nobody_can_have_the_bucket_owe_for_ever() {
    let mut fleet = Drawers::new(1_000_000, 10);
    fleet.debt_max = Tokens::from_micros(u64::MAX);
    assert_eq!(fleet.owe(0, u64::MAX / 1_000_000), 10 + 3600);
    assert_eq!(fleet.after(3601).draw(1, 1).0, 1);
}

#[test]
fn a_bucket_in_debt_is_in_debt_after_a_crash() {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.owe(0, 25), 25);
    let allocation = &mut fleet.resource.allocation;
    let (stored, is_urgent) = allocation.bucket_to_store(fleet.now).unwrap();
    assert!(is_urgent);
    let mut next = Drawers::new(1_000_000, 10);
    let stored = stored.after(Duration::from_secs(5));
    next.now = fleet.now;
    next.resource.allocation.restore_bucket(next.now, &stored);
    assert_eq!(next.draw(0, 1).0, 0, "it owes ten");
    assert_eq!(next.after(10).draw(0, 1).0, 0);
    assert_eq!(next.after(1).draw(0, 1).0, 1);
}
