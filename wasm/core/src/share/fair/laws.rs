//! The laws of the division for any clients.

use super::tests::check;
use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Wants of very different sizes, many of them equal or zero.
fn wants() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        4 => 0..10_u64,
        2 => Just(5_000_000),
        4 => 0..1_000_000_000_u64,
        1 => 0..=Capacity::MAX.as_micros(),
    ]
}

fn clients(most: usize) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let weight = prop_oneof![3 => Just(1), 3 => 1..=10_u32, 1 => 1..=u32::MAX];
    prop::collection::vec((wants(), weight), 0..most)
}

/// Capacities that matter for `clients`: from nothing to a little more than all they want.
fn with_capacity(most: usize) -> impl Strategy<Value = (Vec<(u64, u32)>, u64)> {
    (clients(most), 0..=1100_u128, 0..3_u64).prop_map(|(clients, promille, more)| {
        let sum: u128 = clients.iter().map(|&(wants, _)| u128::from(wants)).sum();
        let capacity = sum * promille / 1000 + u128::from(more);
        let most = Capacity::MAX.as_micros();
        let capacity = u64::try_from(capacity).unwrap_or(most).min(most);
        (clients, capacity)
    })
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u64, u32),
    Update(prop::sample::Index, u64, u32),
    Remove(prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let any_client = any::<prop::sample::Index>;
    let change = prop_oneof![
        3 => (wants(), 1..9_u32).prop_map(|(wants, weight)| Change::Insert(wants, weight)),
        3 => (any_client(), wants(), 1..9_u32).prop_map(|(i, n, w)| Change::Update(i, n, w)),
        2 => any_client().prop_map(Change::Remove),
    ];
    prop::collection::vec(change, 0..300)
}

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

/// Inserts in the order of `order`, keys being indices; what each index gets, in micros.
fn shares_in_order(clients: &[(u64, u32)], order: &[usize], capacity: u64) -> Vec<u64> {
    let mut fair = FairShare::new();
    let mut handles: Vec<_> = order
        .iter()
        .map(|&key| {
            let (wants, width) = clients[key];
            let handle = fair.insert(key, Capacity::from_micros(wants), weight(width));
            (key, handle)
        })
        .collect();
    handles.sort_by_key(|(key, _)| *key);
    let capacity = Capacity::from_micros(capacity);
    let share = |(_, handle): &(usize, Handle<usize>)| fair.share(handle, capacity);
    handles.iter().map(share).map(Capacity::as_micros).collect()
}

fn in_order(clients: &[(u64, u32)], capacity: u64) -> Vec<u64> {
    let order: Vec<_> = (0..clients.len()).collect();
    shares_in_order(clients, &order, capacity)
}

proptest! {
    #[test]
    fn equals_water_filling_and_adds_up((clients, capacity) in with_capacity(200)) {
        check(&clients, capacity, &in_order(&clients, capacity));
    }

    /// The definition itself, to within the rounding of one millionth: whoever gets less than it
    /// wants gets as much per weight as anyone.
    #[test]
    fn nobody_can_get_more_but_from_one_with_less((clients, capacity) in with_capacity(60)) {
        let gets = in_order(&clients, capacity);
        let all = || clients.iter().zip(&gets);
        for (&(wants, mine), &got) in all().filter(|((wants, _), got)| *got < wants) {
            for (&(_, other), &theirs) in all() {
                let theirs_per_weight = u128::from(theirs.saturating_sub(1)) * u128::from(mine);
                let mine_per_weight = u128::from(got + 1) * u128::from(other);
                prop_assert!(
                    theirs_per_weight < mine_per_weight,
                    "wants {wants} gets {got} weight {mine}, other gets {theirs} weight {other}"
                );
            }
        }
    }

    #[test]
    fn does_not_depend_on_who_came_first(
        ((clients, capacity), order) in with_capacity(200).prop_flat_map(|drawn| {
            let order: Vec<_> = (0..drawn.0.len()).collect();
            (Just(drawn), Just(order).prop_shuffle())
        }),
    ) {
        let shuffled = shares_in_order(&clients, &order, capacity);
        prop_assert_eq!(shuffled, in_order(&clients, capacity));
    }

    /// After any changes, every client has the share it would have in a division made anew.
    #[test]
    fn changes_leave_no_trace(changes in changes(), promille in 0..=1100_u128) {
        let mut fair = FairShare::new();
        let mut living: Vec<(usize, Handle<usize>)> = Vec::new();
        for (key, change) in changes.into_iter().enumerate() {
            match change {
                Change::Insert(wants, width) => {
                    let wants = Capacity::from_micros(wants);
                    living.push((key, fair.insert(key, wants, weight(width))));
                }
                Change::Update(at, wants, width) if !living.is_empty() => {
                    let at = at.index(living.len());
                    fair.update(&mut living[at].1, Capacity::from_micros(wants), weight(width));
                }
                Change::Remove(at) if !living.is_empty() => {
                    fair.remove(living.swap_remove(at.index(living.len())).1);
                }
                Change::Update(..) | Change::Remove(_) => {}
            }
        }
        living.sort_by_key(|(key, _)| *key);
        let clients = living.iter().map(|(_, handle)| handle);
        let clients: Vec<_> = clients
            .map(|handle| (handle.wants().as_micros(), handle.weight().get()))
            .collect();
        prop_assert_eq!(fair.len(), clients.len());
        let capacity = u64::try_from(fair.sum_wants() * promille / 1000).unwrap_or(u64::MAX);
        let capacity = Capacity::from_micros(capacity);
        let shares = living.iter().map(|(_, handle)| fair.share(handle, capacity));
        let shares: Vec<_> = shares.map(Capacity::as_micros).collect();
        prop_assert_eq!(&shares, &in_order(&clients, capacity.as_micros()));
        let parts = living.iter().map(|(_, handle)| fair.spare(handle, capacity).as_micros());
        let active = clients.iter().any(|&(wants, _)| wants > 0);
        let want = if active { capacity.as_micros() } else { 0 };
        prop_assert_eq!(parts.sum::<u64>(), want);
    }

    /// A client of weight n gets what n clients of weight 1 with equal parts of its wants get.
    #[test]
    fn weight_stands_for_as_many_clients(
        clients in prop::collection::vec((0..1_000_000_u64, 1..6_u32), 1..20),
        capacity in 0..20_000_000_u64,
    ) {
        let whole = |&(wants, width): &(u64, u32)| (wants * u64::from(width), width);
        let heavy: Vec<_> = clients.iter().map(whole).collect();
        let each = |&(wants, width): &(u64, u32)| core::iter::repeat_n((wants, 1), width as usize);
        let light: Vec<_> = clients.iter().flat_map(each).collect();
        let (heavy, mut light) = (in_order(&heavy, capacity), &*in_order(&light, capacity));
        for ((_, width), got) in clients.iter().zip(heavy) {
            let (mine, rest) = light.split_at(*width as usize);
            light = rest;
            prop_assert!(mine.iter().sum::<u64>().abs_diff(got) <= u64::from(*width));
        }
    }

    /// Otherwise every process that is idle would unsettle the leases of all the others.
    #[test]
    fn who_wants_nothing_moves_nobody(
        (clients, capacity) in with_capacity(60),
        idle in prop::collection::vec(1..9_u32, 1..40),
    ) {
        let mut fair = FairShare::new();
        let handles: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(key, &(wants, width))| {
                fair.insert(key, Capacity::from_micros(wants), weight(width))
            })
            .collect();
        let capacity = Capacity::from_micros(capacity);
        let gets = |fair: &FairShare<usize>| -> Vec<_> {
            let parts = |handle| (fair.share(handle, capacity), fair.spare(handle, capacity));
            handles.iter().map(parts).collect()
        };
        let before = gets(&fair);
        for (key, width) in idle.into_iter().enumerate() {
            fair.insert(key, Capacity::ZERO, weight(width));
        }
        prop_assert_eq!(before, gets(&fair));
    }

    #[test]
    fn more_capacity_takes_from_nobody((clients, capacity) in with_capacity(60), more in 0..1000_u64) {
        let less = in_order(&clients, capacity);
        let more = in_order(&clients, capacity.saturating_add(more));
        for (less, more) in less.iter().zip(&more) {
            // The last millionth may go to another.
            prop_assert!(*less <= more + 1, "{less} {more}");
        }
    }
}
