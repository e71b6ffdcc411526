//! Wants that change between two regular requests to the parent.

use super::*;

const MIN_REFRESH: u64 = 1000;

/// A leaf that has borrowed 100 for its one client, at a minimum interval of a second.
fn leaf() -> Leaf {
    let mut leaf = Leaf::new();
    leaf.limit.refresh = Duration::from_secs(16);
    leaf.limit.min_refresh = Duration::from_millis(MIN_REFRESH);
    leaf.limit.lease = Duration::from_secs(60);
    leaf.refresh("a", (0, 100));
    lend(&mut leaf, 100);
    leaf
}

/// Lends so much for a minute, until half of which nothing need be asked.
fn lend(leaf: &mut Leaf, units: u64) {
    leaf.lend(Capacity::from_whole(units), |answer| {
        answer.refresh_interval = Duration::from_secs(30);
        if let Some(lease) = &mut answer.lease {
            lease.duration = Duration::from_secs(60);
        }
    });
}

/// Number of requests to the parent in so many seconds in which the wants change ten times each.
fn asked_in(leaf: &mut Leaf, seconds: u64) -> u64 {
    let mut requested = 0;
    for n in 0..seconds * 10 {
        leaf.pass(100);
        leaf.refresh("a", (100, 150 + n % 2 * 50));
        if leaf.node.poll_parent().is_some_and(|at| at <= leaf.now) {
            lend(leaf, 100);
            requested += 1;
        }
    }
    requested
}

#[test]
fn wants_that_never_stand_still_are_told_once_in_a_minimum_interval() {
    let mut leaf = leaf();
    let requested = asked_in(&mut leaf, 2);
    assert!((3..=4).contains(&requested), "two at once: {requested}");
    // One in ten is early; each is told up to a tenth of a second late.
    let requested = asked_in(&mut leaf, 40);
    assert!((36..=44).contains(&requested), "{requested}");
}

#[test]
fn a_client_that_comes_to_a_borrowed_scope_is_told_at_once() {
    let mut leaf = leaf();
    for client in ["b", "c"] {
        leaf.pass(100);
        leaf.refresh(client, (0, 100));
        lend(&mut leaf, 100);
    }
    // The next one waits for the minimum interval, and so do all until there was no such change for
    // a while.
    leaf.pass(100);
    leaf.refresh("d", (0, 100));
    assert_eq!(leaf.message(), []);
    leaf.pass(MIN_REFRESH - 100);
    lend(&mut leaf, 100);
    for _ in 0..10 {
        leaf.pass(MIN_REFRESH);
        for client in ["a", "b", "c", "d"] {
            leaf.refresh(client, (0, 100));
        }
    }
    for client in ["e", "f"] {
        leaf.refresh(client, (0, 100));
        lend(&mut leaf, 100);
        leaf.pass(100);
    }
}

#[test]
fn a_lowered_lease_is_given_back_without_regard_to_the_minimum_interval() {
    let mut leaf = leaf();
    leaf.pass(200);
    assert_eq!(gets(leaf.refresh("a", (0, 100))), whole(100));
    asked_in(&mut leaf, 2);
    let id = leaf.id.clone();
    leaf.node.handle_parent_nudge(leaf.now, &id);
    lend(&mut leaf, 40);
    leaf.pass(MIN_REFRESH);
    assert_eq!(gets(leaf.refresh("a", (100, 100))), whole(40));
    lend(&mut leaf, 40);
    leaf.pass(100);
    leaf.refresh("a", (40, 100));
    assert_eq!(leaf.ask().has, Capacity::from_whole(40));
}

#[test]
fn nudges_without_end_make_a_request_each_hundred_milliseconds() {
    let mut leaf = leaf();
    let mut requested = 0;
    for _ in 0..1000 {
        leaf.pass(1);
        leaf.node.handle_parent_nudge(leaf.now, &leaf.id.clone());
        if leaf.node.poll_parent().is_some_and(|at| at <= leaf.now) {
            lend(&mut leaf, 100);
            requested += 1;
        }
    }
    assert!((4 + 8..=4 + 10).contains(&requested), "{requested}");
}
