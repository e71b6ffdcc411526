use std::vec;
use std::vec::Vec;

use super::*;

/// A max-rate in millionths, and the part of it that was used.
type Member = (u64, Option<f64>);

fn members(of: &[Member]) -> Vec<MaxRateMember> {
    let member = |&(max, used): &Member| MaxRateMember {
        max: Some(Capacity::from_micros(max)),
        used: used.map(|used| Part::try_from_f64(used).unwrap()),
    };
    of.iter().map(member).collect()
}

const fn units(units: u64) -> u64 {
    units * MICRO
}

/// Max-rates in hundredths.
fn hundredths(members: &[MaxRateMember]) -> Vec<u64> {
    let max = members.iter().map(|member| member.max().as_micros());
    max.map(|micros| (micros + 5_000) / 10_000).collect()
}

fn all_busy(maxes: &[f64]) -> Vec<MaxRateMember> {
    let of: Vec<_> = maxes
        .iter()
        .map(|max| ((max * 1e6) as u64, Some(1.0)))
        .collect();
    members(&of)
}

/// Limit and members; max-rates after a round in hundredths, none if nothing changes.
type Row<'a> = (u64, &'a [Member], Option<&'a [u64]>);

/// A member that has so much and used this part of it.
const fn of(max: u64, used: f64) -> Member {
    (units(max), Some(used))
}

fn check(rows: &[Row<'_>]) {
    for (limit, of, want) in rows {
        let mut members = members(of);
        let changed = MaxRateRule::HERMES.balance(Capacity::from_whole(*limit), &mut members);
        assert_eq!(changed, want.is_some(), "{of:?}");
        if let Some(want) = want {
            assert_eq!(hundredths(&members), *want, "{of:?}");
        }
    }
}

/// Vectors of `MaxRateBalancerTest`, and some more with the values that its code gives.
#[test]
fn balancer_vectors() {
    check(&[
        (100, &[of(50, 0.7), of(50, 0.7)], None),
        (100, &[of(80, 1.0), of(20, 1.0)], Some(&[7556, 2444])),
        (100, &[of(70, 1.0), of(30, 0.2)], Some(&[9000, 1000])),
        (200, &[of(100, 0.0), of(100, 1.0)], Some(&[100, 19_900])),
        (
            200,
            &[of(1, 0.0), of(1, 0.0), of(99, 1.0), of(99, 1.0)],
            Some(&[100, 100, 9900, 9900]),
        ),
        (200, &[of(1, 1.0), of(199, 0.8)], Some(&[2311, 17_689])),
        (
            100,
            &[of(10, 1.0), of(30, 1.0), of(60, 1.0)],
            Some(&[1188, 3563, 5250]),
        ),
        // Nine tenths are not busy, a little more is.
        (100, &[of(50, 0.9), of(50, 0.0)], None),
        (100, &[of(50, 0.91), of(50, 0.0)], Some(&[9900, 100])),
        (1000, &[of(500, 1.0), of(500, 0.0)], Some(&[99_900, 100])),
        (1000, &[of(999, 0.8008), of(1, 0.0)], None),
    ]);
}

#[test]
fn balancer_vectors_of_changed_limits_and_members() {
    check(&[
        (200, &[of(50, 0.7), of(50, 0.99)], Some(&[10_000, 10_000])),
        // One that is missing is the rounding of an earlier round, two are a change.
        (100, &[of(60, 0.7), of(39, 0.7)], None),
        (100, &[of(60, 0.7), of(38, 0.7)], Some(&[5000, 5000])),
        // A member of an earlier version does not report: it keeps what it has.
        (
            200,
            &[(units(100), None), of(100, 1.0)],
            Some(&[10_000, 10_000]),
        ),
        (200, &[(units(100), None), of(100, 0.1)], None),
        // Another member has left.
        (100, &[of(60, 1.0)], Some(&[10_000])),
        // The limit is too low for the floor: twice and three times the limit.
        (1, &[of(1, 1.0), of(1, 1.0)], Some(&[100, 100])),
        (1, &[of(1, 0.0), of(1, 0.0), of(1, 0.0)], Some(&[100; 3])),
    ]);
}

#[test]
fn new_members_get_equal_parts_and_one_at_least() {
    for (limit, count, want) in [(100, 2, 5000), (1, 2, 100), (1, 3, 100), (10, 100, 100)] {
        let mut members = vec![MaxRateMember::default(); count];
        assert!(MaxRateRule::HERMES.balance(Capacity::from_whole(limit), &mut members));
        assert_eq!(
            hundredths(&members),
            vec![want; count],
            "{limit} for {count}"
        );
    }
}

#[test]
fn busy_members_become_equal_in_many_rounds() {
    let rows = [
        (100, vec![99.9, 0.1], 17),
        (100, vec![99.0, 1.0], 16),
        (100, vec![95.0, 5.0], 12),
        (100, vec![80.0, 20.0], 5),
        (100, vec![75.0, 25.0], 4),
        (100, vec![60.0, 40.0], 2),
        (100, vec![52.0, 48.0], 1),
        (1000, vec![999.0, 1.0], 17),
        (1000, [vec![991.0], vec![1.0; 9]].concat(), 21),
    ];
    for (limit, maxes, want) in rows {
        let mut members = all_busy(&maxes);
        let mut rounds = 0;
        loop {
            MaxRateRule::HERMES.balance(Capacity::from_whole(limit), &mut members);
            rounds += 1;
            let max = members.iter().map(MaxRateMember::max);
            let (least, most) = (max.clone().min().unwrap(), max.max().unwrap());
            if most.saturating_sub(least) <= Capacity::from_whole(1) {
                break;
            }
        }
        assert_eq!(rounds, want, "{maxes:?}");
    }
}

/// Both could have all that they want.
#[test]
fn members_with_room_to_spare_oscillate() {
    let wants = [57, 42].map(Capacity::from_whole);
    let mut members = vec![MaxRateMember::default(); 2];
    let mut rounds = Vec::new();
    for _ in 0..6 {
        MaxRateRule::HERMES.balance(Capacity::from_whole(100), &mut members);
        rounds.push(hundredths(&members));
        for (member, wants) in members.iter_mut().zip(wants) {
            *member = MaxRateMember::wanting(wants, member.max());
        }
    }
    let (equal, moved) = (vec![5000, 5000], vec![5435, 4565]);
    for (round, found) in rounds.iter().enumerate() {
        let want = if round % 2 == 0 { &equal } else { &moved };
        assert_eq!(found, want, "round {round}");
    }
}

/// The threshold of reports has to be below that of being busy: a member that becomes busy little
/// by little is heard of in time only then.
#[test]
fn small_changes_are_not_reported() {
    let rule = MaxRateRule::HERMES;
    let mut member = MaxRateMember {
        max: Some(Capacity::from_whole(100)),
        used: None,
    };
    for (attempts, want) in [
        (80, true),
        (89, false),
        (90, true),
        (81, false),
        (180, true),
    ] {
        assert_eq!(
            member.report(&rule, Capacity::from_whole(attempts)),
            want,
            "{attempts}"
        );
    }
    assert_eq!(member.used, Some(Part::ALL));
}

#[test]
fn a_round_of_a_limit_keeps_its_capacity() {
    // Capacity, members, max-rates in hundredths.
    let rows: [(u64, &[Member], &[u64]); 5] = [
        // Nobody gets one of a limit that is too low for that.
        (
            1,
            &[(units(1), Some(1.0)), (units(1), Some(1.0))],
            &[50, 50],
        ),
        // A lower limit, and a member that has left: what the others have is scaled.
        (
            100,
            &[(units(150), Some(0.5)), (units(50), Some(0.5))],
            &[7500, 2500],
        ),
        (
            100,
            &[(units(60), Some(0.5)), (units(20), Some(0.5))],
            &[7500, 2500],
        ),
        (
            100,
            &[(units(80), Some(1.0)), (units(20), Some(1.0))],
            &[7556, 2444],
        ),
        (
            200,
            &[(units(100), Some(0.0)), (units(100), Some(1.0))],
            &[100, 19_900],
        ),
    ];
    for (capacity, of, want) in rows {
        let mut members = members(of);
        MaxRateRule::HERMES.rebalance(Capacity::from_whole(capacity), &mut members);
        assert_eq!(hundredths(&members), want, "{of:?}");
    }
    // A newcomer gets its equal part of what all are scaled to.
    let mut members = all_busy(&[60.0, 40.0]);
    members.push(MaxRateMember::default());
    MaxRateRule::HERMES.rebalance(Capacity::from_whole(100), &mut members);
    let sum = sum_max(members.iter());
    assert!(
        (units(100) - 9..=units(100)).contains(&u64::try_from(sum).unwrap()),
        "{sum}"
    );
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod laws {
    use proptest::prelude::*;

    use super::*;

    fn member() -> impl Strategy<Value = (Option<u64>, u64)> {
        let max = prop::option::of(prop_oneof![
            Just(0),
            0..5000_u64,
            0..=Capacity::MAX.as_micros()
        ]);
        (
            max,
            prop_oneof![Just(0), 0..5000_u64, 0..=Capacity::MAX.as_micros()],
        )
    }

    proptest! {
        #[test]
        fn no_round_of_a_limit_exceeds_its_capacity(
            of in prop::collection::vec(member(), 1..30),
            capacity in prop_oneof![0..5000_u64, 0..=Capacity::MAX.as_micros()],
            rounds in 1..30,
        ) {
            let capacity = Capacity::from_micros(capacity);
            let mut members: Vec<_> = of
                .iter()
                .map(|(max, _)| MaxRateMember { max: max.map(Capacity::from_micros), used: None })
                .collect();
            for _ in 0..rounds {
                for (member, (_, wants)) in members.iter_mut().zip(&of) {
                    let wants = Capacity::from_micros(*wants);
                    member.used = Some(used(wants, member.max()));
                }
                MaxRateRule::HERMES.rebalance(capacity, &mut members);
                prop_assert!(sum_max(members.iter()) <= u128::from(capacity.as_micros()));
            }
        }

        #[test]
        fn all_busy_members_of_a_limit_become_equal(
            maxes in prop::collection::vec(0.1..1000.0_f64, 2..8),
        ) {
            let mut members = all_busy(&maxes);
            let capacity = Capacity::from_whole(100);
            for _ in 0..200 {
                MaxRateRule::HERMES.rebalance(capacity, &mut members);
                for member in &mut members {
                    member.used = Some(Part::ALL);
                }
            }
            let equal = capacity.divided_by(members.len() as u64);
            for member in &members {
                let off = member.max().as_micros().abs_diff(equal.as_micros());
                // A hundredth of the limit beyond the equal part is let to each of the others.
                prop_assert!(off <= members.len() as u64 * MICRO, "{members:?}");
            }
        }
    }
}
