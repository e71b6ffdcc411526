//! Doorman's test vectors (`go/server/doorman/algorithm_test.go`, `doc/algorithms.md`), as facts
//! about its server at e2b69e1: the same rows here, and where we differ on purpose what we say
//! instead, and why.

use core::num::NonZeroU32;
use std::vec::Vec;

use super::*;
use crate::lease::{Band, Demand};
use crate::limit::{Algorithm, Part};

/// Client of a row: wants, subclients, capacity in Doorman in thousandths.
type Client = (u64, u32, u64);

/// Wants and subclients of one request.
type Request = (u64, u32);

struct Row {
    /// Doorman's test or document.
    of: &'static str,
    algorithm: Algorithm,
    capacity: u64,
    clients: &'static [Client],
    /// Our answer instead, and the reason.
    differs: Option<(&'static [u64], &'static str)>,
}

const fn row(
    of: &'static str,
    algorithm: Algorithm,
    capacity: u64,
    clients: &'static [Client],
) -> Row {
    Row {
        of,
        algorithm,
        capacity,
        clients,
        differs: None,
    }
}

/// A resource of whose capacity nothing is lent as headroom.
fn fleet(algorithm: Algorithm, capacity: u64) -> Fleet {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.capacity = Capacity::from_whole(capacity);
    fleet.limit.headroom = Part::NONE;
    fleet.limit.algorithm = algorithm;
    fleet
}

fn refresh(fleet: &mut Fleet, i: usize, has: Capacity, (wants, subclients): Request) -> Capacity {
    fleet.now = fleet.now.saturating_add(fleet.limit.min_refresh);
    fleet.sequence += 1;
    let band = Band {
        priority: crate::lease::Priority::LOWEST,
        wants: Capacity::from_whole(wants),
        subclients: NonZeroU32::new(subclients).unwrap(),
    };
    let request = LeaseRequest {
        demand: Demand::one(band),
        ..LeaseRequest::new(fleet.sequence, has, Capacity::ZERO)
    };
    let client = ClientRun::only(ClientId::new(&std::format!("c{i}")).unwrap());
    let limit = fleet.limit.clone();
    let answer = super::refresh(
        &mut fleet.resource,
        fleet.now,
        &client,
        &request,
        (&limit, 100),
    );
    answer.unwrap().lease.unwrap().capacity
}

/// Capacities in thousandths after `rounds` of refreshes in the clients' order.
fn gets(algorithm: Algorithm, capacity: u64, clients: &[Request], rounds: usize) -> Vec<u64> {
    let mut fleet = fleet(algorithm, capacity);
    let mut has: Vec<_> = clients.iter().map(|_| Capacity::ZERO).collect();
    for _ in 0..rounds {
        for (i, request) in clients.iter().enumerate() {
            has[i] = refresh(&mut fleet, i, has[i], *request);
        }
    }
    has.iter().map(|has| has.as_micros() / 1000).collect()
}

fn check(row: &Row, rounds: usize) {
    let clients: Vec<_> = row.clients.iter().map(|&(w, s, _)| (w, s)).collect();
    let doormans: Vec<_> = row.clients.iter().map(|&(.., gets)| gets).collect();
    let gets = gets(row.algorithm, row.capacity, &clients, rounds);
    match row.differs {
        None => assert_eq!(gets, doormans, "{}", row.of),
        Some((ours, why)) => {
            assert_eq!(gets, ours, "{}: {why}", row.of);
            assert_ne!(ours, doormans, "{}: no longer differs", row.of);
        }
    }
}

/// Rows in which Doorman's store knows what everybody wants before the first is answered: ours
/// knows it after a round, and has settled after three more.
#[test]
fn what_all_want_is_known() {
    for row in &FAIR {
        check(row, 4);
    }
    for row in &PROPORTIONAL {
        check(row, 4);
    }
}

const PROPORTIONAL: [Row; 3] = [
    row(
        "TestProportionalShare",
        Algorithm::ProportionalShare,
        120,
        &[(60, 1, 55_000), (60, 1, 55_000), (10, 1, 10_000)],
    ),
    row(
        "TestProportionalShareMultipleSubclients",
        Algorithm::ProportionalShare,
        120,
        &[(65, 3, 60_000), (45, 2, 40_000), (20, 1, 20_000)],
    ),
    row(
        "doc/algorithms.md, proportional",
        Algorithm::ProportionalShare,
        120,
        &[(1000, 1, 69_690), (50, 1, 40_309), (10, 1, 10_000)],
    ),
];

const FAIR: [Row; 7] = [
    row(
        "TestFairShare",
        Algorithm::FairShare,
        120,
        &[(1000, 1, 55_000), (60, 1, 55_000), (10, 1, 10_000)],
    ),
    row(
        "TestFairShareLowerExtra",
        Algorithm::FairShare,
        120,
        &[(1000, 1, 60_000), (50, 1, 50_000), (10, 1, 10_000)],
    ),
    row(
        "TestFairShareMultipleSubclients",
        Algorithm::FairShare,
        120,
        &[(1000, 6, 60_000), (500, 4, 40_000), (200, 2, 20_000)],
    ),
    row(
        "TestFairShareMultipleSubclients, the second",
        Algorithm::FairShare,
        1000,
        &[(2000, 10, 200_000), (500, 10, 200_000), (700, 30, 600_000)],
    ),
    row(
        "doc/algorithms.md, fair",
        Algorithm::FairShare,
        120,
        &[(1000, 1, 60_000), (50, 1, 50_000), (10, 1, 10_000)],
    ),
    Row {
        differs: Some((
            &[
                0, 101_000, 101_000, 101_000, 101_000, 101_000, 115_000, 126_666, 126_666, 126_666,
            ],
            "nobody gets more than it wants, and water is filled to the level, not for two rounds",
        )),
        ..row(
            "two rounds only",
            Algorithm::FairShare,
            1000,
            &[
                (0, 1, 0),
                (101, 1, 101_000),
                (101, 1, 101_000),
                (101, 1, 101_000),
                (101, 1, 101_000),
                (101, 1, 101_000),
                (115, 1, 123_750),
                (1000, 1, 123_750),
                (1000, 1, 123_750),
                (1000, 1, 123_750),
            ],
        )
    },
    Row {
        differs: Some((
            &[109_090, 0, 10_909],
            "by weight among those who want something, whoever asked first",
        )),
        ..row(
            "thresholds that forget subclients",
            Algorithm::FairShare,
            120,
            &[(1000, 10, 120_000), (0, 1, 0), (50, 1, 0)],
        )
    },
];

/// Rows in which the clients ask one after the other, each once.
#[test]
fn who_asks_is_answered_at_once() {
    use Algorithm::{None, ProportionalShare, Static};
    let rows = [
        row(
            "TestNoAlgorithm",
            None,
            0,
            &[(10, 1, 10_000), (100, 1, 100_000)],
        ),
        row(
            "doc/algorithms.md, none",
            None,
            0,
            &[(100, 1, 100_000), (10, 1, 10_000), (1000, 1, 1_000_000)],
        ),
        row(
            "TestStatic",
            Static,
            100,
            &[(100, 1, 100_000), (10, 1, 10_000), (120, 1, 100_000)],
        ),
        row(
            "doc/algorithms.md, static",
            Static,
            120,
            &[(50, 1, 50_000), (200, 1, 120_000), (300, 1, 120_000)],
        ),
        row(
            "TestProportionalShare, without preload",
            ProportionalShare,
            120,
            &[(60, 1, 60_000), (75, 1, 60_000), (10, 1, 0)],
        ),
        row(
            "TestProportionalShareMultipleSubclients, without preload",
            ProportionalShare,
            120,
            &[(65, 3, 65_000), (45, 2, 45_000), (20, 1, 10_000)],
        ),
        Row {
            differs: Some((
                &[600_000],
                "the capacity is each client's, so one that speaks for six may pass on six",
            )),
            ..row("static for subclients", Static, 100, &[(1000, 6, 100_000)])
        },
    ];
    for row in &rows {
        check(row, 1);
    }
}

/// The tutorial's cluster (`doc/simplecluster`), in cycles: four small clients, then two big ones.
#[test]
fn the_tutorial_ends_where_doormans_does() {
    let small = [(10, 1); 4];
    let clients = [&small[..], &[(500, 1), (1000, 1)]].concat();
    let big = gets(Algorithm::ProportionalShare, 100, &clients, 4);
    assert_eq!(big, [10_000, 10_000, 10_000, 10_000, 25_454, 34_545]);
    let small = [(100, 1); 4];
    let clients = [&small[..], &[(1000, 1), (2000, 1)]].concat();
    let big = gets(Algorithm::FairShare, 1000, &clients, 4);
    assert_eq!(big, [100_000, 100_000, 100_000, 100_000, 300_000, 300_000]);
}

/// Doorman answers −80, 40, 40 when 300 become 120 while three clients have 100 each.
#[test]
fn a_lowered_capacity_takes_from_nobody_more_than_it_has() {
    for algorithm in [Algorithm::FairShare, Algorithm::ProportionalShare] {
        let mut fleet = fleet(algorithm, 300);
        for i in 0..3 {
            let has = refresh(&mut fleet, i, Capacity::ZERO, (100, 1));
            assert_eq!(has, Capacity::from_whole(100));
        }
        fleet.limit.capacity = Capacity::from_whole(120);
        for i in 0..3 {
            let has = refresh(&mut fleet, i, Capacity::from_whole(100), (100, 1));
            assert_eq!(has, Capacity::from_whole(40), "client {i} keeps its share");
        }
    }
}

/// Doorman confirms 1000 of 300: it believes any claim.
#[test]
fn claims_are_bounded_by_the_capacity() {
    let mut fleet = fleet(Algorithm::ProportionalShare, 300);
    fleet.resource.allocation.learning_until = at(10_000);
    let has = Capacity::from_whole(1000);
    let gets = refresh(&mut fleet, 0, has, (1000, 1));
    assert_eq!(gets, Capacity::from_whole(300));
}

/// TestGetServerCapacity: bands of 1 to 5 clients that want 200 each, of 100.
#[test]
fn a_server_asks_for_all_its_bands_at_once() {
    let mut fleet = fleet(Algorithm::FairShare, 100);
    let band = |clients: u32| Band {
        priority: crate::lease::Priority::nearest(clients.into()),
        wants: Capacity::from_whole(200),
        subclients: NonZeroU32::new(clients).unwrap(),
    };
    let demand = Demand::try_from_bands(&[1, 2, 3, 4, 5].map(band)).unwrap();
    let request = LeaseRequest {
        demand,
        ..LeaseRequest::new(1, Capacity::ZERO, Capacity::ZERO)
    };
    let client = ClientRun::only(ClientId::new("leaf").unwrap());
    let limit = fleet.limit.clone();
    let now = fleet.now;
    let answer = super::refresh(&mut fleet.resource, now, &client, &request, (&limit, 100));
    assert_eq!(gets_of(&answer.unwrap()), 100);
    assert_eq!(fleet.resource.subclients(), 15);
    assert_eq!(fleet.resource.sum_wants(), 1_000_000_000);
}

fn gets_of(answer: &Answer) -> u64 {
    super::gets(answer)
}
