//! Clients that do not come back: what they have counts, what they want does not.

use core::num::NonZeroU64;
use std::vec::Vec;

use super::*;
use crate::limit::Part;

/// Clients of one node, `<node>/<run>`, that want all that there is.
struct Nodes {
    fleet: Fleet,
}

fn run_of(id: &str) -> ClientRun {
    ClientRun {
        id: ClientId::new(id).unwrap(),
        run: Run::Incarnation(NonZeroU64::MIN),
    }
}

impl Nodes {
    fn new() -> Self {
        let mut fleet = Fleet::new(LEARNED);
        fleet.limit.headroom = Part::NONE;
        Self { fleet }
    }

    fn pass(&mut self, ms: u64) {
        self.fleet.now = self.fleet.now.saturating_add(Duration::from_millis(ms));
    }

    fn answer(&mut self, id: &str, has: u64, wants: u64) -> Answer {
        self.fleet.sequence += 1;
        let (has, wants) = (Capacity::from_whole(has), Capacity::from_whole(wants));
        let request = LeaseRequest::new(self.fleet.sequence, has, wants);
        let limit = self.fleet.limit.clone();
        let (resource, now) = (&mut self.fleet.resource, self.fleet.now);
        refresh(resource, now, &run_of(id), &request, (&limit, 100)).unwrap()
    }

    /// Capacity of each of `ids`, which have so much and want everything, after some rounds.
    fn settled<const N: usize>(&mut self, ids: [&str; N], mut has: [u64; N]) -> [u64; N] {
        for _ in 0..4 {
            self.pass(100);
            for (id, has) in ids.iter().zip(&mut has) {
                *has = gets(&self.answer(id, *has, CAPACITY));
            }
        }
        has
    }

    fn wants(&self, id: &str) -> u64 {
        let mut records = self.fleet.resource.clients();
        let record = records.find(|record| record.id.as_str() == id);
        record.unwrap().wants.as_micros() / 1_000_000
    }

    /// A client that has been there for longer than a lease, and has everything.
    fn with_an_old_one(id: &str) -> Self {
        let mut nodes = Self::new();
        let mut has = 0;
        for _ in 0..12 {
            has = gets(&nodes.answer(id, has, CAPACITY));
            nodes.pass(1000);
        }
        assert_eq!(has, CAPACITY);
        nodes
    }
}

#[test]
fn one_that_misses_its_refresh_wants_no_more_than_it_has() {
    let mut nodes = Nodes::with_an_old_one("a/1");
    let [a, b] = nodes.settled(["a/1", "b/1"], [CAPACITY, 0]);
    assert_eq!((a, b), (500, 500));
    // It was told to come back after a second.
    nodes.pass(1900);
    nodes.answer("b/1", 500, CAPACITY);
    assert_eq!(nodes.wants("a/1"), CAPACITY, "it may be late");
    nodes.pass(200);
    nodes.answer("b/1", 500, CAPACITY);
    assert_eq!(nodes.wants("a/1"), 500);
    // So a third one gets its part of what there is, and not a fourth of it.
    let [b, c] = nodes.settled(["b/1", "c/1"], [500, 0]);
    assert_eq!((b, c), (333, 166), "what a has is in use");
    // It comes back within its lease, keeps that, and then wants what it wants.
    assert_eq!(gets(&nodes.answer("a/1", 500, CAPACITY)), 333, "its share");
    assert_eq!(nodes.wants("a/1"), CAPACITY);
    let shares = nodes.settled(["a/1", "b/1", "c/1"], [333, 333, 166]);
    assert_eq!(shares, [333, 333, 333]);
}

#[test]
fn one_that_comes_back_within_its_lease_keeps_it() {
    let mut nodes = Nodes::with_an_old_one("a/1");
    nodes.settled(["a/1", "b/1"], [CAPACITY, 0]);
    for _ in 0..8 {
        nodes.pass(1000);
        assert_eq!(gets(&nodes.answer("b/1", 500, CAPACITY)), 500);
    }
    assert_eq!(gets(&nodes.answer("a/1", 500, CAPACITY)), 500);
}

/// An old one is nobody's earlier run until it has been silent; a young one is, at once.
#[test]
fn a_new_run_of_a_node_ends_the_wants_of_the_young_one_before() {
    for (old, want) in [(true, [333, 166]), (false, [500, 0])] {
        let mut nodes = Nodes::with_an_old_one(if old { "a/1" } else { "x/1" });
        let other = if old { "b/1" } else { "a/1" };
        let first = if old { "a/1" } else { "x/1" };
        nodes.settled([first, other], [CAPACITY, 0]);
        // From now on only the client of the other node asks, and the new run.
        let honest = if old { "b/1" } else { "x/1" };
        let got = nodes.settled([honest, "a/2"], [500, 0]);
        assert_eq!(got, want, "old: {old}");
    }
}

/// All Envoys of a fleet may have the same node id, or none.
#[test]
fn clients_that_share_a_node_lose_nothing_when_one_of_them_starts() {
    let mut nodes = Nodes::new();
    let mut has = Vec::new();
    for i in 0..5 {
        has.push((std::format!("/{i}"), 0));
        for _ in 0..4 {
            nodes.pass(100);
            for (id, has) in &mut has {
                *has = gets(&nodes.answer(id, *has, CAPACITY));
            }
        }
        let all: Vec<_> = has.iter().map(|(_, has)| *has).collect();
        assert_eq!(all, std::vec![CAPACITY / (i + 1); all.len()]);
    }
}

/// A process with more scopes than slots releases the lease of one, and comes back to it.
#[test]
fn one_that_has_outlived_a_doubt_is_not_doubted_whenever_another_comes_back() {
    let mut nodes = Nodes::new();
    nodes.answer("a/1", 0, 10);
    for first in [true, false, false] {
        nodes.pass(300);
        nodes.answer("a/2", 0, 10);
        assert_eq!(nodes.wants("a/1"), if first { 0 } else { 10 });
        nodes.pass(300);
        nodes.answer("a/1", 10, 10);
        nodes
            .fleet
            .resource
            .handle_release(&run_of("a/2"), u64::MAX);
    }
}

#[test]
fn the_lease_of_a_young_client_is_short_where_another_is_silent() {
    let mut nodes = Nodes::with_an_old_one("a/1");
    let lease = |answer: Answer| answer.lease.unwrap().duration.as_secs();
    nodes.settled(["a/1", "b/1"], [CAPACITY, 0]);
    assert_eq!(lease(nodes.answer("b/1", 500, CAPACITY)), 10);
    nodes.pass(2100);
    assert_eq!(lease(nodes.answer("b/1", 500, CAPACITY)), 4);
    nodes.pass(500);
    assert_eq!(lease(nodes.answer("a/1", 500, CAPACITY)), 10, "it is old");
    assert_eq!(lease(nodes.answer("b/1", 500, CAPACITY)), 10, "nobody is");
    nodes.pass(9000);
    assert_eq!(lease(nodes.answer("b/1", 500, CAPACITY)), 10, "not young");
}

#[test]
fn a_snapshot_says_who_is_silent() {
    let mut nodes = Nodes::with_an_old_one("a/1");
    nodes.settled(["a/1", "b/1"], [CAPACITY, 0]);
    nodes.pass(2100);
    nodes.answer("b/1", 500, CAPACITY);
    let now = nodes.fleet.now;
    let presence = |id| {
        let snapshot = nodes.fleet.resource.client_snapshot(now, &run_of(id));
        snapshot.unwrap().presence
    };
    let (a, b) = (presence("a/1"), presence("b/1"));
    assert_eq!((a.silent, a.missed), (true, true));
    assert_eq!((b.silent, b.missed), (false, false));
    assert_eq!(b.missed_in, Duration::from_millis(3650));
    assert_eq!(presence("a/1").young_for, Duration::ZERO);
    assert_eq!(presence("b/1").young_for, Duration::from_millis(7600));
}
