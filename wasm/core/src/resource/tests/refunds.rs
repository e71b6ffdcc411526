//! Tokens that requests turned out not to cost.

use super::draws::Drawers;

/// A limit of a token a second, of which a client has spent `spent` of 10.
fn spent(spent: u64) -> Drawers {
    let mut fleet = Drawers::new(1_000_000, 10);
    assert_eq!(fleet.draw(0, spent).0, spent);
    fleet
}

#[test]
fn what_comes_back_is_there_for_all_though_it_was_told_as_spent() {
    let mut fleet = spent(10);
    fleet.draw(0, 0);
    fleet.refund(0, 6, 1);
    assert_eq!(fleet.draw(1, 10).0, 6);
}

#[test]
fn a_request_that_comes_twice_brings_back_once() {
    let mut fleet = spent(10);
    fleet.refund(0, 3, 2);
    assert_eq!(fleet.draw(1, 10).0, 3);
}

#[test]
fn no_more_comes_back_than_was_granted_or_than_there_is_room_for() {
    let mut fleet = spent(4);
    fleet.draw(1, 6);
    fleet.refund(0, 9, 1);
    assert_eq!(fleet.draw(2, 10).0, 4);
    fleet.draw(2, 0);
    fleet.after(8).refund(1, 6, 1);
    assert_eq!(fleet.draw(2, 20).0, 10);
}

#[test]
fn a_client_that_was_forgotten_brings_nothing_back() {
    let mut fleet = spent(10);
    fleet.release(0);
    fleet.refund(0, 10, 1);
    assert_eq!(fleet.draw(1, 10).0, 0);
}

#[test]
fn what_comes_back_pays_a_debt_first() {
    let mut fleet = spent(10);
    assert_eq!(fleet.owe(1, 5), 5);
    fleet.refund(0, 7, 1);
    assert_eq!(fleet.draw(2, 10).0, 2);
}
