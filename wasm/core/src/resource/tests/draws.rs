//! Draws of the fleet's bucket.

use alloc::format;
use core::num::NonZeroU32;

use super::*;
use crate::lease::{Band, Demand, DrawAnswer, DrawRequest, Priority};
use crate::traffic::{Counts, Tally};
use crate::units::Tokens;

/// Clients that draw, on a clock that the test moves.
pub(super) struct Drawers {
    pub(super) resource: Resource,
    pub(super) now: Instant,
    sequence: u64,
    account: u64,
    /// For each what it has applied, and what it has left.
    pub(super) clients: [(u64, u64); 3],
    /// Attempts that it has not reported.
    attempts: [u64; 3],
    /// Wants of each, a second.
    pub(super) wants: u64,
    /// Their priority.
    pub(super) priority: Priority,
    /// Time since which all of them have spent what they say, in seconds.
    spent_for: u64,
    /// Tokens that the one owes that asks.
    owed: u64,
    /// Tokens that came back to the one that asks.
    refunds: u64,
    /// The most that the bucket may lack because of them.
    pub(super) debt_max: Tokens,
    /// Tokens that a request takes.
    pub(super) cost: u64,
}

// === impl Drawers ===

impl Drawers {
    /// Three clients of a limit of `rate` millionths a second.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let limit = Limit {
            burst: Tokens::from_whole(burst),
            ..Limit::new(Capacity::from_micros(rate))
        };
        Self {
            resource: Resource::new(Unit::Requests, limit, Instant::ZERO),
            now: Instant::from_nanos(1),
            sequence: 0,
            account: 1,
            clients: [(0, 0); 3],
            attempts: [0; 3],
            wants: 1,
            priority: Priority::LOWEST,
            spent_for: 0,
            owed: 0,
            refunds: 0,
            debt_max: Tokens::from_whole(20),
            cost: 1,
        }
    }

    /// The same of a limit that has been busy for long, so that its clients are leased if there is enough for
    /// each.
    pub(super) fn busy(rate: u64, burst: u64) -> Self {
        let mut fleet = Self::new(rate, burst);
        fleet.wants = rate / 1_000_000;
        fleet.draw_or_lease(0, 0);
        fleet.after(1);
        fleet
    }

    pub(super) fn after(&mut self, secs: u64) -> &mut Self {
        self.now = self.now.saturating_add(Duration::from_secs(secs));
        self
    }

    /// Asks for `needs` tokens; the answer is lost.
    pub(super) fn lose(&mut self, client: usize, needs: u64) -> Answer {
        self.sequence += 1;
        self.send(client, needs, 0)
    }

    /// Owes `tokens`; returns how many of them were paid.
    pub(super) fn owe(&mut self, client: usize, tokens: u64) -> u64 {
        self.owed = tokens;
        let answer = self.lose(client, 0);
        self.owed = 0;
        let granted = answer.draw.unwrap().granted.whole();
        granted - core::mem::replace(&mut self.clients[client].0, granted)
    }

    /// Gives back `returns` of the tokens that it has left.
    pub(super) fn give_back(&mut self, client: usize, returns: u64) {
        self.sequence += 1;
        self.clients[client].1 -= returns;
        self.send(client, 0, returns);
    }

    /// Tells that `tokens` that it has spent came back, twice over if the transport is bad.
    pub(super) fn refund(&mut self, client: usize, tokens: u64, times: u32) {
        self.sequence += 1;
        self.refunds = tokens;
        for _ in 0..times {
            self.send(client, 0, 0);
        }
        self.refunds = 0;
    }

    /// Sends a request, or the latest one again.
    fn send(&mut self, client: usize, needs: u64, returns: u64) -> Answer {
        let (drawn, holds) = self.clients[client];
        let draw = DrawRequest {
            account: self.account,
            drawn: Tokens::from_whole(drawn),
            holds: Tokens::from_whole(holds),
            needs: Tokens::from_whole(needs),
            first: Tokens::from_whole(self.cost),
            returns: Tokens::from_whole(returns),
            spent_for: Duration::from_secs(self.spent_for),
            owed: Tokens::from_whole(self.owed),
            debt_max: self.debt_max,
            refunds: Tokens::from_whole(self.refunds),
            refunded_for: Duration::ZERO,
        };
        let demand = Demand::one(Band {
            priority: self.priority,
            wants: Capacity::from_whole(self.wants),
            subclients: NonZeroU32::MIN,
        });
        let request = LeaseRequest {
            draw: Some(draw),
            demand,
            tally: Tally {
                since: self.sequence,
                counts: Counts {
                    attempts: self.attempts[client],
                    refused: 0,
                },
            },
            ..LeaseRequest::new(
                self.sequence,
                Capacity::ZERO,
                Capacity::from_whole(self.wants),
            )
        };
        self.attempts[client] = 0;
        let mut pool = PoolLink(None);
        let answer = self
            .resource
            .handle_refresh(self.now, &run(client), &request, 10, &mut pool);
        answer.unwrap()
    }

    /// Asks for `needs` tokens, and spends what it gets, drawn or with a lease. Returns whether it draws.
    pub(super) fn draw_or_lease(&mut self, client: usize, needs: u64) -> bool {
        let answer = self.lose(client, needs);
        self.clients[client] = (answer.draw.unwrap().granted.whole(), 0);
        answer.lease.unwrap().capacity == Capacity::ZERO
    }

    pub(super) fn release(&mut self, client: usize) {
        self.resource.handle_release(&run(client), u64::MAX);
    }

    /// Asks for `needs` tokens, and spends what it gets; returns how many it got, and when to come back.
    pub(super) fn draw(&mut self, client: usize, needs: u64) -> (u64, Option<Duration>) {
        let answer = self.lose(client, needs);
        assert_eq!(answer.lease.unwrap().capacity, Capacity::ZERO);
        let DrawAnswer { granted, next, .. } = answer.draw.unwrap();
        let (drawn, holds) = self.clients[client];
        let left = granted.whole() - drawn + holds;
        let spent = left.min(needs);
        self.clients[client] = (granted.whole(), left - spent);
        (spent, next)
    }
}

pub(super) fn run(client: usize) -> ClientRun {
    ClientRun {
        id: ClientId::new(&format!("envoy-{client}/0")).unwrap(),
        run: Run::Incarnation(NonZeroU64::MIN),
    }
}

#[test]
fn ten_a_minute_is_ten_wherever_they_are_drawn() {
    let mut fleet = Drawers::new(1_000_000 / 6, 10);
    let got: u64 = (0..13).map(|i| fleet.draw(i % 3, 1).0).sum();
    assert_eq!(got, 10);
    let (none, next) = fleet.draw(0, 1);
    assert_eq!((none, next.unwrap().as_secs()), (0, 6), "the next token");
    let later: u64 = (0..40).map(|i| fleet.after(3).draw(i % 3, 1).0).sum();
    assert!((19..=20).contains(&later), "{later} in two minutes");
}

#[test]
fn an_answer_that_is_lost_is_made_up_for_by_the_next() {
    let mut fleet = Drawers::new(1_000_000 / 6, 10);
    let lost = fleet.lose(0, 4).draw.unwrap();
    assert_eq!(lost.granted, Tokens::from_whole(4));
    assert_eq!(fleet.draw(0, 4).0, 4, "the same tokens");
    assert_eq!(fleet.draw(1, 10).0, 6);
}

#[test]
fn a_request_that_comes_twice_brings_nothing_more() {
    let mut fleet = Drawers::new(1_000_000 / 6, 10);
    let first = fleet.lose(0, 4).draw.unwrap();
    fleet.sequence -= 1;
    let again = fleet.lose(0, 4).draw.unwrap();
    assert_eq!(again.granted, first.granted);
}

#[test]
fn what_a_client_holds_has_no_room_in_the_bucket() {
    let mut fleet = Drawers::new(1_000_000, 10);
    fleet.lose(0, 6);
    fleet.after(8);
    assert_eq!(fleet.draw(1, 10).0, 4);
}

#[test]
fn what_a_client_held_that_has_gone_is_room_again() {
    let mut fleet = Drawers::new(1_000_000, 10);
    fleet.lose(0, 6);
    fleet.after(20);
    assert_eq!(fleet.draw(1, 20).0, 4, "its lease has just ended");
    fleet.after(1).draw(1, 0);
    fleet.after(20);
    assert_eq!(fleet.draw(1, 20).0, 10, "it has said that all is spent");
}

#[test]
fn a_bucket_is_remembered_until_it_is_full() {
    let mut fleet = Drawers::new(1_000_000, 10);
    fleet.draw(0, 9);
    fleet.release(0);
    assert_eq!(fleet.resource.client_count(), 0);
    fleet.resource.expire(fleet.now);
    let mut looks = 0;
    while let Some(at) = fleet.resource.poll_timeout() {
        fleet.resource.expire(at);
        fleet.now = at;
        looks += 1;
    }
    assert_eq!((fleet.now.as_nanos() - 1) / 1_000_000_000, 9);
    assert!(looks <= 2, "{looks}");
}

#[test]
fn a_lowered_burst_comes_back_with_what_was_left() {
    let mut fleet = Drawers::new(1_000_000, 100);
    assert_eq!(fleet.draw(0, 1).0, 1);
    let limit = fleet.resource.limit().clone();
    let low = Limit {
        burst: Tokens::ONE,
        ..limit.clone()
    };
    let allocation = &mut fleet.resource.allocation;
    allocation.set_limit(fleet.now, &low);
    allocation.set_limit(fleet.now, &limit);
    assert_eq!(fleet.draw(0, 100).0, 99);
}

#[test]
fn a_client_that_has_forgotten_what_it_drew_is_not_granted_it_again() {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.draw(0, 4).0, 4);
    (fleet.clients[0], fleet.account) = ((0, 0), 2);
    assert_eq!(fleet.draw(0, 10).0, 6);
}

#[test]
fn a_burst_of_a_limit_that_is_little_used_passes_anywhere() {
    for rate in [20, 100, 999] {
        let mut fleet = Drawers::new(rate * 1_000_000, rate);
        for client in 0..3 {
            fleet.draw(client, 1);
        }
        fleet.after(1);
        fleet.wants = rate;
        let held = rate / 8 + 4;
        let (got, _) = fleet.draw(2, rate - held);
        assert_eq!(got, rate - held, "of {rate}");
    }
}

#[test]
fn what_is_drawn_ahead_is_a_part_of_a_burst_that_is_nearly_full() {
    let mut fleet = Drawers::new(999_000_000, 1000);
    fleet.wants = 10;
    for client in 0..3 {
        fleet.lose(client, 1);
    }
    let held = fleet.resource.held_by_clients();
    assert_eq!(held, Tokens::from_whole(33), "a second of each");
    fleet.wants = 100;
    fleet.after(1).lose(0, 0);
    let held = fleet.resource.held_by_clients();
    assert!(held <= Tokens::from_whole(1000 / 8 + 22), "{held:?}");
    assert_eq!(fleet.draw(0, 700).0, 700);
    let before = fleet.resource.held_by_clients();
    fleet.lose(0, 0);
    assert!(
        fleet.resource.held_by_clients() < before,
        "too few are left"
    );

    let mut fleet = Drawers::new(10_000_000, 1000);
    fleet.lose(0, 1);
    let held = fleet.resource.held_by_clients();
    assert_eq!(held, Tokens::ONE, "of a small limit nothing");
}

#[test]
fn a_lowered_burst_is_remembered_until_the_old_one_would_be_full() {
    let mut fleet = Drawers::new(1_000_000, 100);
    assert_eq!(fleet.draw(0, 100).0, 100);
    let low = Limit {
        burst: Tokens::ONE,
        ..fleet.resource.limit().clone()
    };
    fleet.resource.allocation.set_limit(fleet.now, &low);
    fleet.release(0);
    fleet.after(50);
    fleet.resource.expire(fleet.now);
    assert!(fleet.resource.fleet_bucket().is_some());
    fleet.after(51);
    fleet.resource.expire(fleet.now);
    assert!(fleet.resource.fleet_bucket().is_none());
}

/// Of ten a minute one client asks two hundred times a minute, and another twenty times.
#[test]
fn a_modest_client_gets_its_part_beside_a_greedy_one() {
    let mut all = Drawers::new(166_667, 10);
    let mut random = 1_u64;
    let (mut next, mut got) = ([0_u64; 2], [0_u64; 2]);
    for tenth in 1..36_000_u64 {
        all.now = Instant::from_nanos(tenth * 100_000_000);
        for (client, per_mille) in [(0, 333), (1, 33)] {
            all.wants = [4, 1][client];
            if tenth % 10 == 0 {
                all.draw(client, 0);
            }
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if (random >> 33) % 1000 >= per_mille {
                continue;
            }
            all.attempts[client] += 1;
            // A client that was told when the next token comes refuses by itself until then.
            if tenth >= next[client] {
                let (spent, wait) = all.draw(client, 1);
                got[client] += spent;
                next[client] = tenth + wait.unwrap_or_default().as_millis().div_ceil(100) as u64;
            }
        }
    }
    let [greedy, modest] = got;
    assert!(greedy + modest >= 600, "of 610: {got:?}");
    assert!(modest * 100 >= greedy * 80, "{got:?}");
}

#[test]
fn what_a_client_gives_back_is_there_for_others_once() {
    let mut fleet = Drawers::new(1_000_000 / 6, 10);
    assert_eq!(fleet.lose(0, 8).draw.unwrap().left, Tokens::from_whole(2));
    fleet.clients[0] = (8, 8);
    fleet.give_back(0, 5);
    fleet.send(0, 0, 5);
    assert_eq!(fleet.draw(1, 10).0, 7);
    assert_eq!(fleet.draw(1, 1).0, 0);
    // It holds three, and no more than these are believed.
    fleet.clients[0] = (8, 0);
    fleet.sequence += 1;
    fleet.send(0, 0, 1000);
    assert_eq!(fleet.draw(1, 10).0, 3);
}

#[test]
fn a_client_that_is_not_known_gives_nothing_back() {
    let mut fleet = Drawers::new(1_000_000 / 6, 10);
    assert_eq!(fleet.draw(0, 10).0, 10);
    fleet.sequence += 1;
    fleet.send(1, 0, 1000);
    assert_eq!(fleet.draw(2, 1).0, 0);
}

/// One a second, with a burst of three.
#[test]
fn what_is_known_late_to_be_spent_has_been_room_since_then() {
    let mut fleet = Drawers::new(1_000_000, 3);
    assert_eq!(fleet.draw(0, 2).0 + fleet.draw(1, 1).0, 3);
    fleet.after(4);
    assert_eq!(fleet.draw(2, 1).0, 0, "there was no room");
    fleet.spent_for = 4;
    fleet.draw(0, 0);
    fleet.spent_for = 1;
    fleet.draw(1, 0);
    let left = fleet.draw(2, 9).0;
    assert_eq!(
        left, 3,
        "as much as was spent long ago, and one for the last second"
    );
}

#[test]
fn no_time_is_earned_twice() {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.draw(0, 5).0 + fleet.draw(1, 5).0, 10);
    fleet.after(7);
    assert_eq!(fleet.draw(2, 1).0, 0);
    fleet.spent_for = 7;
    fleet.draw(0, 0);
    fleet.draw(1, 0);
    assert_eq!(fleet.draw(2, 10).0, 7, "in seven seconds");
}

#[test]
fn nothing_is_earned_for_the_time_before_a_token_was_spent() {
    let mut fleet = Drawers::new(1_000_000, 3);
    assert_eq!(fleet.draw(0, 3).0, 3);
    fleet.after(4).spent_for = 1;
    fleet.draw(0, 0);
    assert_eq!(fleet.draw(2, 3).0, 1);
}

#[test]
fn a_client_that_has_forgotten_what_it_drew_knows_of_no_time() {
    let mut fleet = Drawers::new(1_000_000, 3);
    fleet.draw(0, 0);
    fleet.after(5);
    assert_eq!(fleet.draw(0, 3).0, 3);
    (fleet.account, fleet.spent_for, fleet.clients[0]) = (2, 1000, (0, 0));
    assert_eq!(fleet.draw(0, 3).0, 0);
}
