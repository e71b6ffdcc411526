//! Masters that take a lease table over from another.

use super::*;

/// A leaf that has just lent 60 to a client, "a".
fn lends_to_a() -> Leaf {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| ());
    leaf.pass(200);
    leaf.refresh("a", (0, 100));
    leaf
}

/// Lets another master have the snapshot after `delay`: it counts from then.
fn hand_over_slowly(leaf: &mut Leaf, delay: Duration) {
    let successor = LeaseServer::new(leaf.now, Epoch(1), BOUNDS, Start::Fresh);
    let snapshot = core::mem::replace(&mut leaf.node, successor).hand_over(leaf.now);
    leaf.now = leaf.now.saturating_add(delay);
    leaf.node = LeaseServer::take_over(leaf.now, Epoch(2), BOUNDS, &snapshot).unwrap();
    leaf.node.borrow_from_parent(leaf.now, 5000, TIMEOUT);
}

#[test]
fn a_master_that_takes_over_says_what_is_lent() {
    let mut leaf = lends_to_a();
    // As after a hand-over: the lease table is there, what was borrowed is not known.
    leaf.node.borrow_from_parent(leaf.now, 5000, TIMEOUT);
    let request = leaf.ask();
    assert_eq!(
        (request.has, request.claim),
        (Capacity::from_whole(60), Claim::Several)
    );
    assert_eq!(request.remaining, Some(Duration::from_millis(9800)));
    assert_eq!(request.fingerprint, NO_FINGERPRINT);
    // Until the parent answers, who has something keeps it as long as it had it anyway.
    leaf.pass(200);
    let answer = leaf.refresh("a", (60, 100));
    assert_eq!(gets(answer), whole(60));
    assert_eq!(answer.lease.unwrap().duration, Duration::from_millis(9600));
}

#[test]
fn a_snapshot_that_did_not_age_on_its_way_prolongs_nothing() {
    let mut leaf = lends_to_a();
    hand_over_slowly(&mut leaf, Duration::from_secs(1));
    leaf.pass(200);
    let sequence = leaf.now.as_nanos();
    let request = LeaseRequest {
        remaining: Some(Duration::from_millis(8600)),
        ..LeaseRequest::new(
            sequence,
            Capacity::from_whole(60),
            Capacity::from_whole(100),
        )
    };
    let lease = leaf.say("a", &request).lease.unwrap();
    assert_eq!(lease.duration, Duration::from_millis(8600));
}

#[test]
fn a_lease_that_ended_on_the_way_of_a_snapshot_is_not_told_again() {
    let mut leaf = lends_to_a();
    // By the table the client asks within its minimum interval.
    hand_over_slowly(&mut leaf, Duration::from_secs(20));
    leaf.lend(Capacity::ZERO, |_| ());
    leaf.pass(10);
    let answer = leaf.refresh("a", (0, 100));
    assert_eq!(gets(answer), whole(0));
}
