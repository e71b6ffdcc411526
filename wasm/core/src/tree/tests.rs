use core::num::NonZeroU32;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use crate::client::LeaseMessage;
use crate::lease::{
    Answer, Band, Claim, ClientId, ClientRun, Demand, Epoch, EpochError, LeaseRequest, LeaseTerms,
    NO_FINGERPRINT, Origin, Priority, ResourceId, Unit,
};
use crate::lease_server::{Bounds, LeaseServer, LimitOwner, Start, Terms};
use crate::limit::{Algorithm, Limit, Part, SafeCapacity};
use crate::units::{Capacity, Instant, Tokens};

mod early;
mod first_answer;
mod hand_over;
mod safe_capacity;

const BOUNDS: Bounds = Bounds {
    max_resources: 8,
    max_clients_per_resource: 10,
    max_leases: 1_000_000,
    max_durable: 100_000,
};
const TIMEOUT: Duration = Duration::from_secs(1);

/// A coordinator with a parent, which is the test.
struct Leaf {
    node: LeaseServer,
    now: Instant,
    limit: Limit,
    id: ResourceId,
}

// === impl Leaf ===

impl Leaf {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut node = LeaseServer::new(now, Epoch(1), BOUNDS, Start::Fresh);
        node.borrow_from_parent(now, 1000, TIMEOUT);
        let mut limit = Limit::new(Capacity::UNLIMITED);
        limit.headroom = Part::NONE;
        Self {
            node,
            now,
            limit,
            id: ResourceId::new("tenant/acme", Unit::Requests).unwrap(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
        self.node.handle_timeout(self.now);
    }

    /// Answer to `client`, which has so much and wants so much, at the next sequence.
    fn refresh(&mut self, client: &str, (has, wants): (u64, u64)) -> Answer {
        let whole = Capacity::from_whole;
        let request = LeaseRequest::new(self.now.as_nanos(), whole(has), whole(wants));
        self.say(client, &request)
    }

    fn say(&mut self, client: &str, request: &LeaseRequest) -> Answer {
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let terms = Terms::of(&self.limit);
        let answer = self
            .node
            .handle_refresh(self.now, &client, &self.id, request, &terms);
        answer.unwrap()
    }

    fn message(&mut self) -> Vec<(ResourceId, LeaseMessage)> {
        self.node.ask_parent(self.now, 1000)
    }

    /// The one request that there is to say.
    fn ask(&mut self) -> LeaseRequest {
        match self.message().as_slice() {
            [(id, LeaseMessage::Refresh(request))] if *id == self.id => request.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Lets the parent lend so much for ten seconds.
    fn lend(&mut self, capacity: Capacity, change: impl FnOnce(&mut Answer)) {
        let request = self.ask();
        let mut answer = answer(capacity);
        change(&mut answer);
        let source = (request.sequence, Origin::alone(Epoch(1)), 1);
        let received = self
            .node
            .handle_parent_answer(self.now, &self.id, source, &answer);
        assert_eq!(received, Ok(true));
    }
}

fn answer(capacity: Capacity) -> Answer {
    Answer {
        lease: Some(LeaseTerms {
            capacity,
            burst: Tokens::ONE,
            duration: Duration::from_secs(10),
            fingerprint: 7,
        }),
        refresh_interval: Duration::from_secs(1),
        safe: None,
        capacity: Capacity::from_whole(1000),
        period: None,
        burst: None,
        draw: None,
    }
}

fn whole(units: u64) -> Option<Capacity> {
    Some(Capacity::from_whole(units))
}

fn gets(answer: Answer) -> Option<Capacity> {
    answer.lease.map(|lease| lease.capacity)
}

#[test]
fn a_request_that_times_out_soon_does_not_hold_up_what_is_due() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.ask();
    // Its time is up in ten milliseconds, within the round that asks for the next resource.
    leaf.pass(990);
    leaf.id = ResourceId::new("tenant/bee", Unit::Requests).unwrap();
    leaf.refresh("a", (0, 100));
    leaf.ask();
    assert_eq!(leaf.message(), []);
    leaf.pass(31);
    leaf.id = ResourceId::new("tenant/acme", Unit::Requests).unwrap();
    leaf.ask();
}

#[test]
fn a_newcomer_waits_for_the_parent_and_gets_what_is_borrowed() {
    let mut leaf = Leaf::new();
    let first = leaf.refresh("a", (0, 100));
    assert_eq!((gets(first), first.capacity), (None, Capacity::UNLIMITED));
    let request = {
        let requested = leaf.ask();
        assert_eq!(
            (requested.demand.wants(), requested.has),
            (Capacity::from_whole(100), Capacity::ZERO)
        );
        assert_eq!(requested.claim, Claim::Lease);
        requested
    };
    let source = (request.sequence, Origin::alone(Epoch(1)), 1);
    let id = leaf.id.clone();
    let answer = answer(Capacity::from_whole(60));
    let received = leaf
        .node
        .handle_parent_answer(leaf.now, &id, source, &answer);
    assert_eq!(received, Ok(true));
    leaf.pass(200);
    let second = leaf.refresh("a", (0, 100));
    assert_eq!(
        (gets(second), second.capacity),
        (whole(60), Capacity::from_whole(1000))
    );
    // Two hundred milliseconds of the ten seconds are over.
    let lease = second.lease.unwrap();
    assert_eq!(lease.duration, Duration::from_millis(9800));
    assert_eq!(lease.fingerprint, NO_FINGERPRINT, "of no fixed capacity");
    // It wants more than it gets, and who does asks again soon; the regular interval is halved.
    leaf.pass(200);
    let third = leaf.refresh("a", (60, 60));
    assert_eq!(third.refresh_interval, leaf.limit.refresh / 2);
}

#[test]
fn the_own_limit_holds_too() {
    let mut leaf = Leaf::new();
    leaf.limit.capacity = Capacity::from_whole(50);
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::UNLIMITED, |answer| {
        answer.capacity = Capacity::UNLIMITED
    });
    leaf.pass(200);
    let answer = leaf.refresh("a", (0, 100));
    assert_eq!(
        (gets(answer), answer.capacity),
        (whole(50), Capacity::from_whole(50))
    );
    // The parent is asked for no more than could be lent.
    leaf.pass(1000);
    assert_eq!(leaf.ask().demand.wants(), Capacity::from_whole(50));
    // One that had no limit and is away takes nothing from the leaf's own.
    leaf.pass(20_000);
    leaf.refresh("a", (0, 100));
    leaf.pass(200);
    assert_eq!(gets(leaf.refresh("a", (0, 100))), whole(50));
}

#[test]
fn what_is_lent_ends_with_what_is_borrowed() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| ());
    leaf.pass(9_900);
    let answer = leaf.refresh("a", (0, 60));
    assert_eq!(answer.lease.unwrap().duration, Duration::from_millis(100));
    assert_eq!(answer.refresh_interval, Duration::from_millis(50));
    leaf.pass(100);
    assert_eq!(gets(leaf.refresh("a", (0, 60))), None);
}

/// Whether the last lease was as long as the one that was lent on, or shorter.
#[test]
fn an_answer_that_comes_after_the_end_of_all_that_is_claimed_is_dropped() {
    for secs in [10, 5] {
        let mut leaf = Leaf::new();
        leaf.refresh("a", (0, 60));
        leaf.lend(Capacity::from_whole(60), |_| {});
        leaf.pass(200);
        assert_eq!(gets(leaf.refresh("a", (0, 60))), whole(60));
        leaf.pass(900);
        leaf.lend(Capacity::from_whole(60), |answer| {
            if let Some(lease) = &mut answer.lease {
                lease.duration = Duration::from_secs(secs) - Duration::from_millis(1100);
            }
        });
        leaf.pass(8800);
        let request = leaf.ask();
        assert_eq!(request.has, Capacity::from_whole(60), "{secs}");
        assert_eq!(request.remaining, Some(Duration::from_millis(100)));
        leaf.pass(100);
        let to = (request.sequence, Origin::alone(Epoch(1)), 1);
        let late = answer(Capacity::from_whole(60));
        let counts = leaf
            .node
            .handle_parent_answer(leaf.now, &leaf.id, to, &late);
        assert_eq!(counts, Ok(false), "{secs}");
        leaf.refresh("a", (0, 60));
        assert_eq!(leaf.ask().has, Capacity::ZERO, "{secs}");
    }
}

#[test]
fn a_parent_that_never_answered_counts_as_away_after_a_failure() {
    let mut leaf = Leaf::new();
    leaf.limit.safe = SafeCapacity::Fixed(Capacity::from_whole(30));
    assert_eq!(gets(leaf.refresh("a", (0, 100))), None);
    let request = leaf.ask();
    let id = leaf.id.clone();
    leaf.node
        .handle_parent_failure(leaf.now, &id, request.sequence);
    leaf.pass(200);
    assert_eq!(gets(leaf.refresh("a", (0, 100))), whole(30));
    // The same if nothing comes back at all.
    leaf.pass(500);
    let again = leaf.ask();
    assert!(again.sequence > request.sequence);
    leaf.pass(900);
    leaf.refresh("a", (0, 100));
    assert!(leaf.message().is_empty());
    leaf.pass(100);
    assert!(leaf.ask().sequence > again.sequence);
}

#[test]
fn a_lowered_lease_is_said_until_the_clients_have_given_it_back() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(100), |_| ());
    leaf.pass(200);
    assert_eq!(gets(leaf.refresh("a", (0, 100))), whole(100));
    leaf.pass(900);
    leaf.lend(Capacity::from_whole(40), |answer| {
        answer.refresh_interval = Duration::from_millis(100);
    });
    leaf.pass(100);
    let request = leaf.ask();
    assert_eq!(
        (request.has, request.claim),
        (Capacity::from_whole(100), Claim::Several)
    );
    leaf.lend_again(&request, 40);
    assert_eq!(gets(leaf.refresh("a", (100, 100))), whole(40));
    leaf.pass(100);
    leaf.refresh("a", (40, 100));
    let request = leaf.ask();
    assert_eq!(
        (request.has, request.claim),
        (Capacity::from_whole(40), Claim::Lease)
    );
    assert_eq!(request.fingerprint, 7, "as the parent said");
}

impl Leaf {
    fn lend_again(&mut self, request: &LeaseRequest, units: u64) {
        let source = (request.sequence, Origin::alone(Epoch(1)), 1);
        let id = self.id.clone();
        let answer = answer(Capacity::from_whole(units));
        let received = self
            .node
            .handle_parent_answer(self.now, &id, source, &answer);
        assert_eq!(received, Ok(true));
    }
}

#[test]
fn an_earlier_master_is_not_heard() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    let request = leaf.ask();
    let id = leaf.id.clone();
    let mut hear = |sequence, epoch, units| {
        let source = (sequence, Origin::alone(Epoch(epoch)), 1);
        let answer = answer(Capacity::from_whole(units));
        leaf.node
            .handle_parent_answer(leaf.now, &id, source, &answer)
    };
    assert_eq!(hear(request.sequence - 1, 5, 10), Ok(false));
    assert_eq!(hear(request.sequence, 5, 20), Ok(true));
    assert_eq!(hear(request.sequence, 5, 30), Ok(false), "the same twice");
    leaf.pass(1000);
    let request = leaf.ask();
    let mut hear = |epoch, units| {
        let source = (request.sequence, Origin::alone(Epoch(epoch)), 1);
        let answer = answer(Capacity::from_whole(units));
        leaf.node
            .handle_parent_answer(leaf.now, &id, source, &answer)
    };
    let lower = hear(4, 40);
    assert!(matches!(lower, Err(EpochError::Lower { .. })), "{lower:?}");
    let parent_lease = leaf
        .node
        .parent_leases()
        .unwrap()
        .view(leaf.now, &leaf.id)
        .unwrap();
    assert_eq!(
        (parent_lease.capacity, parent_lease.failures),
        (whole(20), 1)
    );
}

#[test]
fn all_bands_are_asked_for_at_once() {
    let mut leaf = Leaf::new();
    let band = |level, wants, subclients| Band {
        priority: Priority::new(level).unwrap(),
        wants: Capacity::from_whole(wants),
        subclients: NonZeroU32::new(subclients).unwrap(),
    };
    let says = [
        ("a", vec![band(3, 10, 1)]),
        ("b", vec![band(3, 20, 4), band(0, 5, 2)]),
        ("idle", vec![band(0, 0, 1)]),
    ];
    for (client, bands) in says {
        let demand = Demand::try_from_bands(&bands).unwrap();
        let request = LeaseRequest {
            demand,
            ..LeaseRequest::new(1, Capacity::ZERO, Capacity::ZERO)
        };
        leaf.say(client, &request);
    }
    assert_eq!(leaf.ask().demand.bands(), [band(3, 30, 5), band(0, 5, 2)]);
}

#[test]
fn what_nobody_asks_for_is_given_back_and_the_table_is_bounded() {
    let mut leaf = Leaf::new();
    let mut ids = Vec::new();
    for round in 0..20 {
        leaf.id = ResourceId::new(&std::format!("tenant/{round}"), Unit::Requests).unwrap();
        ids.push(leaf.id.clone());
        leaf.refresh("a", (0, 100));
        leaf.lend(Capacity::from_whole(60), |_| ());
        let client = ClientRun::only(ClientId::new("a").unwrap());
        leaf.node.handle_release(&client, &leaf.id, u64::MAX);
        leaf.pass(1000);
        let message = leaf.message();
        assert!(
            matches!(message.as_slice(), [(id, LeaseMessage::Release { .. })] if *id == leaf.id),
            "{message:?}"
        );
    }
    let parent_leases = leaf.node.parent_leases().unwrap();
    assert_eq!(parent_leases.parent_leases.len(), BOUNDS.max_resources);
    // And what is remembered is forgotten in time.
    leaf.pass(60_000);
    assert!(leaf.message().is_empty());
    assert!(leaf.node.parent_leases().unwrap().parent_leases.is_empty());
    assert_eq!(leaf.node.poll_parent(), None);
}

#[test]
fn a_parent_that_knows_no_limit_yet_is_not_one_without_a_limit() {
    let mut leaf = Leaf::new();
    leaf.limit.capacity = Capacity::from_whole(500);
    leaf.refresh("a", (0, 100));
    // It has not heard from its own parent.
    leaf.lend(Capacity::ZERO, |answer| {
        answer.lease = None;
        answer.capacity = Capacity::UNLIMITED;
    });
    assert_eq!(gets(leaf.refresh("a", (0, 100))), None);
    leaf.pass(1000);
    leaf.lend(Capacity::UNLIMITED, |answer| {
        answer.capacity = Capacity::UNLIMITED;
    });
    leaf.pass(10_000);
    assert_eq!(
        gets(leaf.refresh("a", (0, 100))),
        whole(100),
        "now it is away"
    );
}

#[test]
fn a_part_of_the_borrowed_burst_goes_with_each_lease() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 30));
    leaf.refresh("b", (0, 70));
    leaf.lend(Capacity::from_whole(100), |answer| {
        if let Some(lease) = &mut answer.lease {
            lease.burst = Tokens::from_whole(50);
        }
    });
    leaf.pass(200);
    let bursts = [("a", 30), ("b", 70)].map(|(client, wants)| {
        let lease = leaf.refresh(client, (0, wants)).lease.unwrap();
        lease.burst.whole()
    });
    assert_eq!(bursts, [15, 35]);
}

#[test]
fn who_comes_back_waits_for_the_parent_as_long_as_that_is_there() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |answer| {
        answer.safe = Some(Capacity::from_whole(5));
    });
    let client = ClientRun::only(ClientId::new("a").unwrap());
    leaf.pass(200);
    leaf.node.handle_release(&client, &leaf.id, u64::MAX);
    leaf.pass(2000);
    assert!(matches!(
        leaf.message().as_slice(),
        [(_, LeaseMessage::Release { .. })]
    ));
    assert_eq!(gets(leaf.refresh("a", (0, 100))), None);
    leaf.ask();
    leaf.pass(1000);
    leaf.ask();
    assert_eq!(
        gets(leaf.refresh("a", (0, 100))),
        whole(5),
        "now it is away"
    );
}

#[test]
fn the_limit_that_binds_is_the_parents_where_it_leaves_less() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| {});
    leaf.refresh("a", (0, 100));
    let binding = leaf.node.binding_limit(&leaf.id).unwrap();
    assert_eq!(binding.of, LimitOwner::Parent);
    assert_eq!(binding.at_most, Capacity::from_whole(60));
    // The borrowed capacity is enough, so that the whole of what the parent has is the limit.
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(100), |_| {});
    leaf.refresh("a", (0, 100));
    let binding = leaf.node.binding_limit(&leaf.id).unwrap();
    assert_eq!(binding.of, LimitOwner::Parent);
    assert_eq!(binding.at_most, Capacity::from_whole(1000));
}
