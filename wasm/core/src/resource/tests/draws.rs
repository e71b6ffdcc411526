//! Draws of the fleet's bucket.

use alloc::format;

use super::*;
use crate::lease::{DrawAnswer, DrawRequest, Tally};
use crate::limit::Part;
use crate::traffic::Counts;
use crate::units::Tokens;

/// Clients that draw, on a clock that the test moves.
struct Drawers {
    resource: Resource,
    now: Instant,
    sequence: u64,
    account: u64,
    /// For each what it has applied, and what it has left.
    clients: [(u64, u64); 3],
    /// Attempts that it has not reported.
    attempts: [u64; 3],
}

// === impl Drawers ===

impl Drawers {
    /// Three clients of a limit of `rate` millionths a second.
    fn new(rate: u64, burst: u64) -> Self {
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
        }
    }

    fn after(&mut self, secs: u64) -> &mut Self {
        self.now = self.now.saturating_add(Duration::from_secs(secs));
        self
    }

    /// Asks for `needs` tokens; the answer is lost.
    fn lose(&mut self, client: usize, needs: u64) -> Answer {
        self.sequence += 1;
        let (drawn, holds) = self.clients[client];
        let draw = DrawRequest {
            account: self.account,
            drawn: Tokens::from_whole(drawn),
            holds: Tokens::from_whole(holds),
            needs: Tokens::from_whole(needs),
            first: Tokens::ONE,
        };
        let request = LeaseRequest {
            draw: Some(draw),
            tally: Tally {
                since: self.sequence,
                counts: Counts {
                    attempts: self.attempts[client],
                    refused: 0,
                },
            },
            ..LeaseRequest::new(self.sequence, Capacity::ZERO, Capacity::from_whole(1))
        };
        self.attempts[client] = 0;
        let mut pool = PoolLink(None);
        let answer = self
            .resource
            .handle_refresh(self.now, &run(client), &request, 10, &mut pool);
        answer.unwrap()
    }

    /// Asks for `needs` tokens, and spends what it gets, if it draws.
    fn draw_or_lease(&mut self, client: usize, needs: u64) {
        if self.lose(client, needs).draw.is_some() {
            self.draw(client, needs);
        }
    }

    fn release(&mut self, client: usize) {
        self.resource.handle_release(&run(client), u64::MAX);
    }

    /// Asks for `needs` tokens, and spends what it gets; returns how many it got, and when to come back.
    fn draw(&mut self, client: usize, needs: u64) -> (u64, Option<Duration>) {
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

fn run(client: usize) -> ClientRun {
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
fn a_limit_of_twenty_a_second_is_leased() {
    let mut fleet = Drawers::new(20_000_000, 20);
    let answer = fleet.lose(0, 1);
    assert!(answer.draw.is_none());
    assert!(answer.lease.unwrap().capacity >= Capacity::from_whole(1));
}

#[test]
fn clients_draw_of_a_limit_that_leaves_little_for_each() {
    let mut fleet = Drawers::new(30_000_000, 30);
    let draws = |fleet: &mut Drawers, client| fleet.lose(client, 1).draw.is_some();
    assert!(!draws(&mut fleet, 0));
    assert!(!draws(&mut fleet, 1), "15 for each");
    assert!(draws(&mut fleet, 2), "10 for each");
    assert!(draws(&mut fleet, 0));
    fleet.release(2);
    assert!(
        draws(&mut fleet, 0),
        "15 for each is not enough to change again"
    );
    fleet.release(1);
    assert!(!draws(&mut fleet, 0));
}

#[test]
fn what_is_leased_has_no_room_in_the_bucket() {
    let mut fleet = Drawers::new(24_000_000, 24);
    fleet.lose(0, 1);
    fleet.lose(1, 1);
    let leased = fleet.resource.sum_has();
    assert!(leased >= 2_000_000, "{leased}");
    let answer = fleet.lose(2, 24);
    let granted = answer.draw.unwrap().granted.as_micros();
    assert!(u128::from(granted) + leased <= 24_000_000, "{granted}");
    assert!(u128::from(granted) + leased > 23_000_000, "{granted}");
}

#[test]
fn tokens_of_a_lost_answer_end_when_the_client_is_leased() {
    let mut fleet = Drawers::new(30_000_000, 100);
    for client in 0..3 {
        fleet.lose(client, 1);
    }
    assert!(fleet.lose(0, 50).draw.unwrap().granted > Tokens::ZERO);
    fleet.release(1);
    fleet.release(2);
    let answer = fleet.lose(0, 0);
    assert!(answer.draw.is_none() && answer.refresh_interval >= Duration::from_millis(100));
    assert_eq!(fleet.resource.held_by_clients(), Tokens::ZERO);
}

#[test]
fn who_comes_where_tokens_are_lacking_draws_before_it_is_leased() {
    let mut fleet = Drawers::new(30_000_000, 1000);
    for client in 0..3 {
        fleet.draw_or_lease(client, 300);
    }
    fleet.draw(2, 900);
    for client in 0..3 {
        fleet.release(client);
    }
    fleet.clients = [(0, 0); 3];
    fleet.account = 2;
    let first = fleet.lose(0, 300);
    let granted = first.draw.unwrap().granted;
    assert!(granted < Tokens::from_whole(300), "{granted:?}");
    let second = fleet.lose(0, 1);
    assert!(second.draw.is_none(), "30 for one are leased");
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

/// A client of five in flight asks, each 10 ms.
struct InFlight {
    resource: Resource,
    sequence: u64,
}

impl InFlight {
    fn new() -> Self {
        let limit = Limit {
            headroom: Part::ALL,
            ..Limit::new(Capacity::from_whole(5))
        };
        Self {
            resource: Resource::new(Unit::Concurrency, limit, Instant::ZERO),
            sequence: 0,
        }
    }

    fn ask(&mut self, client: usize, (has, wants): (u64, u64), draws: bool) -> (u64, bool) {
        self.sequence += 1;
        let now = Instant::from_nanos(10_000_000 * self.sequence);
        let draw = DrawRequest {
            account: 1,
            ..DrawRequest::default()
        };
        let [has, wants] = [has, wants].map(Capacity::from_whole);
        let request = LeaseRequest {
            draw: draws.then_some(draw),
            ..LeaseRequest::new(self.sequence, has, wants)
        };
        let mut pool = PoolLink(None);
        let answer = self
            .resource
            .handle_refresh(now, &run(client), &request, 10, &mut pool);
        let answer = answer.unwrap();
        let gets = answer.lease.unwrap().capacity.as_micros();
        (gets / Tokens::ONE.as_micros(), answer.draw.is_some())
    }
}

#[test]
fn permits_are_where_they_are_needed_whenever_that_is() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 2), true), (2, true));
    assert_eq!(all.ask(0, (2, 4), true), (4, true));
    assert_eq!(all.ask(1, (0, 2), true), (1, true));
    // One has ended, and the other client can have it at once.
    assert_eq!(all.ask(0, (3, 3), true), (3, true));
    assert_eq!(all.ask(1, (1, 2), true), (2, true));
}

#[test]
fn one_that_cannot_draw_permits_has_headroom() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 2), false), (5, false));
}

#[test]
fn what_is_in_flight_beyond_the_share_is_leased_on_until_it_ends() {
    let mut all = InFlight::new();
    assert_eq!(all.ask(0, (0, 5), true), (5, true));
    for _ in 0..3000 {
        assert_eq!(all.ask(0, (5, 5), true), (5, true));
        assert_eq!(all.ask(1, (0, 3), true), (0, true));
    }
    // Its share is less, and one of the five has ended.
    assert_eq!(all.ask(0, (4, 5), true), (4, true));
    assert_eq!(all.ask(1, (0, 3), true), (1, true));
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
