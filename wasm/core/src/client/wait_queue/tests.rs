use super::*;

const START: Instant = Instant::from_nanos(1_000_000_000);

fn at(ms: u64) -> Instant {
    START.saturating_add(Duration::from_millis(ms))
}

/// A hundred tokens a second, the next one at `ms`.
fn shortage(ms: u64) -> Shortage {
    Shortage {
        need: Tokens::ONE,
        retry_at: Some(at(ms)),
        rate: Rate::from_whole(100),
    }
}

fn waiter(member: u64, arrival: u64, cost: u64) -> Waiter {
    Waiter {
        member,
        arrival,
        stream: 0,
        cost: Tokens::from_whole(cost),
    }
}

fn queue(members: &[u64]) -> WaitQueue {
    let mut queue = WaitQueue::new(START, shortage(10));
    for (arrival, member) in members.iter().enumerate() {
        queue.join(
            START,
            Waiter {
                member: *member,
                arrival: arrival as u64,
                stream: 0,
                cost: Tokens::ONE,
            },
        );
    }
    queue
}

fn go(queue: &mut WaitQueue, most: usize) -> usize {
    (0..most).map_while(|_| queue.let_go()).count()
}

/// To the millisecond, of which an estimate may be a nanosecond short.
fn ms(instant: Option<Instant>) -> Option<u64> {
    let nanos = instant?.saturating_since(START).as_nanos() as u64;
    Some(nanos.div_ceil(1_000_000))
}

#[test]
fn the_estimate_counts_those_who_go_before() {
    let queue = queue(&[1, 1, 1, 2]);
    let rows = [(1, 1, 50), (2, 1, 40), (3, 1, 30), (3, 5, 90)];
    for (member, cost, want) in rows {
        let shown = queue.estimate(member, Tokens::from_whole(cost));
        assert_eq!(ms(shown), Some(want), "{member}, {cost}");
    }
    let mut blocked = queue;
    let nothing = Shortage {
        retry_at: None,
        rate: Rate::ZERO,
        ..shortage(0)
    };
    blocked.fall_short(START, 0, 1, nothing);
    assert_eq!(blocked.estimate(1, Tokens::ONE), None);
}

#[test]
fn who_had_a_turn_leaves_the_next_moments_to_the_other_workers() {
    let mut queue = queue(&[1, 1]);
    assert_eq!(queue.look_at(), at(10));
    queue.fall_short(at(10), 1, 3, shortage(20));
    assert_eq!(queue.look_at(), at(22));
    // The others were faster, twice.
    queue.fall_short(at(22), 0, 3, shortage(30));
    assert_eq!(queue.look_at(), at(31));
    queue.fall_short(at(31), 0, 3, shortage(40));
    assert_eq!(queue.look_at(), at(40));
    // To ask before the time is no turn that was lost.
    queue.fall_short(at(40), 1, 3, shortage(50));
    queue.fall_short(at(45), 0, 3, shortage(50));
    assert_eq!(queue.look_at(), at(52));
    queue.fall_short(at(52), 1, 1, shortage(60));
    assert_eq!(queue.look_at(), at(60));
}

#[test]
fn a_line_that_shares_the_rate_estimates_with_its_part() {
    let mut shared = queue(&[1; 20]);
    for tenth in 1..=10 {
        // Ten come in, five are for this line.
        assert_eq!(go(&mut shared, 5), 5);
        (0..5).for_each(|n| {
            shared.join(
                at(tenth * 100),
                Waiter {
                    member: 1,
                    arrival: tenth * 100 + n,
                    stream: 0,
                    cost: Tokens::ONE,
                },
            );
        });
        shared.attempts(at(tenth * 100), 4);
    }
    shared.fall_short(at(1000), 5, 1, shortage(1010));
    let shown = ms(shared.estimate(1, Tokens::ONE)).unwrap();
    assert!((1400..=1420).contains(&shown), "{shown}");
}

#[test]
fn those_who_wait_are_wanted_while_nobody_comes() {
    let mut queue = queue(&[1; 100]);
    // All hundred were counted when they came.
    assert_eq!(queue.attempts(at(99), 1), 0);
    assert_eq!(queue.attempts(at(100), 1), 0);
    // Nothing passes, and they would like to be gone within a second.
    assert_eq!(queue.attempts(at(200), 1), 10);
    // The requests that go show how much can go.
    assert_eq!(go(&mut queue, 30), 30);
    assert_eq!(queue.attempts(at(300), 1), 30);
    assert_eq!(go(&mut queue, 69), 69);
    queue.attempts(at(400), 1);
    assert_eq!(queue.attempts(at(500), 1), 1);
}

#[test]
fn the_first_one_that_leaves_lets_the_next_one_be_asked_for() {
    let mut queue = queue(&[1, 1, 2]);
    queue.leave(at(1), 2, 2);
    assert_eq!(queue.look_at(), at(10));
    queue.leave(at(2), 1, 0);
    assert_eq!(queue.look_at(), at(2));
    let left = queue.give_up_turn().unwrap();
    assert_eq!((left.member, left.arrival), (1, 1));
    assert!(queue.turns().is_empty());
}

#[test]
fn one_that_needs_less_and_goes_first_has_the_bucket_asked_at_once() {
    let mut queue = WaitQueue::new(START, shortage(100));
    assert!(!queue.join(START, waiter(1, 0, 10)));
    assert!(!queue.join(at(1), waiter(1, 1, 1)));
    assert_eq!(queue.look_at(), at(100));
    assert!(queue.join(at(2), waiter(2, 2, 1)));
    assert_eq!(queue.look_at(), at(2));
}

#[test]
fn one_that_leaves_may_let_the_next_of_its_member_go_first() {
    let mut queue = WaitQueue::new(START, shortage(100));
    queue.join(START, waiter(1, 0, 5));
    queue.join(START, waiter(2, 1, 9));
    queue.join(START, waiter(2, 2, 1));
    queue.leave(at(3), 2, 1);
    let first = queue.turns().first().map(|first| first.arrival);
    assert_eq!((first, queue.look_at()), (Some(2), at(3)));
}
