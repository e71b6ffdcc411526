use alloc::format;
use alloc::string::ToString as _;
use alloc::vec;

use super::*;
use crate::lease::{ClientRun, Demand, DrawRequest, LeaseRequest, Unit};
use crate::lease_server::{PoolTerms, Terms};
use crate::limit::Part;
use crate::resource::{ClientDraws, LeaseSnapshot, PresenceSnapshot};
use crate::units::{Capacity, Tokens};

const BOUNDS: Bounds = Bounds {
    max_resources: 3,
    max_clients_per_resource: 2,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn id(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

fn client(name: &str) -> ClientRun {
    ClientRun::only(ClientId::new(name).unwrap())
}

fn limit(capacity: u64) -> Limit {
    Limit {
        headroom: Part::NONE,
        ..Limit::new(Capacity::from_whole(capacity))
    }
}

fn ask(sequence: u64, has: u64, wants: u64) -> LeaseRequest {
    let whole = Capacity::from_whole;
    LeaseRequest::new(sequence, whole(has), whole(wants))
}

fn gets(answer: crate::lease::Answer) -> Option<Capacity> {
    answer.lease.map(|lease| lease.capacity)
}

/// A pool of 100 that two tenants have used up.
fn pooled<'a>(limits: &'a [Limit; 2], pool: &'a ResourceId) -> Terms<'a> {
    let [limit, shared] = limits;
    Terms {
        limit,
        pool: Some(PoolTerms {
            pool,
            limit: shared,
            weight: NonZeroU32::MIN,
        }),
    }
}

fn snapshot() -> Snapshot {
    let snapshot = |name| ClientSnapshot {
        client: client(name),
        sequence: 7,
        demand: Demand::of(Capacity::from_whole(80)),
        granted: LeaseSnapshot {
            capacity: Capacity::from_whole(50),
            remaining: Duration::from_secs(9),
        },
        granted_ago: Duration::from_secs(1),
        max_rate: None,
        fingerprint: 0,
        prior: None,
        presence: PresenceSnapshot::default(),
        throttled_for: None,
        draws: ClientDraws::default(),
    };
    let resource = |scope, names: &[&'static str]| ResourceSnapshot {
        id: id(scope),
        limit: limit(100),
        pool: None,
        learning: Duration::ZERO,
        crowded: Duration::ZERO,
        balance: Duration::ZERO,
        bucket: None,
        quotas: Vec::new(),
        clients: names.iter().map(|name| snapshot(name)).collect(),
    };
    Snapshot {
        epoch: Epoch(4),
        learning_for: None,
        pools: vec![],
        resources: vec![
            resource("tenant/a", &["x", "y"]),
            resource("tenant/b", &["x"]),
        ],
        drains: vec![],
    }
}

#[test]
fn what_a_pools_silent_members_have_counts_at_once() {
    let (limits, gold) = ([limit(500), limit(100)], id("group/gold"));
    let terms = pooled(&limits, &gold);
    let mut node = LeaseServer::new(at(0), Epoch(1), BOUNDS, Start::Fresh);
    for (scope, wants) in [("tenant/a", 70), ("tenant/b", 30)] {
        let answer =
            node.handle_refresh(at(0), &client("x"), &id(scope), &ask(1, 0, wants), &terms);
        assert_eq!(gets(answer.unwrap()), Some(Capacity::from_whole(wants)));
    }
    let snapshot = node.hand_over(at(1000));
    assert_eq!(snapshot.pools.len(), 1);
    assert_eq!(snapshot.lease_count(), 2);

    let mut node = LeaseServer::take_over(at(50), Epoch(2), BOUNDS, &snapshot).unwrap();
    // Another Envoy of the first tenant comes before either of the two that have leases.
    let answer = node.handle_refresh(
        at(60),
        &client("y"),
        &id("tenant/a"),
        &ask(1, 0, 70),
        &terms,
    );
    assert_eq!(gets(answer.unwrap()), Some(Capacity::ZERO));
    // One that holds more than its share is named when its minimum interval is over.
    assert_eq!(node.poll_timeout(), Some(at(100)));
    node.handle_timeout(at(100));
    // The leases count from when the snapshot was read: of four seconds, because the table fills.
    assert_eq!(node.poll_timeout(), Some(at(50 + 3000)));
    let pool = node.pool(&gold).unwrap();
    assert_eq!(pool.sum_has(), 100_000_000);
    assert_eq!(pool.member_count(), 2);
}

#[test]
fn a_master_that_was_still_learning_leaves_the_rest_of_it() {
    let terms_limit = limit(100);
    let terms = Terms::of(&terms_limit);
    let mut node = LeaseServer::new(at(0), Epoch(1), BOUNDS, Start::Learning);
    let claim = ask(1, 40, 40);
    let answer = node.handle_refresh(at(1000), &client("x"), &id("tenant/a"), &claim, &terms);
    assert_eq!(gets(answer.unwrap()), Some(Capacity::from_whole(40)));

    let snapshot = node.hand_over(at(4000));
    let mut node = LeaseServer::take_over(at(90_000), Epoch(2), BOUNDS, &snapshot).unwrap();
    let a = node.resource(&id("tenant/a")).unwrap();
    // The claim came a second after the start, and is of a lease that may be as young.
    assert_eq!(a.learning_until(), at(97_000));
    // Also for a resource that nobody has asked for yet.
    let answer = node.handle_refresh(
        at(95_999),
        &client("x"),
        &id("tenant/b"),
        &ask(2, 0, 9),
        &terms,
    );
    assert_eq!(gets(answer.unwrap()), None);
    let answer = node.handle_refresh(
        at(96_000),
        &client("x"),
        &id("tenant/c"),
        &ask(3, 0, 9),
        &terms,
    );
    assert_eq!(gets(answer.unwrap()), Some(Capacity::from_whole(9)));
}

#[test]
fn drains_go_on() {
    let mut node = LeaseServer::new(at(0), Epoch(1), BOUNDS, Start::Fresh);
    node.handle_drain(at(0), &client("x").id, at(5000)).unwrap();
    let snapshot = node.hand_over(at(2000));
    let node = LeaseServer::take_over(at(0), Epoch(2), BOUNDS, &snapshot).unwrap();
    assert_eq!(node.drained_until(at(0), &client("x").id), Some(at(3000)));
}

#[test]
fn more_than_there_is_shrinks_as_after_a_lowered_capacity() {
    let small = limit(60);
    let mut node = LeaseServer::take_over(at(5000), Epoch(5), BOUNDS, &snapshot()).unwrap();
    let terms = Terms::of(&small);
    let answer = node.handle_refresh(
        at(5010),
        &client("x"),
        &id("tenant/a"),
        &ask(8, 50, 80),
        &terms,
    );
    // Its share, but no longer than it had it; the other one has told of nothing yet.
    let lease = answer.unwrap().lease.unwrap();
    assert_eq!(lease.capacity, Capacity::from_whole(30));
    assert_eq!(lease.duration, Duration::from_millis(8990));
    node.handle_timeout(at(14_000));
    assert_eq!(node.resource_count(), 0);
}

#[test]
fn books_that_cannot_be_trusted_are_refused() {
    type Change = fn(&mut Snapshot);
    let rows: [(Change, &str); 7] = [
        (
            |b| b.epoch = Epoch(5),
            "epoch: the snapshot is of term 5, not before this one, 5",
        ),
        (
            |b| {
                b.resources
                    .extend([b.resources[0].clone(), b.resources[0].clone()])
            },
            "resources: 4 are more than this coordinator keeps, 3",
        ),
        (
            |b| b.resources.push(b.resources[1].clone()),
            "resources: tenant/b is there twice",
        ),
        (
            |b| {
                let snapshot = b.resources[1].clients[0].clone();
                b.resources[0].clients.push(snapshot);
            },
            "clients of tenant/a: 3 are more than this coordinator keeps, 2",
        ),
        (
            |b| b.resources[0].clients[1].client = client("x"),
            "clients of tenant/a: x is there twice",
        ),
        (
            |b| b.resources[0].pool = Some((id("group/gold"), NonZeroU32::MIN)),
            "pool of tenant/a: group/gold is not in the snapshot",
        ),
        (
            |b| {
                let names = (0..=DRAINS_MAX).map(|i| client(&format!("x{i}")).id);
                b.drains = names.map(|name| (name, Duration::from_secs(1))).collect();
            },
            "drains: 1001 are more than this coordinator keeps, 1000",
        ),
    ];
    assert!(LeaseServer::take_over(at(0), Epoch(5), BOUNDS, &snapshot()).is_ok());
    for (change, want) in rows {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        let refused = LeaseServer::take_over(at(0), Epoch(5), BOUNDS, &snapshot);
        assert_eq!(refused.unwrap_err().to_string(), want);
    }
}

#[test]
fn books_may_be_full_to_their_bounds() {
    let mut full = snapshot();
    full.resources.push(ResourceSnapshot {
        id: id("tenant/c"),
        ..full.resources[0].clone()
    });
    let names = (0..DRAINS_MAX).map(|i| client(&format!("x{i}")).id);
    full.drains = names.map(|name| (name, Duration::from_secs(1))).collect();
    let node = LeaseServer::take_over(at(0), Epoch(5), BOUNDS, &full).unwrap();
    assert_eq!(node.resource_count(), 3);
    assert_eq!(node.drained(at(0)).count(), DRAINS_MAX);
}

#[test]
fn a_bucket_without_clients_is_remembered_until_it_is_full() {
    let ten_a_day = Limit {
        burst: Tokens::from_whole(10),
        ..Limit::new(Capacity::from_micros(10 * 1_000_000 / 86_400))
    };
    let terms = Terms::of(&ten_a_day);
    let draws = |sequence, account| LeaseRequest {
        draw: Some(DrawRequest {
            account,
            needs: Tokens::from_whole(10),
            first: Tokens::ONE,
            ..DrawRequest::default()
        }),
        ..ask(sequence, 0, 1)
    };
    let granted = |answer: crate::lease::Answer| answer.draw.unwrap().granted;
    let mut node = LeaseServer::new(at(0), Epoch(1), BOUNDS, Start::Fresh);
    let (x, a) = (client("x"), id("tenant/a"));
    let answer = node.handle_refresh(at(0), &x, &a, &draws(1, 1), &terms);
    assert_eq!(granted(answer.unwrap()), Tokens::from_whole(10));
    node.handle_release(&x, &a, 2);
    let snapshot = node.hand_over(at(1000));
    let mut node = LeaseServer::take_over(at(5000), Epoch(2), BOUNDS, &snapshot).unwrap();
    node.handle_timeout(at(6000));
    let answer = node.handle_refresh(at(7000), &x, &a, &draws(3, 2), &terms);
    assert_eq!(granted(answer.unwrap()), Tokens::ZERO);
}
