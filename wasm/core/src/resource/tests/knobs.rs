//! Units, reserve and safe capacities.

use super::*;
use crate::limit::{Algorithm, Part, SafeCapacity};

#[test]
fn a_limiter_is_lent_in_whole_units() {
    let mut fleet = Fleet::of(Unit::Concurrency, LEARNED);
    fleet.limit.capacity = Capacity::from_micros(10_500_000);
    fleet.limit.headroom = Part::NONE;
    let mut has = [0; 3];
    for _ in 0..4 {
        for (client, has) in ["a", "b", "c"].into_iter().zip(&mut has) {
            let answer = fleet.refresh(client, *has, 100);
            let lease = answer.lease.unwrap();
            assert_eq!(lease.capacity.as_micros() % 1_000_000, 0);
            assert_eq!(lease.burst.as_micros(), lease.capacity.as_micros());
            *has = gets(&answer);
        }
    }
    has.sort_unstable();
    assert_eq!(has, [3, 3, 4], "ten places, and half a place is none");
    // Two fifths are wanted as a whole.
    let mut fleet = Fleet::of(Unit::Concurrency, LEARNED);
    fleet.limit.headroom = Part::NONE;
    let client = ClientRun::only(ClientId::new("a").unwrap());
    let request = LeaseRequest::new(1, Capacity::ZERO, Capacity::from_micros(400_000));
    let limit = fleet.limit.clone();
    let answer = refresh(
        &mut fleet.resource,
        fleet.now,
        &client,
        &request,
        (&limit, 3),
    );
    assert_eq!(gets(&answer.unwrap()), 1);
}

#[test]
fn the_reserve_is_for_newcomers() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.reserve = Part::try_from_f64(0.3).unwrap();
    fleet.limit.headroom = Part::ALL;
    // Client, has and wants; gets.
    let rows = [
        ("a", 0, 2000, 700, "all but the reserve"),
        ("a", 700, 2000, 700, "it does not grow into it"),
        ("b", 0, 2000, 300, "entitled to 350, and 300 are there"),
        ("c", 0, 2000, 0, "the reserve is used up"),
        ("a", 700, 2000, 233, "a third of what is divided"),
        ("a", 233, 2000, 233, "acknowledged"),
        ("b", 300, 2000, 233, "as much as a"),
        ("b", 233, 2000, 233, "acknowledged"),
        (
            "c",
            0,
            2000,
            233,
            "and c its third at once: the reserve is whole again",
        ),
    ];
    for (row, (client, has, wants, want, why)) in rows.into_iter().enumerate() {
        let got = gets(&fleet.refresh(client, has, wants));
        assert_eq!(got, want, "row {row}: {why}");
    }
}

#[test]
fn safe_capacities() {
    let fixed = SafeCapacity::Fixed(Capacity::from_whole(50));
    let rows = [
        (
            SafeCapacity::Client,
            Algorithm::FairShare,
            [None, None, None],
        ),
        (fixed, Algorithm::FairShare, [Some(50), Some(50), Some(50)]),
        // testSafeCapacity of Doorman: 300/1, 300/2, 300/3.
        (
            SafeCapacity::Dynamic,
            Algorithm::FairShare,
            [Some(300), Some(150), Some(100)],
        ),
        (
            SafeCapacity::Dynamic,
            Algorithm::Static,
            [Some(300), Some(300), Some(300)],
        ),
    ];
    for (safe, algorithm, want) in rows {
        let mut fleet = Fleet::new(LEARNED);
        fleet.limit.capacity = Capacity::from_whole(300);
        fleet.limit.safe = safe;
        fleet.limit.algorithm = algorithm;
        let answers = ["a", "b", "c"].map(|client| {
            let safe = fleet.refresh(client, 0, 10).safe;
            assert_eq!(fleet.resource.safe(), safe, "{safe:?} {algorithm:?}");
            safe.map(|safe| safe.as_micros() / 1_000_000)
        });
        assert_eq!(answers, want, "{safe:?} {algorithm:?}");
    }
}

#[test]
fn static_bounds_each_and_none_nobody() {
    let mut fleet = Fleet::new(LEARNED);
    fleet.limit.algorithm = Algorithm::Static;
    for client in ["a", "b", "c"] {
        let answer = fleet.refresh(client, 0, 5000);
        assert_eq!(gets(&answer), CAPACITY);
        assert_eq!(answer.refresh_interval, fleet.limit.refresh);
    }
    assert_eq!(fleet.sum_has(), 3 * CAPACITY);
    // From now on all three share the one capacity.
    fleet.limit.algorithm = Algorithm::FairShare;
    let mut has = [CAPACITY; 3];
    for _ in 0..4 {
        for (client, has) in ["a", "b", "c"].into_iter().zip(&mut has) {
            *has = gets(&fleet.refresh(client, *has, 5000));
        }
    }
    assert_eq!(has, [333; 3]);
    fleet.limit.algorithm = Algorithm::None;
    assert_eq!(gets(&fleet.refresh("a", 333, 5000)), 5000);
}
