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

fn waiting(waiters: &[(u64, u64)]) -> RoundRobin {
    let mut all = RoundRobin::default();
    for (member, arrival) in waiters {
        all.insert(waiter(*member, *arrival, 1));
    }
    all
}

fn order(mut waiters: RoundRobin) -> Vec<u64> {
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
fn what_goes_before_a_newcomer_is_a_turn_of_each_other_for_each_of_its_own() {
    let mut waiters = RoundRobin::default();
    for (member, arrival, cost) in [(1, 0, 1), (1, 1, 10), (1, 2, 100), (2, 3, 1000)] {
        waiters.insert(waiter(member, arrival, cost));
    }
    let rows = [(3, 1001), (1, 1111), (2, 1011)];
    for (member, want) in rows {
        assert_eq!(
            waiters.ahead_of(member),
            Tokens::from_whole(want),
            "{member}"
        );
    }
    assert_eq!(waiters.cost(), Tokens::from_whole(1111));
}
