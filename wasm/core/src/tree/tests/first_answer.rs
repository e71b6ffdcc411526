//! Clients that come before the parent's first answer.

use super::*;

const SOON: Duration = Duration::from_millis(100);

/// A leaf whose clients may ask again after two seconds at the soonest.
fn slow_leaf() -> Leaf {
    let mut leaf = Leaf::new();
    leaf.limit.refresh = Duration::from_secs(16);
    leaf.limit.min_refresh = Duration::from_secs(2);
    leaf.limit.lease = Duration::from_secs(60);
    leaf
}

#[test]
fn a_client_that_came_before_the_parents_first_answer_asks_again_soon() {
    let mut leaf = slow_leaf();
    let first = leaf.refresh("a", (0, 30));
    assert_eq!((gets(first), first.refresh_interval), (None, SOON));
    leaf.pass(50);
    leaf.lend(Capacity::from_whole(100), |_| {});
    leaf.pass(50);
    let second = leaf.refresh("a", (0, 30));
    assert_eq!(gets(second), whole(30), "however early it asks");
    // From then on its interval is as ever.
    leaf.pass(100);
    let early = leaf.refresh("a", (30, 10));
    assert_eq!(gets(early), whole(30));
}

#[test]
fn nobody_hurries_for_a_parent_that_does_not_answer() {
    for (pass, fails, want) in [
        (900, false, SOON),
        (1100, false, Duration::from_secs(2)),
        (300, true, Duration::from_secs(2)),
    ] {
        let mut leaf = slow_leaf();
        leaf.refresh("a", (0, 30));
        let sequence = leaf.ask().sequence;
        leaf.pass(pass);
        if fails {
            let (now, id) = (leaf.now, leaf.id.clone());
            leaf.node.handle_parent_failure(now, &id, sequence);
        }
        let answer = leaf.refresh("a", (0, 30));
        let shown = (gets(answer), answer.refresh_interval);
        assert_eq!(shown, (None, want), "{pass} {fails}");
    }
}

#[test]
fn a_parent_that_waits_for_its_own_is_awaited_as_long() {
    let mut leaf = slow_leaf();
    leaf.refresh("a", (0, 30));
    let nothing_yet = |answer: &mut Answer| {
        answer.lease = None;
        answer.refresh_interval = SOON;
    };
    leaf.lend(Capacity::ZERO, nothing_yet);
    leaf.pass(100);
    assert_eq!(leaf.refresh("a", (0, 30)).refresh_interval, SOON);
    leaf.lend(Capacity::ZERO, nothing_yet);
    leaf.pass(1000);
    let later = leaf.refresh("a", (0, 30));
    assert_eq!(
        later.refresh_interval,
        Duration::from_secs(2),
        "it may learn"
    );
}
