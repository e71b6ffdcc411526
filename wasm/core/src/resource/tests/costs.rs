//! Requests that cost many tokens, and bytes, of which a request has some.

use super::draws::Drawers;
use super::*;
use crate::units::Tokens;

/// Whether clients of a limit of `rate` that has long been busy draw, at `cost` each.
fn is_drawn(unit: Unit, rate: u64, cost: u64) -> bool {
    let mut fleet = Drawers::new(rate * 1_000_000, rate);
    let limit = Limit::new(Capacity::from_whole(rate));
    fleet.resource = Resource::new(unit, limit, Instant::ZERO);
    (fleet.wants, fleet.cost) = (rate / 2, cost);
    for client in [0, 1, 2, 0, 1, 2] {
        fleet.draw_or_lease(client, cost);
        fleet.now = fleet.now.saturating_add(Duration::from_millis(600));
    }
    fleet.draw_or_lease(0, cost)
}

#[test]
fn a_limit_of_few_requests_is_drawn_however_many_tokens_these_cost() {
    for (rate, cost, want) in [
        (300, 1, false),
        (300, 100, true),
        (300, 3, false),
        (30, 1, true),
        (1_000_000, 1_000, false),
        (1_000_000, 100_000, true),
    ] {
        for unit in [Unit::Requests, Unit::ResponseBytes] {
            // A byte is what a client asks for that does not know.
            let want = want || unit.is_bytes() && cost == 1;
            assert_eq!(is_drawn(unit, rate, cost), want, "{unit:?} {rate} {cost}");
        }
    }
}

/// Clients of a limit of a byte a second.
fn slow_bytes() -> Drawers {
    let mut fleet = Drawers::new(1_000_000, 100);
    let limit = Limit {
        burst: Tokens::from_whole(100),
        ..Limit::new(Capacity::from_whole(1))
    };
    fleet.resource = Resource::new(Unit::ResponseBytes, limit, Instant::ZERO);
    fleet.cost = 40;
    fleet
}

#[test]
fn bytes_that_a_request_lacked_come_back_though_they_were_told_as_spent() {
    let mut fleet = slow_bytes();
    for client in [0, 1] {
        assert_eq!(fleet.draw(client, 40).0, 40);
        fleet.lose(client, 0);
        fleet.clients[client].1 = 30;
        fleet.give_back(client, 30);
    }
    let left = fleet.resource.allocation.fleet.left(fleet.now);
    assert_eq!(left, Tokens::from_whole(100 - 2 * 10));
}

#[test]
fn a_byte_that_is_left_lets_a_request_take_what_is_usual() {
    let mut fleet = slow_bytes();
    let got: u64 = [0, 1, 2]
        .map(|client| fleet.draw(client, 40).0)
        .iter()
        .sum();
    assert_eq!(got, 120, "the last one by a debt");
    let (none, next) = fleet.draw(0, 40);
    assert_eq!((none, next.unwrap().as_secs()), (0, 21));
    assert_eq!(fleet.after(20).draw(1, 40).0, 0);
    assert_eq!(fleet.after(1).draw(1, 80).0, 40, "one of two requests");
}
