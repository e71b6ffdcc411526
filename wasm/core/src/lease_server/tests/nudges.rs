//! Clients that are named because of what another one did.

use core::num::NonZeroU32;
use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::lease::{Claim, Origin};
use crate::lease_client::LeaseMessage;

/// Coordinator of one resource, with clients that use what they were told last.
struct World {
    node: LeaseServer,
    limit: Limit,
    now: Instant,
    sequence: u64,
}

impl World {
    fn new(capacity: u64) -> Self {
        let mut limit = Limit::new(Capacity::from_whole(capacity));
        limit.headroom = Part::NONE;
        Self {
            node: LeaseServer::new(secs(0), Epoch(1), MANY, Start::Fresh),
            limit,
            now: secs(0),
            sequence: 0,
        }
    }

    /// The answer to `client`, which has `has` and wants `wants` of `scope`.
    fn asks_of(&mut self, scope: &str, client: &str, has: u64, wants: u64) -> (u64, Duration) {
        self.sequence += 1;
        let request = LeaseRequest {
            remaining: (has > 0).then_some(Duration::from_secs(9)),
            ..LeaseRequest::new(
                self.sequence,
                Capacity::from_whole(has),
                Capacity::from_whole(wants),
            )
        };
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        let terms = Terms::of(&self.limit);
        let client = run(client);
        let answer = self
            .node
            .handle_refresh(self.now, &client, &resource, &request, &terms);
        let answer = answer.unwrap();
        let gets = answer.lease.map_or(0, |lease| lease.capacity.as_micros());
        (gets / 1_000_000, answer.refresh_interval)
    }

    fn asks(&mut self, client: &str, has: u64, wants: u64) -> u64 {
        self.asks_of("tenant/a", client, has, wants).0
    }

    /// The clients that are named now.
    fn nudged(&mut self) -> Vec<String> {
        names(&mut self.node)
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
        self.node.handle_timeout(self.now);
    }

    /// One client that has all of the capacity, and has it confirmed.
    fn with_one(capacity: u64) -> Self {
        let mut world = Self::new(capacity);
        assert_eq!(world.asks("a", 0, capacity), capacity);
        world.wait(1000);
        assert_eq!(world.asks("a", capacity, capacity), capacity);
        world.wait(500);
        assert_eq!(world.nudged(), NOBODY);
        world
    }

    /// Two that share the capacity.
    fn with_two(capacity: u64) -> Self {
        let mut world = Self::with_one(capacity);
        let half = capacity / 2;
        world.asks("b", 0, capacity);
        world.asks("a", capacity, capacity);
        world.asks("a", half, capacity);
        assert_eq!(world.asks("b", 0, capacity), half);
        world.wait(1000);
        assert_eq!(world.asks("a", half, capacity), half);
        assert_eq!(world.asks("b", half, capacity), half);
        world.nudged();
        world.wait(500);
        world
    }
}

const NOBODY: [&str; 0] = [];

const MANY: Bounds = Bounds {
    max_resources: 100,
    max_clients_per_resource: 10_000,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn run(client: &str) -> ClientRun {
    ClientRun::only(ClientId::new(client).unwrap())
}

fn names(node: &mut LeaseServer) -> Vec<String> {
    let nudges = core::iter::from_fn(|| node.poll_nudge());
    nudges.map(|nudge| nudge.client.as_str().into()).collect()
}

/// A newcomer to a fully lent resource has its share after three requests of others and its own, with
/// no time in between.
#[test]
fn a_newcomer_gets_its_share_without_waiting_for_a_refresh() {
    let mut world = World::with_one(100);
    assert_eq!(world.asks("b", 0, 100), 0);
    assert_eq!(world.nudged(), ["a"], "holds more than its share");
    world.wait(1);
    assert_eq!(world.asks("a", 100, 100), 50);
    assert_eq!(world.nudged(), ["a"], "has to confirm");
    world.wait(1);
    let (gets, interval) = world.asks_of("tenant/a", "a", 50, 100);
    assert_eq!(gets, 50);
    assert!(interval > Duration::from_millis(900), "{interval:?}");
    assert_eq!(world.nudged(), ["b"], "may take it");
    let (gets, interval) = world.asks_of("tenant/a", "b", 0, 100);
    assert_eq!((gets, interval), (50, Duration::from_secs(1)));
    assert_eq!(world.nudged(), NOBODY);
}

#[test]
fn demand_that_ends_goes_to_those_who_want_it() {
    let mut world = World::with_two(100);
    assert_eq!(world.asks("a", 50, 0), 0);
    assert_eq!(world.nudged(), ["a"]);
    assert_eq!(world.asks("a", 0, 0), 0);
    assert_eq!(world.nudged(), ["b"]);
    assert_eq!(world.asks("b", 50, 100), 100);
    assert_eq!(world.nudged(), NOBODY);
}

#[test]
fn what_is_given_back_or_expires_goes_to_those_who_want_it() {
    for releases in [true, false] {
        let mut world = World::with_two(100);
        if releases {
            let id = ResourceId::new("tenant/a", Unit::Requests).unwrap();
            world.node.handle_release(&run("a"), &id, u64::MAX);
        } else {
            world.wait(9000);
            assert_eq!(world.asks("b", 50, 100), 50);
            world.wait(600);
        }
        world.wait(0);
        assert_eq!(world.nudged(), ["b"], "{releases}");
        assert_eq!(world.asks("b", 50, 100), 100);
    }
}

/// Nobody is named while all have what they want, nor for a change within the noise.
#[test]
fn a_fleet_at_rest_is_left_alone() {
    let mut world = World::new(1000);
    for step in 0..20 {
        for (i, client) in ["a", "b", "c"].into_iter().enumerate() {
            let wants = 100 + (step + i as u64) % 5;
            let has = if step == 0 { 0 } else { 99 };
            world.asks(client, has, wants);
        }
        assert_eq!(world.nudged(), NOBODY, "{step}");
        world.wait(1000);
    }
    let mut world = World::with_two(1000);
    for wants in [1000, 980, 1020, 900] {
        assert_eq!(world.asks("a", 500, wants), 500);
        assert_eq!(world.nudged(), NOBODY);
        world.wait(1000);
        assert_eq!(world.asks("b", 500, 1000), 500);
        world.wait(1000);
    }
}

#[test]
fn all_are_named_when_the_limit_changes() {
    let mut world = World::with_two(100);
    world.limit.capacity = Capacity::from_whole(200);
    assert_eq!(world.asks("a", 50, 100), 100);
    assert_eq!(world.nudged(), ["b"]);
    assert_eq!(world.asks("b", 50, 100), 100);
    world.wait(1000);
    world.limit.capacity = Capacity::from_whole(100);
    world.asks("a", 100, 100);
    assert_eq!(world.nudged(), ["a", "b"]);
    world.wait(1);
    world.asks("a", 50, 100);
    world.asks("b", 100, 100);
    assert_eq!(world.nudged(), ["b"]);
}

/// A nudge that does not help is not repeated before the minimum interval is over: one that was
/// lost, and one to a client that cannot confirm yet.
#[test]
fn a_nudge_is_not_repeated_at_once() {
    let mut world = World::with_one(100);
    world.asks("b", 0, 100);
    assert_eq!(world.nudged(), ["a"]);
    world.wait(50);
    world.asks("b", 0, 100);
    assert_eq!(world.nudged(), NOBODY);
    world.wait(50);
    world.asks("b", 0, 100);
    assert_eq!(world.nudged(), ["a"]);
    // It goes on with the larger lease, as if the answer had been lost.
    world.wait(1);
    assert_eq!(world.asks("a", 100, 100), 50);
    assert_eq!(world.nudged(), ["a"]);
    for _ in 0..3 {
        world.wait(20);
        assert_eq!(world.asks("a", 100, 100), 50);
        assert_eq!(world.nudged(), NOBODY);
    }
    world.wait(40);
    assert_eq!(world.asks("a", 100, 100), 50);
    assert_eq!(world.nudged(), ["a"]);
}

/// One that was answered just now, and would be told the same again, is named when its minimum
/// interval is over, even if nothing happens meanwhile.
#[test]
fn one_that_has_just_been_answered_is_named_later() {
    let mut world = World::with_one(100);
    world.asks("a", 100, 100);
    world.wait(30);
    world.asks("b", 0, 100);
    assert_eq!(world.nudged(), NOBODY);
    let next = world.node.poll_timeout().unwrap();
    assert_eq!(next.saturating_since(world.now), Duration::from_millis(70));
    world.wait(70);
    assert_eq!(world.nudged(), ["a"]);
    world.wait(1);
    assert_eq!(world.asks("a", 100, 100), 50);
}

/// One that wants more than before waits for the minimum interval, as without nudges.
#[test]
fn more_wants_do_not_make_an_early_request_count() {
    let mut world = World::new(100);
    assert_eq!(world.asks("a", 0, 10), 10);
    world.wait(10);
    assert_eq!(world.asks("a", 10, 90), 10);
    world.wait(90);
    assert_eq!(world.asks("a", 10, 90), 90);
}

#[test]
fn nobody_is_named_while_the_coordinator_learns_or_divides_by_usage() {
    for learns in [true, false] {
        let mut world = World::new(100);
        if learns {
            world.node = LeaseServer::new(secs(0), Epoch(1), MANY, Start::Learning)
        } else {
            world.limit.algorithm = Algorithm::UsageShare
        }
        world.asks("a", 100, 100);
        for _ in 0..10 {
            world.wait(100);
            world.asks("b", 0, 100);
            assert_eq!(world.nudged(), NOBODY, "{learns}");
        }
    }
}

/// A round over many clients goes on with each event, so that none takes long; and all are named.
#[test]
fn many_clients_are_named_a_few_at_a_time() {
    let mut world = World::new(1000);
    let clients: Vec<_> = (0..100).map(|i| format!("c{i:02}")).collect();
    for client in &clients {
        assert_eq!(world.asks(client, 0, 10), 10);
    }
    world.wait(1000);
    for client in &clients {
        assert_eq!(world.asks(client, 10, 10), 10);
    }
    world.wait(500);
    let mut named = Vec::new();
    world.limit.capacity = Capacity::from_whole(500);
    for _ in 0..7 {
        world.asks("new", 0, 0);
        let nudged = world.nudged();
        assert!(nudged.len() <= 16, "{nudged:?}");
        named.extend(nudged);
        world.wait(1);
    }
    named.sort();
    assert_eq!(named, clients);
}

#[test]
fn nudges_that_nobody_takes_are_bounded() {
    let mut world = World::new(20_000);
    let clients: Vec<_> = (0..2000).map(|i| format!("c{i}")).collect();
    for client in &clients {
        assert_eq!(world.asks(client, 0, 10), 10);
    }
    world.wait(1000);
    for client in &clients {
        world.asks(client, 10, 10);
    }
    world.wait(500);
    world.limit.capacity = Capacity::from_whole(10_000);
    for _ in 0..200 {
        world.asks("new", 0, 0);
    }
    assert_eq!(world.nudged().len(), 1024);
    world.asks("new", 0, 0);
    assert_eq!(world.nudged().len(), 16, "goes on where it stopped");
}

/// Of two tenants of a group the one that holds more than its part is named when the other one comes.
#[test]
fn members_of_a_pool_are_named_for_each_other() {
    let pool = ResourceId::new("group/gold", Unit::Requests).unwrap();
    let mut limit = Limit::new(Capacity::from_whole(100));
    limit.headroom = Part::NONE;
    let mut own = Limit::new(Capacity::UNLIMITED);
    own.headroom = Part::NONE;
    let terms = Terms {
        limit: &own,
        pool: Some(PoolTerms {
            pool: &pool,
            limit: &limit,
            weight: NonZeroU32::MIN,
        }),
    };
    let mut node = LeaseServer::new(secs(0), Epoch(1), MANY, Start::Fresh);
    let mut sequence = 0;
    let mut asks = |node: &mut LeaseServer, ms: u64, tenant: &str, has: u64, wants: u64| {
        sequence += 1;
        let whole = Capacity::from_whole;
        let request = LeaseRequest::new(sequence, whole(has), whole(wants));
        let id = ResourceId::new(tenant, Unit::Requests).unwrap();
        let now = Instant::from_nanos(ms * 1_000_000);
        let answer = node.handle_refresh(now, &run("envoy"), &id, &request, &terms);
        answer.unwrap().lease.unwrap().capacity.as_micros() / 1_000_000
    };
    let named = |node: &mut LeaseServer| -> Vec<String> {
        let nudges = core::iter::from_fn(|| node.poll_nudge());
        nudges
            .map(|nudge| nudge.resource.scope.as_ref().into())
            .collect()
    };
    assert_eq!(asks(&mut node, 0, "tenant/a", 0, 100), 100);
    assert_eq!(asks(&mut node, 1000, "tenant/a", 100, 100), 100);
    assert_eq!(asks(&mut node, 1500, "tenant/b", 0, 100), 0);
    assert_eq!(named(&mut node), ["tenant/a"]);
    assert_eq!(asks(&mut node, 1501, "tenant/a", 100, 100), 50);
    assert_eq!(named(&mut node), ["tenant/a"]);
    assert_eq!(asks(&mut node, 1502, "tenant/a", 50, 100), 50);
    assert_eq!(named(&mut node), ["tenant/b"]);
    assert_eq!(asks(&mut node, 1503, "tenant/b", 0, 100), 50);
    assert_eq!(named(&mut node), NOBODY);
}

/// A coordinator below another asks it at once for a resource that the parent names, and names its own
/// clients when the answer changes what they may have.
#[test]
fn nudges_go_down_a_tree() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), MANY, Start::Fresh);
    node.borrow_from_parent(secs(0), 0, Duration::from_secs(1));
    let id = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let mut limit = Limit::new(Capacity::from_whole(100));
    limit.headroom = Part::NONE;
    let asks = |node: &mut LeaseServer, ms: u64, client: &str, has: u64| {
        let whole = Capacity::from_whole;
        let request = LeaseRequest::new(ms, whole(has), whole(40));
        let now = Instant::from_nanos(ms * 1_000_000);
        let answer = node.handle_refresh(now, &run(client), &id, &request, &Terms::of(&limit));
        let lease = answer.unwrap().lease;
        lease.map_or(0, |lease| lease.capacity.as_micros() / 1_000_000)
    };
    let lends = |node: &mut LeaseServer, ms: u64, capacity: u64| {
        let now = Instant::from_nanos(ms * 1_000_000);
        let messages = node.ask_parent(now, 10);
        let [(asked, LeaseMessage::Refresh(request))] = &messages[..] else {
            panic!("{ms}: {messages:?}");
        };
        assert_eq!(request.claim, Claim::Lease);
        let answer = Answer {
            lease: Some(LeaseTerms {
                capacity: Capacity::from_whole(capacity),
                burst: Tokens::from_whole(10),
                duration: Duration::from_secs(10),
                fingerprint: NO_FINGERPRINT,
            }),
            refresh_interval: Duration::from_secs(2),
            safe: None,
            capacity: Capacity::from_whole(100),
            period: None,
            burst: None,
            draw: None,
        };
        let origin = Origin {
            shard: None,
            epoch: Epoch(1),
        };
        let answered = (request.sequence, origin, 1);
        node.handle_parent_answer(now, asked, answered, &answer)
            .unwrap();
    };
    asks(&mut node, 10, "a", 0);
    lends(&mut node, 11, 20);
    assert_eq!(names(&mut node), ["a"], "may have what has been borrowed");
    assert_eq!(asks(&mut node, 12, "a", 0), 20);
    assert_eq!(names(&mut node), NOBODY);
    let now = Instant::from_nanos(600_000_000);
    assert!(node.ask_parent(now, 10).is_empty());
    node.handle_parent_nudge(now, &id);
    assert_eq!(node.poll_parent(), Some(now));
    lends(&mut node, 600, 100);
    assert_eq!(names(&mut node), ["a"]);
    assert_eq!(asks(&mut node, 601, "a", 20), 40);
    // A nudge while the answer is awaited makes the request after it due.
    node.handle_parent_nudge(Instant::from_nanos(700_000_000), &id);
    let now = Instant::from_nanos(700_000_000);
    let messages = node.ask_parent(now, 10);
    assert_eq!(messages.len(), 1);
    node.handle_parent_nudge(now, &id);
    assert!(node.poll_parent() > Some(now));
}
