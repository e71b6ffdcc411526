use std::num::NonZeroU32;

use tollgate_core::lease::{ClientId, ClientRun, Epoch, LeaseRequest};
use tollgate_core::lease_server::{Bounds, PoolTerms, Start, Terms};
use tollgate_core::limit::Limit;
use tollgate_core::units::Capacity;
use tollgate_leases::visit::{start, step as scan_step};

use super::*;

const BOUNDS: Bounds = Bounds {
    max_resources: 10_000,
    max_clients_per_resource: 10_000,
    max_leases: 1_000_000,
    max_durable: 100_000,
};

/// A lease table in which each of `clients` clients of each scope wants its row's part of a
/// capacity.
fn lease_table(rows: &[(&str, Capacity, u64)], clients: usize) -> LeaseServer {
    let mut node = LeaseServer::new(Instant::ZERO, Epoch(1), BOUNDS, Start::Fresh);
    for (scope, capacity, wants) in rows {
        for client in 0..clients {
            want(
                &mut node,
                client,
                (scope, *wants),
                &Terms::of(&Limit::new(*capacity)),
            );
        }
    }
    node
}

/// Lets `client` want so much of a scope with these terms.
fn want(node: &mut LeaseServer, client: usize, (scope, wants): (&str, u64), terms: &Terms<'_>) {
    let id = ResourceId::new(scope, Unit::Requests).unwrap();
    let client = ClientRun::only(ClientId::new(&format!("envoy-{client}")).unwrap());
    let ask = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_whole(wants));
    let answer = node.handle_refresh(Instant::ZERO, &client, &id, &ask, terms);
    answer.unwrap();
}

/// The result of a scan in steps of `step`, and the number of steps.
fn visit_in_steps(
    node: &LeaseServer,
    named: &[&str],
    busiest: usize,
    step: usize,
) -> (LeaseStats, usize) {
    let named = NamedScopes::new(named.iter().map(|scope| Arc::from(*scope)));
    let mut scan = StatsScan::new(named, ResourceSelection::busiest(), busiest);
    let (mut steps, mut after) = (0, Some(start()));
    while let Some(from) = after {
        after = scan_step(&mut scan, node, Instant::ZERO, &from, step);
        steps += 1;
    }
    (scan.end(), steps)
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn whole(units: u64) -> Capacity {
    Capacity::from_whole(units)
}

#[test]
fn the_sums_are_the_same_in_whatever_steps() {
    let scopes: Vec<String> = (0..50).map(|i| format!("tenant/{i}")).collect();
    let rows: Vec<_> = scopes
        .iter()
        .map(|id| (id.as_str(), whole(100), 40))
        .collect();
    let node = lease_table(&rows, 3);
    let (stats, steps) = visit_in_steps(&node, &[], 5, usize::MAX);
    assert_eq!(steps, 1);
    let sums = stats.units[&Unit::Requests];
    assert_eq!((sums.resources, sums.clients), (50, 150));
    // Three processes, each with leases of all.
    assert_eq!(stats.clients, 3);
    assert_eq!((sums.capacity, sums.wants), (5000.0, 6000.0));
    assert_eq!((sums.learning, sums.unlimited), (0, 0));
    assert_eq!(stats.other[&Unit::Requests], sums);
    let (slow, steps) = visit_in_steps(&node, &[], 5, 1);
    assert_eq!(steps, 51);
    assert_eq!(slow.units, stats.units);
    assert_eq!(slow.first, stats.first);
}

#[test]
fn only_named_scopes_stand_alone_and_only_so_many() {
    let rows = [
        ("a", whole(10), 5),
        ("b", whole(10), 20),
        ("c", whole(10), 5),
    ];
    let (stats, _) = visit_in_steps(&lease_table(&rows, 1), &["b", "absent"], 5, 2);
    let named: Vec<&str> = stats.named.keys().map(|id| &*id.scope).collect();
    assert_eq!(named, ["b"]);
    let b = stats.named.values().next().unwrap();
    assert_eq!((b.wants, b.has, b.waiting), (20.0, 10.0, 1));
    assert_eq!(stats.other[&Unit::Requests].resources, 2);
    assert_eq!(stats.other[&Unit::Requests].waiting, 0);
    let many = (0..2 * NAMED_MAX).map(|i| Arc::from(format!("tenant/{i}")));
    assert_eq!(NamedScopes::new(many).0.len(), NAMED_MAX);
}

#[test]
fn the_busiest_come_first_and_are_as_many_as_asked_for() {
    let rows = [
        ("blocked", Capacity::ZERO, 1),
        ("idle", whole(10), 0),
        ("large", whole(1000), 500),
        ("over", whole(10), 30),
        ("small", whole(10), 5),
        ("unlimited", Capacity::UNLIMITED, 900),
    ];
    let node = lease_table(&rows, 1);
    let order = |max| {
        let (stats, _) = visit_in_steps(&node, &[], max, 1);
        let ids = stats.first.iter().map(|(id, _)| id.scope.to_string());
        ids.collect::<Vec<_>>()
    };
    let all = ["blocked", "over", "large", "small", "unlimited", "idle"];
    assert_eq!(order(6), all);
    assert_eq!(order(3), all[..3]);
    assert_eq!(order(0), all[..0]);
}

#[test]
fn a_selection_is_counted_whole_and_returned_as_far_as_asked_for() {
    let rows = [
        ("tenant/Acme", whole(10), 5),
        ("tenant/bee", whole(10), 30),
        ("route/acme", whole(1000), 500),
        ("tenant/acme-2", Capacity::UNLIMITED, 900),
    ];
    let node = lease_table(&rows, 1);
    let select = |selection: ResourceSelection, max| {
        let mut scan = StatsScan::new(NamedScopes::default(), selection, max);
        assert_eq!(
            scan_step(&mut scan, &node, Instant::ZERO, &start(), usize::MAX),
            None
        );
        let stats = scan.end();
        let ids = stats.first.iter().map(|(id, _)| id.scope.to_string());
        (stats.matching, ids.collect::<Vec<_>>())
    };
    let all = ResourceSelection::busiest;
    let acme = || all().searching("ACME");
    let only = |unit| ResourceSelection {
        unit: Some(unit),
        ..all()
    };
    let throttled = ResourceSelection {
        throttled_only: true,
        ..all()
    };
    let (scope, leased) = (ResourceSort::Scope, ResourceSort::Leased);
    let desc = Some(SortOrder::Desc);
    let rows: [(ResourceSelection, usize, usize, &[&str]); 7] = [
        (acme(), 2, 3, &["route/acme", "tenant/Acme"]),
        (
            acme().sorted_by(scope, None),
            9,
            3,
            &["route/acme", "tenant/Acme", "tenant/acme-2"],
        ),
        (acme().sorted_by(scope, desc), 1, 3, &["tenant/acme-2"]),
        (
            acme().sorted_by(leased, Some(SortOrder::Asc)),
            2,
            3,
            &["tenant/Acme", "route/acme"],
        ),
        (throttled, 9, 1, &["tenant/bee"]),
        (only(Unit::Concurrency), 9, 0, &[]),
        (only(Unit::Requests), 0, 4, &[]),
    ];
    for (selection, max, matching, want) in rows {
        let text = format!("{selection:?}");
        let (found, ids) = select(selection, max);
        assert_eq!((found, &ids[..]), (matching, &owned(want)[..]), "{text}");
    }
}

#[test]
fn what_is_unlimited_is_in_no_sum_of_capacities() {
    let rows = [("a", Capacity::UNLIMITED, 7), ("b", whole(10), 3)];
    let (stats, _) = visit_in_steps(&lease_table(&rows, 1), &[], 1, 10);
    let sums = stats.units[&Unit::Requests];
    assert_eq!((sums.capacity, sums.wants, sums.unlimited), (10.0, 10.0, 1));
    assert!(sums.has <= 10.0, "{}", sums.has);
}

#[test]
fn the_capacity_of_a_group_counts_once() {
    // Own capacities of the members of a group of 100, which want 200 each, and what all may have.
    let rows = [
        (vec![Capacity::UNLIMITED, Capacity::UNLIMITED], 100.0),
        (vec![whole(10), Capacity::UNLIMITED], 100.0),
        (vec![whole(10), whole(20)], 30.0),
        (vec![whole(80), whole(90)], 100.0),
    ];
    for (members, capacity) in rows {
        let mut node = lease_table(&[("tenant/alone", whole(1000), 300)], 1);
        let gold = ResourceId::new("group/gold", Unit::Requests).unwrap();
        let group = Limit::new(whole(100));
        for (at, own) in members.iter().enumerate() {
            let terms = Terms {
                limit: &Limit::new(*own),
                pool: Some(PoolTerms {
                    pool: &gold,
                    limit: &group,
                    weight: NonZeroU32::MIN,
                }),
            };
            want(&mut node, 0, (&format!("tenant/{at}"), 200), &terms);
        }
        let (stats, _) = visit_in_steps(&node, &[], 1, 1);
        let sums = stats.units[&Unit::Requests];
        assert_eq!(sums.capacity, 1000.0 + capacity, "{members:?}");
        let alone = node.resource(&ResourceId::new("tenant/alone", Unit::Requests).unwrap());
        let lent = node.pool(&gold).unwrap().sum_has() + alone.unwrap().sum_has();
        assert_eq!(sums.has, units(lent), "{members:?}");
    }
}

#[test]
fn the_first_resources_have_their_own_figures() {
    let rows = [
        ("a", whole(10), 5),
        ("b", whole(10), 20),
        ("c", whole(10), 30),
    ];
    let (stats, _) = visit_in_steps(&lease_table(&rows, 1), &[], 2, 1);
    let wants = stats
        .first
        .iter()
        .map(|(id, figures)| (&*id.scope, figures.wants));
    assert_eq!(wants.collect::<Vec<_>>(), [("c", 30.0), ("b", 20.0)]);
}
