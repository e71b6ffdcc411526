//! Tokens of the fleet's bucket that come with leases, and when clients have leases.

use super::draws::Drawers;
use super::*;
use crate::units::Tokens;

#[test]
fn a_limit_that_has_been_busy_for_a_second_is_leased_with_its_tokens() {
    let mut fleet = Drawers::new(100_000_000, 100);
    fleet.wants = 80;
    assert!(fleet.draw_or_lease(0, 30));
    fleet.now = fleet.now.saturating_add(Duration::from_millis(500));
    assert!(fleet.draw_or_lease(0, 30), "it may be a burst");
    fleet.now = fleet.now.saturating_add(Duration::from_millis(500));
    let (granted, _) = fleet.clients[0];
    let answer = fleet.lose(0, 0);
    let lease = answer.lease.unwrap();
    assert!(lease.capacity >= Capacity::from_whole(80));
    let handed_over = answer.draw.unwrap().granted.whole() - granted;
    // 100 have been earned, less those that it may hold.
    assert_eq!(handed_over, 70);
    fleet.draw_or_lease(1, 100);
    assert_eq!(fleet.clients[1].0, 1, "nothing is left but one of the next");
}

#[test]
fn the_burst_of_a_lease_leaves_room_for_what_others_hold() {
    let mut fleet = Drawers::busy(100_000_000, 100);
    fleet.wants = 80;
    assert!(!fleet.draw_or_lease(0, 0));
    // It draws from now on, with what was in its bucket.
    fleet.wants = 5;
    fleet.clients[0].1 = 90;
    assert!(fleet.after(1).lose(0, 0).draw.is_some());
    assert_eq!(fleet.resource.held_by_clients(), Tokens::from_whole(90));
    fleet.wants = 60;
    let lease = fleet.lose(1, 0).lease.unwrap();
    assert!(lease.capacity > Capacity::ZERO);
    assert!(lease.burst <= Tokens::from_whole(10), "{lease:?}");
}

#[test]
fn a_client_whose_part_is_not_free_yet_draws_what_is_there() {
    let mut fleet = Drawers::busy(100_000_000, 100);
    fleet.wants = 100;
    let answer = fleet.lose(0, 0);
    assert_eq!(answer.lease.unwrap().capacity, Capacity::from_whole(100));
    assert!(fleet.draw_or_lease(1, 1), "nothing is free");
}

#[test]
fn a_lease_that_has_ended_for_its_client_begins_anew() {
    let mut fleet = Drawers::busy(100_000_000, 100);
    fleet.wants = 60;
    assert!(!fleet.draw_or_lease(0, 0));
    let before = fleet.clients[0].0;
    assert!(
        !fleet.after(3).draw_or_lease(0, 0),
        "it says that it has none"
    );
    assert!(fleet.clients[0].0 > before, "20 are left");
}

#[test]
fn what_one_lease_brings_leaves_the_others_their_part() {
    let mut fleet = Drawers::new(300_000_000, 300);
    fleet.wants = 150;
    for _ in 0..2 {
        assert!(fleet.draw_or_lease(0, 1) && fleet.draw_or_lease(1, 1));
        fleet.now = fleet.now.saturating_add(Duration::from_millis(500));
    }
    let before = [fleet.clients[0].0, fleet.clients[1].0];
    assert!(!fleet.draw_or_lease(0, 1));
    assert!(!fleet.draw_or_lease(1, 1));
    for client in [0, 1] {
        let brought = fleet.clients[client].0 - before[client];
        assert!((120..=150).contains(&brought), "{brought}");
    }
}

#[test]
fn a_limit_of_which_few_tokens_are_left_is_leased_at_once() {
    let mut fleet = Drawers::new(100_000_000, 100);
    fleet.wants = 80;
    assert!(fleet.draw_or_lease(0, 90));
    assert!(!fleet.draw_or_lease(0, 10));
}

#[test]
fn clients_draw_of_a_limit_that_leaves_little_for_each() {
    let mut fleet = Drawers::busy(30_000_000, 30);
    fleet.wants = 15;
    assert!(!fleet.draw_or_lease(0, 1));
    assert!(!fleet.draw_or_lease(1, 1), "15 for each");
    assert!(fleet.draw_or_lease(2, 1), "10 for each");
    assert!(fleet.after(1).draw_or_lease(0, 1));
    fleet.release(2);
    assert!(
        fleet.draw_or_lease(0, 1),
        "15 for each is not enough to change again"
    );
    fleet.release(1);
    assert!(!fleet.draw_or_lease(0, 1));
}

#[test]
fn a_client_that_comes_where_nothing_is_left_begins_with_one_of_the_next_tokens() {
    let mut fleet = Drawers::busy(100_000_000, 100);
    fleet.wants = 60;
    assert!(!fleet.draw_or_lease(0, 0));
    assert!(!fleet.draw_or_lease(0, 0));
    let bucket = fleet.resource.allocation.fleet.bucket.as_mut().unwrap();
    let rest = bucket.left(fleet.now);
    bucket.charge(fleet.now, rest);
    assert!(!fleet.draw_or_lease(1, 1), "20 are not leased");
    assert_eq!(fleet.clients[1].0, 1);
    let bucket = fleet.resource.allocation.fleet.bucket.as_mut().unwrap();
    let more = (0..100).take_while(|_| {
        let may = bucket.may_advance(fleet.now);
        bucket.charge(fleet.now, Tokens::ONE);
        may
    });
    assert_eq!(more.count(), 12, "an eighth of the burst");
}

#[test]
fn what_is_leased_has_no_room_in_the_bucket() {
    let mut fleet = Drawers::busy(24_000_000, 24);
    fleet.wants = 12;
    fleet.lose(0, 0);
    let leased = fleet.resource.sum_has();
    assert!(leased >= 12_000_000, "{leased}");
    fleet.lose(1, 0);
    let leased = fleet.resource.sum_has();
    let answer = fleet.lose(2, 24);
    let granted = answer.draw.unwrap().granted.as_micros();
    assert!(u128::from(granted) + leased <= 24_000_000, "{granted}");
}

#[test]
fn tokens_of_a_lease_whose_answer_is_lost_come_with_the_next() {
    let mut fleet = Drawers::busy(30_000_000, 100);
    let (before, _) = fleet.clients[0];
    let lost = fleet.lose(0, 0).draw.unwrap().granted;
    let handed_over = lost.saturating_sub(Tokens::from_whole(before));
    assert!(handed_over >= Tokens::from_whole(85), "{handed_over:?}");
    assert_eq!(fleet.lose(0, 0).draw.unwrap().granted, lost);
    assert_eq!(
        fleet.resource.held_by_clients(),
        Tokens::ZERO,
        "its lease counts"
    );
}

#[test]
fn who_comes_where_tokens_are_lacking_begins_with_those_that_are_there() {
    let mut fleet = Drawers::busy(100_000_000, 100);
    fleet.wants = 60;
    assert!(!fleet.draw_or_lease(0, 0));
    assert!(!fleet.draw_or_lease(0, 0));
    fleet.after(5);
    let answer = fleet.lose(1, 10);
    assert!(answer.lease.unwrap().capacity > Capacity::ZERO);
    let granted = answer.draw.unwrap().granted;
    assert_eq!(granted, Tokens::from_whole(20), "80 are leased");
    let answer = fleet.lose(2, 10);
    let gets_nothing = |answer: &Answer| answer.lease.unwrap().capacity == Capacity::ZERO;
    assert!(gets_nothing(&answer), "others have not given back");
}
