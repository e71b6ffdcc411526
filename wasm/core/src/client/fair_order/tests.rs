use alloc::vec::Vec;

use super::*;

fn waiter(member: u64, arrival: u64, cost: u64) -> Waiter {
    Waiter {
        member,
        arrival,
        stream: arrival as u32,
        cost: Tokens::from_whole(cost),
    }
}

fn waiting(waiters: &[(u64, u64)]) -> FairOrder {
    let mut all = FairOrder::default();
    for (member, arrival) in waiters {
        all.insert(waiter(*member, *arrival, 1));
    }
    all
}

fn order(mut waiters: FairOrder) -> Vec<u64> {
    core::iter::from_fn(|| waiters.pop_first())
        .map(|waiter| waiter.arrival)
        .collect()
}

#[test]
fn members_take_turns_and_keep_their_order() {
    type Row<'a> = (&'a [(u64, u64)], &'a [u64]);
    let rows: [Row<'_>; 4] = [
        (&[(1, 0), (1, 1), (1, 2)], &[0, 1, 2]),
        (&[(1, 0), (1, 1), (2, 2), (2, 3)], &[0, 2, 1, 3]),
        // A member that begins to wait comes after all others, whatever its number.
        (&[(9, 0), (9, 1), (1, 2), (5, 3), (1, 4)], &[0, 2, 3, 1, 4]),
        // A request that comes back has the place of its arrival.
        (&[(1, 3), (2, 4), (1, 0), (2, 1)], &[0, 1, 3, 4]),
    ];
    for (waiters, want) in rows {
        assert_eq!(order(waiting(waiters)), want, "{waiters:?}");
    }
}

#[test]
fn a_member_that_left_begins_again_behind_the_others() {
    let mut waiters = waiting(&[(1, 0), (2, 1), (2, 2), (1, 3)]);
    assert!(waiters.remove(1, 0));
    assert!(waiters.remove(1, 3));
    assert!(!waiters.remove(1, 3));
    waiters.insert(waiter(1, 4, 1));
    assert_eq!(
        (waiters.len(), waiters.len_of(2), waiters.len_of(7)),
        (3, 2, 0)
    );
    assert_eq!(order(waiters), [1, 4, 2]);
}

#[test]
fn only_earlier_requests_of_the_same_member_are_before_one() {
    let waiters = waiting(&[(1, 3), (1, 5), (2, 0)]);
    let rows = [(1, 4, true), (1, 3, false), (1, 2, false), (7, 9, false)];
    for (member, arrival, before) in rows {
        let found = waiters.has_before(member, arrival);
        assert_eq!(found, before, "{member} {arrival}");
    }
}

#[test]
fn members_get_the_same_number_of_tokens_whatever_their_requests_cost() {
    let mut waiters = FairOrder::default();
    for arrival in 0..3 {
        waiters.insert(waiter(1, arrival, 5));
    }
    for arrival in 3..13 {
        waiters.insert(waiter(2, arrival, 1));
    }
    assert_eq!(order(waiters), [3, 4, 5, 6, 0, 7, 8, 9, 10, 11, 1, 12, 2]);
}

#[test]
fn a_member_that_always_has_one_request_gets_no_more_than_those_that_have_many() {
    let mut waiters = waiting(&[(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]);
    waiters.insert(waiter(2, 10, 3));
    let mut order = Vec::new();
    while let Some(gone) = waiters.pop_first() {
        order.push(gone.arrival);
        if gone.member == 2 && gone.arrival < 11 {
            waiters.insert(waiter(2, 11, 3));
        }
    }
    assert_eq!(order, [0, 1, 2, 10, 3, 4, 5, 11]);
}

#[test]
fn newcomers_starve_nobody() {
    let mut waiters = waiting(&[(0, 0)]);
    waiters.insert(waiter(0, 1, 3));
    let mut newcomers = (1..).map(|member| waiter(member, member + 1, 1));
    newcomers
        .by_ref()
        .take(10)
        .for_each(|one| waiters.insert(one));
    let mut gone = 0;
    // Whenever one goes, another comes.
    while waiters.pop_first().is_some_and(|first| first.arrival != 1) {
        newcomers
            .by_ref()
            .take(1)
            .for_each(|one| waiters.insert(one));
        gone += 1;
        assert!(gone < 50, "the large request does not go");
    }
}

#[test]
fn what_goes_before_a_newcomer_has_an_earlier_finish() {
    let mut waiters = FairOrder::default();
    for (member, arrival, cost) in [(1, 0, 1), (1, 1, 10), (1, 2, 100), (2, 3, 1000)] {
        waiters.insert(waiter(member, arrival, cost));
    }
    let rows = [
        (3, 1, 1),
        (3, 11, 11),
        (3, 110, 11),
        (3, 2000, 1111),
        (1, 1, 111),
        (1, 889, 111),
        (1, 890, 1111),
        (2, 1, 1111),
    ];
    for (member, cost, want) in rows {
        assert_eq!(
            waiters.ahead_of(member, Tokens::from_whole(cost)),
            Tokens::from_whole(want),
            "{member} {cost}"
        );
    }
    assert_eq!(waiters.cost(), Tokens::from_whole(1111));
}
