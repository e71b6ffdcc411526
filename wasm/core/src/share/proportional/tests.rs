use alloc::vec::Vec;

use super::super::fair::Quantum;
use super::*;

/// Doorman's definition in floats, over everybody at once.
fn definition(clients: &[(u64, u32)], capacity: f64) -> Vec<f64> {
    let wants: f64 = clients.iter().map(|&(wants, _)| wants as f64).sum();
    if wants <= capacity {
        return clients.iter().map(|&(wants, _)| wants as f64).collect();
    }
    let active = clients.iter().filter(|(wants, _)| *wants > 0);
    let weights: f64 = active.map(|&(_, weight)| f64::from(weight)).sum();
    let part = |weight: u32| capacity / weights * f64::from(weight);
    let over = |&(wants, weight): &(u64, u32)| wants as f64 - part(weight);
    let active = clients.iter().filter(|(wants, _)| *wants > 0);
    let left: f64 = active.map(|client| (-over(client)).max(0.0)).sum();
    let missing: f64 = clients.iter().map(|client| over(client).max(0.0)).sum();
    let gets = |client: &(u64, u32)| {
        if over(client) <= 0.0 {
            return client.0 as f64;
        }
        part(client.1) + over(client) * left / missing
    };
    clients.iter().map(gets).collect()
}

fn shares(clients: &[(u64, u32)], capacity: u64, quantum: Quantum) -> Vec<u64> {
    let mut fair = FairShare::of(quantum);
    let insert = |(key, &(wants, weight)): (usize, &(u64, u32))| {
        let weight = NonZeroU32::new(weight).unwrap();
        fair.insert(key, Capacity::from_micros(wants), weight)
    };
    let handles: Vec<_> = clients.iter().enumerate().map(insert).collect();
    let capacity = Capacity::from_micros(capacity);
    let share = |handle| fair.proportional(handle, capacity).as_micros();
    handles.iter().map(share).collect()
}

/// Checks against the definition, but for three millionths: the sure part, the rest and the part of
/// it are each rounded.
fn check(clients: &[(u64, u32)], capacity: u64, gets: &[u64]) {
    let context = || std::format!("{clients:?} capacity {capacity} gets {gets:?}");
    let exact = definition(clients, capacity as f64);
    for ((&(wants, _), &got), exact) in clients.iter().zip(gets).zip(exact) {
        assert!(got <= wants, "more than wanted: {}", context());
        let off = (got as f64 - exact).abs();
        assert!(off <= 3.0 + exact * 1e-9, "off by {off}: {}", context());
    }
    let sum: u128 = gets.iter().map(|&got| u128::from(got)).sum();
    let wants: u128 = clients.iter().map(|&(wants, _)| u128::from(wants)).sum();
    assert_eq!(sum, wants.min(capacity.into()), "{}", context());
}

#[test]
fn a_product_wider_than_128_bits_is_divided_exactly() {
    let rows = [
        (1 << 100, u64::MAX, 1 << 101, u64::MAX / 2),
        ((1 << 111) - 1, u64::MAX, (1 << 111) - 1, u64::MAX),
        (0, u64::MAX, 1 << 111, 0),
        (
            7_u128 << 90,
            3_000_000_000_000_000_001,
            21 << 90,
            1_000_000_000_000_000_000,
        ),
        (5, 7, 35, 1),
        (5, 7, 0, 0),
    ];
    for (a, b, divisor, want) in rows {
        assert_eq!(mul_div_wide(a, b, divisor), want, "{a} * {b} / {divisor}");
    }
}

#[test]
fn whole_units_are_given_whole() {
    let clients = [(1_000_000_000, 1), (50_000_000, 1), (10_000_000, 1)];
    let gets = shares(&clients, 120_000_000, Quantum::Whole);
    let whole: Vec<_> = gets.iter().map(|gets| gets / 1_000_000).collect();
    assert_eq!(whole, [70, 40, 10], "40 each, and 30 by 960 to 10");
    assert!(gets.iter().all(|gets| gets % 1_000_000 == 0));
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod laws {
    use proptest::prelude::*;

    use super::*;

    fn client() -> impl Strategy<Value = (u64, u32)> {
        let wants = prop_oneof![
            Just(0),
            0..10_u64,
            Just(5_000_000),
            0..1_000_000_000_u64,
            0..=Capacity::MAX.as_micros()
        ];
        (wants, prop_oneof![Just(1), 1..=10_u32, 1..=u32::MAX])
    }

    proptest! {
        #[test]
        fn equals_its_definition_and_adds_up(
            clients in prop::collection::vec(client(), 1..60),
            capacity in prop_oneof![0..1000_u64, 0..=Capacity::MAX.as_micros()],
        ) {
            let gets = shares(&clients, capacity, Quantum::Micro);
            check(&clients, capacity, &gets);
        }

        #[test]
        fn nobody_is_pushed_below_its_equal_part(
            clients in prop::collection::vec(client(), 1..30),
            capacity in 0..=Capacity::MAX.as_micros(),
        ) {
            let gets = shares(&clients, capacity, Quantum::Micro);
            let weights: u128 = clients.iter().map(|&(_, weight)| u128::from(weight)).sum();
            for (&(wants, weight), gets) in clients.iter().zip(gets) {
                let part = u128::from(capacity) * u128::from(weight) / weights;
                prop_assert!(u128::from(gets) >= part.min(wants.into()));
            }
        }

        #[test]
        fn does_not_depend_on_the_order(
            clients in prop::collection::vec((0..2000_u64, 1..9_u32), 1..20),
            capacity in 0..5000_u64,
        ) {
            let gets = shares(&clients, capacity, Quantum::Micro);
            let mut fair = FairShare::new();
            let insert = |(key, &(wants, weight)): (usize, &(u64, u32))| {
                let weight = NonZeroU32::new(weight).unwrap();
                fair.insert(key, Capacity::from_micros(wants), weight)
            };
            let handles: Vec<_> = clients.iter().enumerate().rev().map(insert).collect();
            let capacity = Capacity::from_micros(capacity);
            for (handle, gets) in handles.iter().rev().zip(gets) {
                prop_assert_eq!(fair.proportional(handle, capacity).as_micros(), gets);
            }
        }
    }
}
