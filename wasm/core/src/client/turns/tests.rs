use alloc::vec::Vec;

use super::*;

fn turn(member: u64, arrival: u64, cost: u64) -> Waiter {
    Waiter {
        member,
        arrival,
        stream: arrival as u32,
        cost: Tokens::from_whole(cost),
    }
}

fn waiting(turns: &[(u64, u64)]) -> Turns {
    let mut all = Turns::default();
    for (member, arrival) in turns {
        all.insert(turn(*member, *arrival, 1));
    }
    all
}

fn order(mut turns: Turns) -> Vec<u64> {
    core::iter::from_fn(|| turns.pop_first())
        .map(|turn| turn.arrival)
        .collect()
}

#[test]
fn members_take_turns_and_keep_their_order() {
    type Row<'a> = (&'a [(u64, u64)], &'a [u64]);
    let rows: [Row<'_>; 4] = [
        (&[(1, 0), (1, 1), (1, 2)], &[0, 1, 2]),
        (&[(1, 0), (1, 1), (2, 2), (2, 3)], &[0, 2, 1, 3]),
        // Who begins to wait comes after all others, whatever its number.
        (&[(9, 0), (9, 1), (1, 2), (5, 3), (1, 4)], &[0, 2, 3, 1, 4]),
        // Who comes back has the place of its arrival.
        (&[(1, 3), (2, 4), (1, 0), (2, 1)], &[0, 1, 3, 4]),
    ];
    for (turns, want) in rows {
        assert_eq!(order(waiting(turns)), want, "{turns:?}");
    }
}

#[test]
fn a_member_that_left_begins_again_behind_the_others() {
    let mut turns = waiting(&[(1, 0), (2, 1), (2, 2), (1, 3)]);
    assert!(turns.remove(1, 0));
    assert!(turns.remove(1, 3));
    assert!(!turns.remove(1, 3));
    turns.insert(turn(1, 4, 1));
    assert_eq!((turns.len(), turns.len_of(2), turns.len_of(7)), (3, 2, 0));
    assert_eq!(order(turns), [1, 4, 2]);
}

#[test]
fn what_goes_before_a_newcomer_is_a_turn_of_each_other_for_each_of_its_own() {
    let mut turns = Turns::default();
    for (member, arrival, cost) in [(1, 0, 1), (1, 1, 10), (1, 2, 100), (2, 3, 1000)] {
        turns.insert(turn(member, arrival, cost));
    }
    let rows = [(3, 1001), (1, 1111), (2, 1011)];
    for (member, want) in rows {
        assert_eq!(turns.ahead_of(member), Tokens::from_whole(want), "{member}");
    }
    assert_eq!(turns.cost(), Tokens::from_whole(1111));
}
