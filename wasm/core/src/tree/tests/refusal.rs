//! What a refusal for the sequence alone is taken for.

use super::*;

impl Leaf {
    fn refuse(&mut self, id: &ResourceId, sequence: u64, last: u64) {
        self.node
            .handle_parent_refusal(self.now, id, sequence, last);
    }

    /// The sequences of what there is to say.
    fn sequences(&mut self) -> Vec<u64> {
        let sequence = |(_, todo): (ResourceId, Todo)| match todo {
            Todo::Refresh(ask) => ask.sequence,
            todo => panic!("{todo:?}"),
        };
        self.todo().into_iter().map(sequence).collect()
    }

    /// One whose clients want something of `ids`.
    fn of(ids: &[&ResourceId]) -> Self {
        let mut leaf = Self::new();
        for id in ids {
            leaf.id = (*id).clone();
            leaf.refresh("a", (0, 100));
        }
        leaf
    }
}

fn id(name: &str) -> ResourceId {
    ResourceId::new(name, Unit::Requests).unwrap()
}

/// Of a node that was master before, and whose clock is ahead.
#[test]
fn a_run_goes_on_above_what_the_parent_has_seen_of_an_earlier_one() {
    let (one, other) = (id("tenant/acme"), id("tenant/other"));
    let mut leaf = Leaf::of(&[&one, &other]);
    let first = leaf.sequences();
    let last = 1 << 60;
    leaf.refuse(&one, first[0], last);
    let second = leaf.sequences();
    assert!(matches!(second[..], [next] if next > last + (1 << 30)));
    // Another that was refused in the same call is sent again, too.
    leaf.refuse(&other, first[1], last);
    let third = leaf.sequences();
    assert!(matches!(third[..], [next] if next > second[0]));
    // It catches up once: whoever goes beyond that has the same name and is alive.
    leaf.refuse(&one, second[0], second[0] + (1 << 50));
    leaf.refuse(&other, third[0], third[0]);
    assert_eq!(leaf.sequences(), [], "backs off");
}

#[test]
fn what_is_said_of_another_request_than_the_latest_is_not_gone_beyond() {
    let acme = id("tenant/acme");
    let mut leaf = Leaf::of(&[&acme]);
    let [first] = leaf.sequences()[..] else {
        panic!("not one request")
    };
    leaf.refuse(&acme, first - 1, 1 << 60);
    leaf.refuse(&id("tenant/nobody"), first, 1 << 60);
    assert_eq!(leaf.sequences(), []);
    // That spends nothing: what is said of the latest still counts.
    let last = 1 << 50;
    leaf.refuse(&acme, first, last);
    let second = leaf.sequences();
    assert!(matches!(second[..], [next] if (last + 1..1 << 60).contains(&next)));
}

/// It is no reason to refuse, and none to ask again at once.
#[test]
fn what_a_parent_cannot_have_seen_is_a_failure() {
    for absurd in [0, 999, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        let acme = id("tenant/acme");
        let mut leaf = Leaf::of(&[&acme]);
        let first = leaf.sequences()[0];
        leaf.refuse(&acme, first, absurd);
        assert_eq!(leaf.sequences(), [], "{absurd}: backs off");
        leaf.pass(5000);
        let second = leaf.sequences();
        assert_eq!(second, [first + 1], "{absurd}");
        // It can still be told what it must go beyond.
        leaf.refuse(&acme, second[0], 1 << 60);
        assert_eq!(leaf.sequences().len(), 1, "{absurd}");
    }
}

/// Of two requests in one call the parent says every time that it had seen the former.
#[test]
fn what_is_refused_again_and_again_is_asked_for_at_once_only_once() {
    let (one, other) = (id("tenant/acme"), id("tenant/other"));
    let mut leaf = Leaf::of(&[&one, &other]);
    let mut rounds = 0;
    while rounds < 10 {
        let said = leaf.todo();
        if said.is_empty() {
            break;
        }
        for (id, todo) in said {
            if let Todo::Refresh(ask) = todo {
                leaf.refuse(&id, ask.sequence, ask.sequence);
            }
        }
        rounds += 1;
    }
    assert_eq!(rounds, 2);
}

#[test]
fn a_run_that_was_answered_does_not_overtake_another() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| {});
    leaf.pass(1000);
    let ask = leaf.ask();
    let id = leaf.id.clone();
    leaf.node
        .handle_parent_refusal(leaf.now, &id, ask.sequence, 1 << 60);
    assert!(leaf.todo().is_empty(), "backs off");
    leaf.pass(5000);
    assert!(leaf.ask().sequence < 1 << 60);
}
