use super::*;

use alloc::vec::Vec;

/// Share of a client by the definition, as a fraction of two whole numbers.
#[derive(Clone, Copy, Debug)]
struct Exact {
    numerator: u128,
    denominator: u128,
}

/// Water-filling round by round, in exact fractions: give everyone who wants no more than an
/// equal part per weight its wants, and begin again with the others and what is left.
fn water_filling(clients: &[(u64, u32)], capacity: u64) -> Vec<Exact> {
    let mut gets: Vec<Option<Exact>> = clients.iter().map(|_| None).collect();
    let mut rest = u128::from(capacity);
    loop {
        let open = clients.iter().zip(&gets).filter(|(_, get)| get.is_none());
        let weights: u128 = open.map(|((_, weight), _)| u128::from(*weight)).sum();
        let before = rest;
        let mut settled = 0;
        for (&(wants, weight), get) in clients.iter().zip(&mut gets) {
            if get.is_none() && u128::from(wants) * weights <= before * u128::from(weight) {
                *get = Some(Exact {
                    numerator: wants.into(),
                    denominator: 1,
                });
                rest -= u128::from(wants);
                settled += 1;
            }
        }
        if settled == 0 {
            let by_weight = |weight: u32| Exact {
                numerator: rest * u128::from(weight),
                denominator: weights,
            };
            let weights = clients.iter().map(|(_, weight)| *weight);
            let all = gets.into_iter().zip(weights);
            return all
                .map(|(get, weight)| get.unwrap_or_else(|| by_weight(weight)))
                .collect();
        }
    }
}

/// BandShares of clients inserted in the order given, with their indices as keys, in micros.
fn shares(clients: &[(u64, u32)], capacity: u64) -> Vec<u64> {
    let (fair, handles) = allocation(clients);
    let capacity = Capacity::from_micros(capacity);
    let share = |handle| fair.share(handle, capacity).as_micros();
    handles.iter().map(share).collect()
}

fn allocation(clients: &[(u64, u32)]) -> (FairShare<usize>, Vec<Handle<usize>>) {
    let mut fair = FairShare::new();
    let handles = clients
        .iter()
        .enumerate()
        .map(|(key, &(wants, weight))| {
            let weight = NonZeroU32::new(weight).unwrap();
            fair.insert(key, Capacity::from_micros(wants), weight)
        })
        .collect();
    (fair, handles)
}

/// Checks `gets` against everything that the module promises.
pub(crate) fn check(clients: &[(u64, u32)], capacity: u64, gets: &[u64]) {
    let context = || std::format!("{clients:?} capacity {capacity} gets {gets:?}");
    for ((&(wants, _), &got), exact) in clients
        .iter()
        .zip(gets)
        .zip(water_filling(clients, capacity))
    {
        assert!(got <= wants, "more than wanted: {}", context());
        let got = u128::from(got) * exact.denominator;
        let off = got.abs_diff(exact.numerator);
        let one = exact.denominator;
        assert!(off < one, "not water-filling: {}", context());
    }
    let sum: u128 = gets.iter().map(|&got| u128::from(got)).sum();
    let wants: u128 = clients.iter().map(|&(wants, _)| u128::from(wants)).sum();
    assert_eq!(sum, wants.min(capacity.into()), "{}", context());
}

#[test]
fn tables() {
    const MICROS: u64 = 1_000_000;
    // Capacity, then wants, weight and gets of every client, in whole units.
    type Row = (u64, &'static [(u64, u32, u64)]);
    let rows: [Row; 9] = [
        // Doorman's two rounds give B 28, more than it wants.
        (
            100,
            &[
                (1000, 1, 29),
                (27, 1, 27),
                (22, 1, 22),
                (21, 1, 21),
                (1, 1, 1),
            ],
        ),
        // Enough for all.
        (100, &[(50, 1, 50), (50, 9, 50)]),
        (100, &[(10, 1, 10), (20, 1, 20)]),
        // By weight where nobody is satisfied.
        (100, &[(1000, 1, 20), (1000, 4, 80)]),
        // The heavy one is satisfied and leaves the rest to the light one.
        (100, &[(1000, 1, 60), (40, 4, 40)]),
        // Wants exactly at the level.
        (90, &[(30, 1, 30), (30, 1, 30), (31, 1, 30)]),
        // Nothing to give, nobody to give to, nothing wanted.
        (0, &[(5, 1, 0), (0, 1, 0)]),
        (100, &[]),
        (100, &[(0, 7, 0), (300, 1, 100)]),
    ];
    for (capacity, row) in rows {
        let scaled = |&(wants, weight, _): &(u64, u32, u64)| (wants * MICROS, weight);
        let clients: Vec<_> = row.iter().map(scaled).collect();
        let want: Vec<_> = row.iter().map(|&(_, _, gets)| gets * MICROS).collect();
        assert_eq!(shares(&clients, capacity * MICROS), want, "{row:?}");
        check(&clients, capacity * MICROS, &want);
    }
}

#[test]
fn the_last_millionth_goes_by_key_and_not_to_the_first_who_asks() {
    let capacity = Capacity::from_micros(100);
    let wants = Capacity::from_micros(1000);
    for keys in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
        let mut fair = FairShare::new();
        let mut gets: Vec<_> = keys
            .iter()
            .map(|&key| (key, fair.insert(key, wants, NonZeroU32::MIN)))
            .collect();
        gets.sort_by_key(|(key, _)| *key);
        let gets = gets.iter().map(|(_, handle)| fair.share(handle, capacity));
        let gets: Vec<_> = gets.map(Capacity::as_micros).collect();
        assert_eq!(gets, [33, 33, 34], "inserted as {keys:?}");
    }
}

/// Every division between up to four clients that want 0 to 4 and weigh 1 or 2.
#[test]
fn all_small_cases() {
    let mut cases = 0;
    let each: Vec<(u64, u32)> = (0..=4).flat_map(|wants| [(wants, 1), (wants, 2)]).collect();
    let mut lists: Vec<Vec<(u64, u32)>> = [Vec::new()].into();
    for _ in 0..=4 {
        for clients in &lists {
            for capacity in 0..=8 {
                // In millionths all parts are rounded, in whole units few are.
                for unit in [1, 1_000_000] {
                    let clients: Vec<_> = clients.iter().map(|&(w, n)| (w * unit, n)).collect();
                    let gets = shares(&clients, capacity * unit);
                    check(&clients, capacity * unit, &gets);
                    cases += 1;
                }
            }
        }
        lists = lists
            .iter()
            .flat_map(|list| each.iter().map(|&last| [list.as_slice(), &[last]].concat()))
            .collect();
    }
    assert_eq!(cases, (1 + 10 + 100 + 1000 + 10_000) * 9 * 2);
}

#[test]
fn unlimited_is_more_than_any_number() {
    let mut fair = FairShare::new();
    let all = fair.insert(1, Capacity::UNLIMITED, NonZeroU32::MIN);
    let some = fair.insert(2, Capacity::from_whole(10), NonZeroU32::MIN);
    assert_eq!(fair.share(&all, Capacity::UNLIMITED), Capacity::UNLIMITED);
    assert_eq!(
        fair.share(&some, Capacity::UNLIMITED),
        Capacity::from_whole(10)
    );
    let most = Capacity::MAX;
    assert_eq!(
        fair.share(&all, most),
        most.saturating_sub(Capacity::from_whole(10))
    );
    assert_eq!(fair.share(&some, most), Capacity::from_whole(10));
}

#[test]
fn sums_of_the_largest_numbers_do_not_overflow() {
    let clients = [(Capacity::MAX.as_micros(), u32::MAX); 300];
    let gets = shares(&clients, Capacity::MAX.as_micros());
    check(&clients, Capacity::MAX.as_micros(), &gets);
}

#[test]
fn spare_goes_to_the_active_by_weight_and_adds_up() {
    let clients = [(0, 5), (10, 1), (20, 2), (0, 9), (7, 3)];
    let (fair, handles) = allocation(&clients);
    let spare = |micros| {
        let spare = Capacity::from_micros(micros);
        let parts = handles.iter().map(|handle| fair.spare(handle, spare));
        parts.map(Capacity::as_micros).collect::<Vec<_>>()
    };
    assert_eq!(spare(600), [0, 100, 200, 0, 300]);
    for micros in 0..100 {
        assert_eq!(spare(micros).iter().sum::<u64>(), micros);
    }
    assert_eq!(
        fair.spare(&handles[1], Capacity::UNLIMITED),
        Capacity::UNLIMITED
    );
}

#[test]
fn nobody_active_leaves_the_spare_alone() {
    let (mut fair, mut handles) = allocation(&[(0, 1), (4, 1)]);
    let mut last = handles.pop().unwrap();
    fair.update(&mut last, Capacity::ZERO, NonZeroU32::MIN);
    let spare = Capacity::from_whole(9);
    assert_eq!(fair.spare(&last, spare), Capacity::ZERO);
    fair.update(&mut last, Capacity::from_micros(1), NonZeroU32::MIN);
    assert_eq!(fair.spare(&last, spare), spare);
    fair.remove(handles.pop().unwrap());
    assert_eq!(fair.spare(&last, spare), spare);
    fair.remove(last);
    assert!(fair.is_empty());
    assert_eq!((fair.sum_wants(), fair.sum_weights()), (0, 0));
}

#[test]
fn a_quantum_rounds_numbers_and_leaves_what_is_unlimited() {
    // Quantum and millionths; what can be given of them, and the least that is no less.
    let rows = [
        (Quantum::Micro, 1_500_000, 1_500_000, 1_500_000),
        (Quantum::Whole, 1_500_000, 1_000_000, 2_000_000),
        (Quantum::Whole, 2_000_000, 2_000_000, 2_000_000),
        (Quantum::Whole, 0, 0, 0),
    ];
    for (quantum, micros, floor, ceil) in rows {
        let capacity = Capacity::from_micros(micros);
        assert_eq!(quantum.floor(capacity).as_micros(), floor, "{quantum:?}");
        assert_eq!(quantum.ceil(capacity).as_micros(), ceil, "{quantum:?}");
    }
    for quantum in [Quantum::Micro, Quantum::Whole] {
        assert!(quantum.floor(Capacity::UNLIMITED).is_unlimited());
        assert!(quantum.ceil(Capacity::UNLIMITED).is_unlimited());
    }
}
