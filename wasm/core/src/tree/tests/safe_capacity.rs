//! Safe capacity, which is lent while the parent is away.

use super::*;

#[test]
fn without_the_parent_the_safe_capacity_is_lent() {
    let fixed = |units| SafeCapacity::Fixed(Capacity::from_whole(units));
    // Safe capacity of the parent, of the limit, and the capacities of two clients that want 100
    // and 5.
    let rows = [
        (None, SafeCapacity::Client, None, None),
        (whole(20), SafeCapacity::Client, whole(35), whole(5)),
        (whole(20), fixed(30), whole(35), whole(5)),
        (None, fixed(30), whole(55), whole(5)),
        (whole(600), SafeCapacity::Client, whole(100), whole(5)),
    ];
    // The same by each algorithm: this is no capacity that they divide.
    let algorithms = [
        Algorithm::FairShare,
        Algorithm::UsageShare,
        Algorithm::MaxRate,
    ];
    let rows = algorithms.map(|algorithm| rows.map(|row| (algorithm, row)));
    for (algorithm, (parents, own, a, b)) in rows.into_iter().flatten() {
        let mut leaf = Leaf::new();
        leaf.limit.algorithm = algorithm;
        leaf.limit.safe = own;
        leaf.refresh("a", (0, 100));
        leaf.lend(Capacity::from_whole(60), |answer| answer.safe = parents);
        leaf.pass(10_001);
        leaf.refresh("b", (0, 5));
        leaf.refresh("a", (0, 100));
        leaf.pass(300);
        let (b_gets, a_gets) = (leaf.refresh("b", (0, 5)), leaf.refresh("a", (0, 100)));
        let got = (gets(a_gets), gets(b_gets));
        assert_eq!(got, (a, b), "{algorithm:?} {parents:?} {own:?}");
        // Clients are told the same that the leaf lends by.
        let each = parents.or(match own {
            SafeCapacity::Fixed(safe) => Some(safe),
            _ => None,
        });
        assert_eq!(a_gets.safe, each, "{parents:?} {own:?}");
    }
}

#[test]
fn without_the_parent_no_priority_takes_the_safe_capacity_of_another() {
    let mut leaf = Leaf::new();
    leaf.limit.safe = SafeCapacity::Fixed(Capacity::from_whole(30));
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| ());
    leaf.pass(10_001);
    let ask = |leaf: &mut Leaf, client, priority, wants| {
        let bands = [Band {
            priority,
            wants: Capacity::from_whole(wants),
            subclients: NonZeroU32::MIN,
        }];
        let request = LeaseRequest {
            demand: Demand::try_from_bands(&bands).unwrap(),
            ..LeaseRequest::new(leaf.now.as_nanos(), Capacity::ZERO, Capacity::ZERO)
        };
        gets(leaf.say(client, &request))
    };
    // Of 60 the one that wants 10 gets that, and the others the rest, the higher priority first.
    for (client, priority, wants, gets) in [
        ("low", Priority::LOWEST, 100, 30),
        ("high", Priority::new(15).unwrap(), 100, 30),
        ("low", Priority::LOWEST, 10, 10),
        ("high", Priority::new(15).unwrap(), 100, 50),
    ] {
        leaf.pass(200);
        assert_eq!(ask(&mut leaf, client, priority, wants), whole(gets));
    }
}

/// The parent would take it for a lease that it has to count.
#[test]
fn the_safe_capacity_is_not_said_to_be_borrowed() {
    let mut leaf = Leaf::new();
    leaf.limit.safe = SafeCapacity::Fixed(Capacity::from_whole(30));
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |_| ());
    leaf.pass(10_001);
    assert_eq!(gets(leaf.refresh("a", (0, 100))), whole(30));
    leaf.pass(300);
    leaf.refresh("a", (30, 100));
    let request = leaf.ask();
    assert_eq!((request.has, request.remaining), (Capacity::ZERO, None));
}

#[test]
fn without_the_parent_there_is_no_limit_where_it_had_none() {
    let fixed = SafeCapacity::Fixed(Capacity::from_whole(30));
    // The leaf's own limit, and the lease of a client that wants 100.
    let rows = [
        (
            Capacity::UNLIMITED,
            SafeCapacity::Client,
            Capacity::UNLIMITED,
        ),
        (Capacity::UNLIMITED, fixed, Capacity::from_whole(30)),
        (
            Capacity::from_whole(70),
            SafeCapacity::Client,
            Capacity::from_whole(70),
        ),
    ];
    for (own, safe, want) in rows {
        let mut leaf = Leaf::new();
        leaf.limit = Limit {
            safe,
            ..Limit::new(own)
        };
        leaf.refresh("a", (0, 100));
        leaf.lend(Capacity::UNLIMITED, |answer| {
            answer.capacity = Capacity::UNLIMITED;
        });
        leaf.pass(10_001);
        leaf.refresh("a", (0, 100));
        leaf.pass(300);
        let answer = leaf.refresh("a", (0, 100));
        assert_eq!(gets(answer), Some(want), "{own:?} {safe:?}");
        let shown = match safe {
            SafeCapacity::Fixed(safe) => Some(safe),
            _ => None,
        };
        assert_eq!(answer.safe, shown, "{own:?} {safe:?}");
    }
}

#[test]
fn safe_capacity_is_lent_with_no_larger_burst_than_the_parents() {
    let mut leaf = Leaf::new();
    leaf.refresh("a", (0, 100));
    leaf.lend(Capacity::from_whole(60), |answer| {
        answer.safe = whole(20);
        answer.burst = Some(Tokens::from_whole(5));
    });
    assert_eq!(
        leaf.refresh("a", (0, 100)).burst,
        Some(Tokens::from_whole(5))
    );
    leaf.pass(10_001);
    leaf.refresh("a", (0, 100));
    leaf.pass(300);
    let lease = leaf.refresh("a", (0, 100)).lease.unwrap();
    assert_eq!(lease.capacity, Capacity::from_whole(20));
    assert_eq!(lease.burst, Tokens::from_whole(5));
}
