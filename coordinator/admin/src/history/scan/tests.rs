use tollgate_core::lease::{ClientRun, Epoch, LeaseRequest, Run, Unit};
use tollgate_core::lease_server::{Bounds, Start, Terms};
use tollgate_core::limit::{Limit, Part};

use super::*;

const BOUNDS: Bounds = Bounds {
    max_resources: 10_000,
    max_clients_per_resource: 10_000,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

fn id(scope: &str) -> ResourceId {
    ResourceId::new(scope, Unit::Requests).unwrap()
}

fn client(name: &str) -> ClientId {
    ClientId::new(name).unwrap()
}

/// Lets a client want so much of a scope with a capacity of 1000.
fn want(node: &mut LeaseServer, scope: &str, (name, run): (&str, u64), wants: u64) {
    let mut limit = Limit::new(Capacity::from_whole(1000));
    limit.headroom = Part::NONE;
    let client = ClientRun {
        id: client(name),
        run: Run::Incarnation(run.try_into().unwrap()),
    };
    let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(wants));
    let answer = node.handle_refresh(Instant::ZERO, &client, &id(scope), &ask, &Terms::of(&limit));
    answer.unwrap();
}

fn node() -> LeaseServer {
    LeaseServer::new(Instant::ZERO, Epoch(1), BOUNDS, Start::Fresh)
}

fn sample(node: &LeaseServer, tracked: Tracked) -> NodeSample {
    let mut scan = HistoryScan::new(Arc::new(tracked));
    scan.enter(ShardId(3));
    for (id, resource) in node.resources() {
        scan.add(node, id, resource, Instant::ZERO);
    }
    scan.end()
}

#[test]
fn the_busiest_and_those_that_are_recorded_are_sampled() {
    let scope = |i: usize| format!("tenant/{i:03}");
    let mut node = node();
    // Each is busier than those before, so that each takes a place.
    let count = RESOURCES_MAX + 50;
    for i in 0..count {
        want(&mut node, &scope(i), ("envoy-1", 1), i as u64);
    }
    let recorded = [0, 1, 5, count - 1].map(|i| (id(&scope(i)), Vec::new()));
    let tracked = Tracked::from(recorded);
    let found = sample(&node, tracked);
    assert_eq!(found.shards.into_iter().collect::<Vec<_>>(), [ShardId(3)]);
    let sums = found.units[&Unit::Requests];
    let wanted: usize = (0..count).sum();
    assert_eq!((sums.resources, sums.wants), (count, wanted as f64));
    let ids = found.resources.keys().map(|id| id.scope.to_string());
    let first = count - RESOURCES_MAX;
    let want: Vec<_> = [0, 1, 5]
        .into_iter()
        .chain(first..count)
        .map(scope)
        .collect();
    assert_eq!(ids.collect::<Vec<_>>(), want);
    for (at, (id, one)) in found.resources.iter().enumerate() {
        assert_eq!(one.is_busy, at >= 3, "{id:?}");
        assert_eq!((one.at_most, one.shard), (1000.0, ShardId(3)));
    }
    let last = &found.resources[&id(&scope(count - 1))];
    assert_eq!((last.has, last.wants, last.waiting), (249.0, 249.0, 0.0));
}

/// Idle resources would take the places of those that were busy a while ago.
#[test]
fn a_resource_that_nobody_wants_is_not_busy() {
    let mut node = node();
    want(&mut node, "tenant/idle", ("envoy-1", 1), 0);
    assert!(sample(&node, Tracked::new()).resources.is_empty());
}

#[test]
fn the_largest_clients_are_sampled_and_those_that_are_recorded() {
    let mut node = node();
    let name = |i: usize| format!("envoy-{i:02}");
    for i in 0..CLIENTS_MAX + 4 {
        want(&mut node, "a", (&name(i), 1), 10 + i as u64);
    }
    // One that has started again has the leases of both runs.
    want(&mut node, "a", (&name(2), 2), 30);
    let recorded = ["gone", "envoy-01"].map(client).to_vec();
    let found = sample(&node, Tracked::from([(id("a"), recorded)]));
    let clients = found.resources[&id("a")].clients.iter();
    let clients: Vec<_> = clients
        .map(|(id, has)| (id.as_str().to_owned(), *has))
        .collect();
    let largest = (5..CLIENTS_MAX + 4)
        .rev()
        .map(|i| (name(i), 10.0 + i as f32));
    let mut want = vec![(name(2), 42.0)];
    want.extend(largest);
    want.push((name(1), 11.0));
    assert_eq!(clients, want);
}

#[test]
fn what_is_unlimited_is_infinite() {
    let mut node = node();
    let limit = Limit::new(Capacity::UNLIMITED);
    let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(7));
    let envoy = ClientRun::only(client("envoy-1"));
    let answer = node.handle_refresh(Instant::ZERO, &envoy, &id("a"), &ask, &Terms::of(&limit));
    answer.unwrap();
    let found = sample(&node, Tracked::new());
    let a = &found.resources[&id("a")];
    assert_eq!(
        (a.at_most, a.has, a.wants),
        (f32::INFINITY, f32::INFINITY, 7.0)
    );
}
