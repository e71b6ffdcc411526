mod buckets;
mod learning;
mod nudges;
mod pool_draws;
mod pools;
mod quotas;
mod tree_tokens;

use alloc::string::ToString as _;
use core::num::NonZeroU64;
use core::time::Duration;

use super::*;
use crate::lease::{Answer, LeaseRequest, LeaseTerms, NO_FINGERPRINT, Run, Unit};
use crate::limit::{Algorithm, Limit, Part};
use crate::resource::RefreshError;
use crate::units::{Capacity, Tokens};

const BOUNDS: Bounds = Bounds {
    max_resources: 2,
    max_clients_per_resource: 10,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn refresh(node: &mut LeaseServer, now: Instant, scope: &str) -> Result<Answer, RefreshError> {
    let client = ClientRun::only(ClientId::new("envoy-1/x").unwrap());
    let resource = ResourceId::new(scope, Unit::Requests).unwrap();
    let wants = Capacity::from_whole(5);
    let request = LeaseRequest::new(now.as_nanos(), Capacity::ZERO, wants);
    let limit = Limit::new(Capacity::from_whole(100));
    node.handle_refresh(now, &client, &resource, &request, &Terms::of(&limit))
}

fn secs(secs: u64) -> Instant {
    Instant::ZERO.saturating_add(Duration::from_secs(secs))
}

#[test]
fn resources_are_bounded_and_collected() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    refresh(&mut node, secs(1), "tenant/a").unwrap();
    refresh(&mut node, secs(2), "tenant/b").unwrap();
    let refused = refresh(&mut node, secs(3), "tenant/c").unwrap_err();
    assert_eq!(refused, RefreshError::TooManyResources { max: 2 });

    let client = ClientRun::only(ClientId::new("envoy-1/x").unwrap());
    let a = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    node.handle_release(&client, &a, u64::MAX);
    refresh(&mut node, secs(4), "tenant/c").unwrap();
    assert_eq!(node.resource_count(), 2);

    // b is not refreshed again: it expires four seconds after its grant, because the table fills.
    assert_eq!(node.poll_timeout(), Some(secs(6)));
    node.handle_timeout(secs(6));
    let left: Vec<_> = node.resources().map(|(id, _)| id.scope.as_ref()).collect();
    assert_eq!(left, ["tenant/c"]);
}

/// Envoys that never release anything ask for a new resource each 8 ms, of a table that is full after
/// 8 s, which is shorter than a lease: 12 000 a second at the default bound.
#[test]
fn a_table_turns_over_before_it_is_full() {
    for clients in [2, 40] {
        let bounds = Bounds {
            max_resources: 1000,
            max_leases: 10_000,
            max_durable: 100_000,
            ..BOUNDS
        };
        let mut node = LeaseServer::new(secs(0), Epoch(1), bounds, Start::Fresh);
        let limit = Limit::new(Capacity::from_whole(100));
        let wants = Capacity::from_whole(10);
        let mut old = 0;
        for i in 0..7500_u64 {
            let now = secs(1).saturating_add(Duration::from_millis(8 * i));
            let mut ask = |client: u64, scope: &str| {
                let client = ClientRun::only(ClientId::new(&std::format!("e/{client}")).unwrap());
                let resource = ResourceId::new(scope, Unit::Requests).unwrap();
                let request = LeaseRequest::new(now.as_nanos(), Capacity::ZERO, wants);
                node.handle_refresh(now, &client, &resource, &request, &Terms::of(&limit))
            };
            let answer = ask(i % clients, &std::format!("tenant/{i}"));
            assert!(answer.is_ok(), "{answer:?} at {now:?}");
            if i % 125 == 0 {
                let answer = ask(0, "tenant/known").unwrap();
                old = answer.lease.unwrap().duration.as_secs();
            }
        }
        assert_eq!(
            old, 10,
            "one that is always there keeps its lease for the whole time"
        );
    }
}

/// Nobody need have looked at the expiries.
#[test]
fn leases_that_have_ended_make_room_at_once() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    refresh(&mut node, secs(1), "tenant/a").unwrap();
    refresh(&mut node, secs(1), "tenant/b").unwrap();
    assert!(refresh(&mut node, secs(2), "tenant/c").is_err());
    refresh(&mut node, secs(11), "tenant/c").unwrap();
    assert_eq!(node.resource_count(), 1);
}

#[test]
fn leases_are_bounded_over_all_resources() {
    let bounds = Bounds {
        max_leases: 3,
        max_durable: 100_000,
        ..BOUNDS
    };
    let mut node = LeaseServer::new(secs(0), Epoch(1), bounds, Start::Fresh);
    let limit = Limit::new(Capacity::from_whole(100));
    let refresh = |node: &mut LeaseServer, at: u64, client: &str, scope: &str| {
        let (client, resource) = (
            ClientRun::only(ClientId::new(client).unwrap()),
            ResourceId::new(scope, Unit::Requests).unwrap(),
        );
        let request = LeaseRequest::new(at, Capacity::ZERO, Capacity::from_whole(5));
        node.handle_refresh(secs(at), &client, &resource, &request, &Terms::of(&limit))
    };
    for (at, client, scope) in [
        (1, "a", "tenant/a"),
        (2, "b", "tenant/a"),
        (3, "a", "tenant/b"),
    ] {
        refresh(&mut node, at, client, scope).unwrap();
    }
    let refused = Err(RefreshError::TooManyLeases { max: 3 });
    assert_eq!(refresh(&mut node, 4, "c", "tenant/a"), refused);
    assert_eq!(refresh(&mut node, 4, "b", "tenant/b"), refused);
    // Those that are known go on.
    refresh(&mut node, 5, "a", "tenant/a").unwrap();
    refresh(&mut node, 5, "a", "tenant/b").unwrap();
    // b is idle: its lease ends four seconds after its grant, and there is room again.
    assert_eq!(refresh(&mut node, 5, "c", "tenant/b"), refused);
    node.handle_timeout(secs(6));
    assert_eq!(node.lease_count(), 2);
    refresh(&mut node, 6, "c", "tenant/b").unwrap();
    // Leases of other shards of the process count as well; no known client is refused for it.
    node.set_leases_elsewhere(2);
    assert_eq!(refresh(&mut node, 7, "d", "tenant/b"), refused);
    refresh(&mut node, 7, "a", "tenant/a").unwrap();
    node.handle_release(
        &ClientRun::only(ClientId::new("a").unwrap()),
        &ResourceId::new("tenant/a", Unit::Requests).unwrap(),
        99,
    );
    assert_eq!((node.lease_count(), node.resource_count()), (2, 1));
    node.set_leases_elsewhere(0);
    refresh(&mut node, 8, "d", "tenant/b").unwrap();
    let count: usize = node
        .resources()
        .map(|(_, resource)| resource.client_count())
        .sum();
    assert_eq!((node.lease_count(), count), (3, 3));
}

#[test]
fn a_node_learns_for_the_time_of_the_limit_unless_the_fleet_is_new() {
    for (start, at, lends) in [
        (Start::Learning, secs(9), false),
        (Start::Learning, secs(10), true),
        (Start::Fresh, secs(0), true),
    ] {
        let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, start);
        let answer = refresh(&mut node, at, "tenant/a").unwrap();
        assert_eq!(answer.lease.is_some(), lends, "{start:?} {at:?}");
    }
}

/// A client that claims a lease of a resource that a master without anything to learn does not know
/// has it from another: the resource has moved here.
#[test]
fn a_claim_on_an_unknown_resource_is_learned_from() {
    let whole = Capacity::from_whole;
    let (second, none) = (Some(Duration::from_secs(1)), Some(Duration::ZERO));
    let rows = [
        ("nothing", Capacity::ZERO, None, false),
        ("a lease", whole(30), second, true),
        ("a lease of unknown time", whole(30), None, true),
        ("a lease that is over", whole(30), none, false),
        ("no limit", Capacity::UNLIMITED, second, false),
        ("no limit, as on the wire", Capacity::MAX, second, false),
    ];
    let mut limit = Limit::new(whole(100));
    limit.headroom = Part::NONE;
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    for (row, has, remaining, learns) in rows {
        let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
        let mut ask = |client: &str, now, has, remaining| {
            let request = LeaseRequest {
                remaining,
                ..LeaseRequest::new(1, has, whole(40))
            };
            let client = ClientRun::only(ClientId::new(client).unwrap());
            let answer = node.handle_refresh(now, &client, &resource, &request, &Terms::of(&limit));
            let lease = answer.unwrap().lease;
            (
                lease.map(|lease| lease.capacity),
                node.resource(&resource).unwrap().learning_until(),
            )
        };
        let (got, until) = ask("envoy-1/x", secs(100), has, remaining);
        let want = if learns {
            (30, secs(110))
        } else {
            (40, secs(0))
        };
        assert_eq!((got, until), (Some(whole(want.0)), want.1), "{row}");
        // As ever while learning, the others are told nothing yet; afterwards they are.
        let (other, _) = ask("envoy-2/x", secs(101), Capacity::ZERO, None);
        assert_eq!(other, (!learns).then_some(whole(40)), "{row}");
        // Of a resource that is known all leases are known, so that a claim tells nothing.
        let (_, again) = ask("envoy-3/x", secs(102), whole(5), second);
        assert_eq!(again, until, "{row}");
        let (later, _) = ask("envoy-4/x", secs(111), whole(5), second);
        assert!(
            later.is_some_and(|gets| gets > Capacity::ZERO),
            "{row}: {later:?}"
        );
    }
}

/// A node, and what one client after the other is answered.
struct World {
    node: LeaseServer,
    limit: Limit,
}

impl World {
    /// Restarted at `now`: without a lease table, and learning.
    fn restarted(now: Instant, limit: &Limit) -> Self {
        let node = LeaseServer::new(now, Epoch(now.as_nanos()), BOUNDS, Start::Learning);
        let limit = limit.clone();
        Self { node, limit }
    }

    /// Answer to `client`, which has `lease` until `expiry`, and wants as much.
    fn ask(&mut self, now: Instant, client: &str, lease: LeaseTerms, expiry: Instant) -> Answer {
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
        let request = LeaseRequest {
            remaining: Some(expiry.saturating_since(now)),
            fingerprint: lease.fingerprint,
            ..LeaseRequest::new(now.as_nanos(), lease.capacity, Capacity::from_whole(1000))
        };
        let terms = Terms::of(&self.limit);
        let answer = self
            .node
            .handle_refresh(now, &client, &resource, &request, &terms);
        answer.unwrap()
    }
}

fn lease(gets: u64, fingerprint: u64) -> LeaseTerms {
    LeaseTerms {
        capacity: Capacity::from_whole(gets),
        burst: Tokens::ONE,
        duration: Duration::from_secs(10),
        fingerprint,
    }
}

/// The fingerprint of a lease of a capacity of so many.
fn basis_of(capacity: u64) -> u64 {
    let limit = Limit::new(Capacity::from_whole(capacity));
    let mut world = World::restarted(secs(0), &limit);
    let nothing = lease(0, 0);
    let answer = world.ask(secs(100), "x", nothing, secs(0));
    answer.lease.unwrap().fingerprint
}

/// Capacity above a lowered one ends with the leases that were out, however often the coordinator
/// restarts meanwhile: a claim lent under the larger capacity is not prolonged.
#[test]
fn restarts_do_not_prolong_what_is_above_a_lowered_capacity() {
    // At 0 a got 600 and b 400, of 1000. Then the capacity was lowered to 300.
    let old = basis_of(1000);
    let limit = Limit::new(Capacity::from_whole(300));
    let mut second = World::restarted(secs(1), &limit);
    let a = second.ask(secs(2), "a", lease(600, old), secs(10));
    let a = a.lease.unwrap();
    assert_eq!(a.capacity, Capacity::from_whole(300));
    assert_eq!(secs(2).saturating_add(a.duration), secs(10), "as before");
    assert_eq!(a.fingerprint, old, "it rests on what it rested on");
    // b is heard only by a third master, which knows nothing of a.
    let mut third = World::restarted(secs(8), &limit);
    let b = third.ask(secs(9), "b", lease(400, old), secs(10));
    let b = b.lease.unwrap();
    assert_eq!(b.capacity, Capacity::from_whole(300));
    assert_eq!(
        secs(9).saturating_add(b.duration),
        secs(10),
        "not beyond the lease of a"
    );
}

/// While limits stay as they are, or grow, nobody loses its lease for a restart.
#[test]
fn claims_under_the_limits_of_today_are_prolonged() {
    for (lent_of, prolonged) in [(300, true), (200, true), (301, false)] {
        let limit = Limit::new(Capacity::from_whole(300));
        let mut world = World::restarted(secs(8), &limit);
        let a = world.ask(secs(9), "a", lease(200, basis_of(lent_of)), secs(10));
        let a = a.lease.unwrap();
        assert_eq!(a.capacity, Capacity::from_whole(200));
        // Others are waited for at first, but nobody loses its lease meanwhile: for a quarter of the
        // learning time, and two refresh intervals.
        let duration = Duration::from_millis(if prolonged { 3500 } else { 1000 });
        assert_eq!(a.duration, duration, "{lent_of}");
        if prolonged {
            let a = world.ask(secs(12), "a", lease(200, a.fingerprint), secs(13));
            assert_eq!(a.lease.unwrap().duration, Duration::from_secs(10));
        }
    }
}

/// Where each client has the capacity for itself, no claim takes anything from others.
#[test]
fn claims_under_a_limit_for_each_client_alone_are_prolonged() {
    let mut limit = Limit::new(Capacity::from_whole(300));
    limit.algorithm = Algorithm::Static;
    let mut world = World::restarted(secs(8), &limit);
    let a = world.ask(secs(9), "a", lease(200, NO_FINGERPRINT), secs(10));
    assert_eq!(a.lease.unwrap().duration, Duration::from_millis(3500));
}

#[test]
fn a_drained_client_gives_back_what_it_has_until_the_deadline() {
    let limit = Limit::new(Capacity::from_whole(100));
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    let client = ClientRun::only(ClientId::new("envoy-1/x").unwrap());
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let mut has = Capacity::ZERO;
    let mut gets = |node: &mut LeaseServer, now| {
        let request = LeaseRequest::new(now, has, Capacity::from_whole(60));
        let terms = Terms::of(&limit);
        let answer = node.handle_refresh(secs(now), &client, &resource, &request, &terms);
        has = answer.unwrap().lease.unwrap().capacity;
        has.as_micros() / 1_000_000
    };
    assert_eq!(gets(&mut node, 1), 80, "with headroom");
    node.handle_drain(secs(1), &client.id, secs(20)).unwrap();
    assert_eq!(gets(&mut node, 2), 0);
    assert_eq!(gets(&mut node, 3), 0);
    let record = node.resource(&resource).unwrap();
    assert_eq!(
        (record.sum_has(), record.sum_wants()),
        (0, 0),
        "acknowledged"
    );
    assert_eq!(node.drained(secs(3)).count(), 1);
    assert_eq!(node.drained_until(secs(3), &client.id), Some(secs(20)));
    assert_eq!(gets(&mut node, 20), 80, "the deadline has passed");
    assert_eq!(node.drained(secs(20)).count(), 0);
    node.handle_drain(secs(20), &client.id, secs(30)).unwrap();
    node.handle_drain(secs(21), &client.id, secs(21)).unwrap();
    assert_eq!(gets(&mut node, 22), 80, "taken back");
}

#[test]
fn a_drain_is_of_all_runs_of_a_client() {
    let limit = Limit::new(Capacity::from_whole(100));
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    let id = ClientId::new("envoy-1/x").unwrap();
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    node.handle_drain(secs(1), &id, secs(20)).unwrap();
    for run in [1, 2].map(|number| Run::Incarnation(NonZeroU64::new(number).unwrap())) {
        let client = ClientRun {
            id: id.clone(),
            run,
        };
        let request = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(60));
        let answer = node.handle_refresh(secs(2), &client, &resource, &request, &Terms::of(&limit));
        assert_eq!(answer.unwrap().lease.unwrap().capacity, Capacity::ZERO);
    }
}

#[test]
fn a_drained_client_gets_nothing_while_learning_either() {
    let limit = Limit::new(Capacity::from_whole(100));
    let mut world = World::restarted(secs(0), &limit);
    let client = ClientRun::only(ClientId::new("a").unwrap());
    world
        .node
        .handle_drain(secs(1), &client.id, secs(9))
        .unwrap();
    let answer = world.ask(secs(2), "a", lease(50, 0), secs(5));
    assert_eq!(answer.lease.unwrap().capacity, Capacity::ZERO);
}

#[test]
fn drained_clients_are_bounded() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    let client = |i: usize| ClientId::new(&std::format!("envoy/{i}")).unwrap();
    for i in 0..DRAINS_MAX {
        node.handle_drain(secs(1), &client(i), secs(5)).unwrap();
    }
    let max = DRAINS_MAX;
    let refused = node.handle_drain(secs(1), &client(max), secs(9));
    assert_eq!(refused, Err(DrainError::TooMany { max }));
    node.handle_drain(secs(2), &client(0), secs(9)).unwrap();
    node.handle_drain(secs(6), &client(max), secs(9)).unwrap();
    assert_eq!(
        node.drained(secs(6)).count(),
        2,
        "those whose time has passed are forgotten"
    );
}

#[test]
fn what_has_no_limit_needs_no_books() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    refresh(&mut node, secs(1), "tenant/a").unwrap();
    let client = ClientRun::only(ClientId::new("envoy-1/x").unwrap());
    let resource = ResourceId::new("tenant/a", Unit::Requests).unwrap();
    let limit = Limit::new(Capacity::UNLIMITED);
    let answer = node.handle_unlimited(&client, &resource, &limit);
    assert!(answer.lease.unwrap().capacity.is_unlimited());
    assert_eq!(
        node.resource_count(),
        0,
        "what it had under a limit is forgotten"
    );
    assert_eq!(node.poll_timeout(), None);
}

#[test]
fn resources_are_listed_from_any_id() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    refresh(&mut node, secs(1), "tenant/a").unwrap();
    refresh(&mut node, secs(1), "tenant/c").unwrap();
    let after = |node: &LeaseServer, scope, unit| {
        let id = ResourceId::new(scope, unit).unwrap();
        let scopes = node
            .resources_after(&id)
            .map(|(id, _)| id.scope.to_string());
        scopes.collect::<Vec<_>>()
    };
    assert_eq!(
        after(&node, "tenant/", Unit::Requests),
        ["tenant/a", "tenant/c"]
    );
    assert_eq!(after(&node, "tenant/a", Unit::Requests), ["tenant/c"]);
    assert_eq!(after(&node, "tenant/c", Unit::Concurrency), [""; 0]);
}

/// A resource that moves here from another shard is learned by itself, while the coordinator lends.
#[test]
fn a_claim_of_a_resource_that_has_moved_here_counts_until_it_ends() {
    let mut node = LeaseServer::new(secs(0), Epoch(1), BOUNDS, Start::Fresh);
    let resource = ResourceId::new("tenant/moved", Unit::Requests).unwrap();
    let limit = Limit::new(Capacity::from_whole(100));
    let mut ask = |at: u64, client: &str, has: u64, remaining: u64| {
        let client = ClientRun::only(ClientId::new(client).unwrap());
        let request = LeaseRequest {
            remaining: Some(Duration::from_secs(remaining)),
            ..LeaseRequest::new(at, Capacity::from_whole(has), Capacity::from_whole(100))
        };
        node.handle_timeout(secs(at));
        let answer =
            node.handle_refresh(secs(at), &client, &resource, &request, &Terms::of(&limit));
        let lease = answer.unwrap().lease;
        lease.map_or(Capacity::ZERO, |lease| lease.capacity)
    };
    assert_eq!(ask(100, "holder", 60, 10), Capacity::from_whole(60));
    // The holder is cut off, and uses what it has until 110. Claims of a coordinator that starts
    // would not count any more from 104.5 on.
    for at in [105, 106, 109] {
        assert!(
            ask(at, "newcomer", 0, 0) <= Capacity::from_whole(40),
            "at {at}"
        );
    }
}
