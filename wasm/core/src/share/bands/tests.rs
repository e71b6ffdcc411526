use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::super::fair::tests::check as check_water_filling;
use super::*;

/// A client: priority, wants in micro-units and subclients of each of its bands.
type Client = Vec<(u8, u64, u32)>;

fn demand(client: &Client) -> Demand {
    let band = |&(priority, wants, subclients): &(u8, u64, u32)| Band {
        priority: Priority::new(priority).unwrap(),
        wants: Capacity::from_micros(wants),
        subclients: NonZeroU32::new(subclients).unwrap(),
    };
    let bands: Vec<_> = client.iter().map(band).collect();
    Demand::try_from_bands(&bands).unwrap()
}

fn allocation(
    clients: &[Client],
    quantum: Quantum,
) -> (PriorityBands<usize>, Vec<BandHandles<usize>>) {
    let mut bands = PriorityBands::new(quantum);
    let places = clients.iter().enumerate();
    let places =
        places.map(|(key, client)| bands.insert(key, &demand(client), Capacity::UNLIMITED));
    let places = places.collect();
    (bands, places)
}

fn guaranteed(rows: &[(u8, u64)]) -> Guarantees {
    let rows = rows.iter();
    rows.fold(Guarantees::default(), |all, &(priority, micros)| {
        let priority = Priority::new(priority).unwrap();
        all.with(priority, Capacity::from_micros(micros))
    })
}

/// Shares of the bands by the definition: its minimum first, then from the highest down.
fn bands_get(wants: &[u64; 16], guaranteed: &Guarantees, capacity: u64) -> [u64; 16] {
    let mut gets = [0; 16];
    let mut rest = capacity;
    for round in 0..2 {
        for level in (0..16_u8).rev() {
            let priority = Priority::new(level).unwrap();
            let at = usize::from(level);
            let most = match round {
                0 => wants[at].min(guaranteed.of(priority).as_micros()),
                _ => wants[at],
            };
            let more = most.saturating_sub(gets[at]).min(rest);
            gets[at] += more;
            rest -= more;
        }
    }
    gets
}

#[test]
fn bands_table() {
    // Capacity, what is guaranteed, and of each client its band, wants and gets.
    type Row = (u64, &'static [(u8, u64)], &'static [(u8, u64, u64)]);
    let rows: [Row; 7] = [
        // Higher first, whatever the numbers.
        (100, &[], &[(9, 70, 70), (0, 500, 30), (3, 0, 0)]),
        (100, &[], &[(9, 170, 100), (0, 500, 0)]),
        // Within a band by max-min.
        (100, &[], &[(9, 40, 40), (1, 10, 10), (1, 80, 50)]),
        // The minimum comes before any band, but only as far as it is wanted.
        (100, &[(0, 20)], &[(9, 170, 80), (0, 500, 20)]),
        (100, &[(0, 20)], &[(9, 170, 95), (0, 5, 5)]),
        // A guarantee is a minimum, not a maximum.
        (100, &[(0, 20)], &[(9, 30, 30), (0, 500, 70)]),
        // Less than is guaranteed, as in a pool: the highest first.
        (30, &[(0, 20), (5, 20)], &[(5, 50, 20), (0, 50, 10)]),
    ];
    for (capacity, minimums, clients) in rows {
        let wanted = clients
            .iter()
            .map(|&(band, wants, _)| Vec::from([(band, wants * 1_000_000, 1)]));
        let wanted: Vec<Client> = wanted.collect();
        let (bands, places) = allocation(&wanted, Quantum::Micro);
        let minimums: Vec<_> = minimums.iter().map(|&(b, c)| (b, c * 1_000_000)).collect();
        let minimums = guaranteed(&minimums);
        let capacity = Capacity::from_whole(capacity);
        for (place, &(band, wants, gets)) in places.iter().zip(clients) {
            let share = bands.share(place, capacity, Algorithm::FairShare, &minimums);
            assert_eq!(
                share,
                Capacity::from_whole(gets),
                "{band}: {wants} of {capacity}"
            );
        }
    }
}

#[test]
fn a_client_may_change_its_bands() {
    let (mut bands, mut places) = allocation(
        &[Vec::from([(1, 60, 1)]), Vec::from([(1, 60, 1), (2, 10, 3)])],
        Quantum::Micro,
    );
    let share = |bands: &PriorityBands<usize>, place: &BandHandles<usize>| {
        let capacity = Capacity::from_micros(100);
        let none = Guarantees::default();
        bands
            .share(place, capacity, Algorithm::FairShare, &none)
            .as_micros()
    };
    assert_eq!(share(&bands, &places[0]), 45);
    assert_eq!(share(&bands, &places[1]), 55);
    assert_eq!((bands.subclients(), bands.sum_wants()), (5, 130));

    let demand = demand(&Vec::from([(7, 90, 1)]));
    bands.update(0, &mut places[0], &demand, Capacity::UNLIMITED);
    assert_eq!(share(&bands, &places[0]), 90);
    assert_eq!(share(&bands, &places[1]), 10, "its higher band");
    places.into_iter().for_each(|place| bands.remove(place));
    assert_eq!((bands.subclients(), bands.sum_wants()), (0, 0));
    assert!(bands.bands.is_empty(), "no band outlives its clients");
}

#[test]
fn static_counts_what_each_may_have() {
    let mut bands = PriorityBands::new(Quantum::Micro);
    let each = Capacity::from_micros(100);
    let one = bands.insert(1, &demand(&Vec::from([(0, 500, 1)])), each);
    let ten = bands.insert(2, &demand(&Vec::from([(0, 5000, 10)])), each);
    assert_eq!((one.wants(), ten.wants().as_micros()), (each, 1000));
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod laws {
    use proptest::prelude::*;

    use super::*;

    fn client(unit: u64) -> impl Strategy<Value = Client> {
        let band = (0..100_u64, 1..5_u32);
        let bands = prop::collection::btree_map(0..16_u8, band, 1..4);
        bands.prop_map(move |bands| {
            let bands = bands.into_iter();
            bands
                .map(|(priority, (wants, weight))| (priority, wants * unit, weight))
                .collect()
        })
    }

    fn check(clients: &[Client], minimums: &[(u8, u64)], capacity: u64, unit: u64) {
        let quantum = if unit == 1 {
            Quantum::Micro
        } else {
            Quantum::Whole
        };
        let (bands, places) = allocation(clients, quantum);
        let minimums = guaranteed(minimums);
        let mut wants = [0; 16];
        for &(priority, wanted, _) in clients.iter().flatten() {
            wants[usize::from(priority)] += wanted;
        }
        let gets = bands_get(&wants, &minimums, capacity);
        let whole = Capacity::from_micros(capacity);
        let mut sum = 0;
        for level in 0..16_u8 {
            // Each client's spot in this band, by itself.
            let spot = |place: &BandHandles<usize>| {
                let priority = Priority::new(level).unwrap();
                let spot = place.spots().find(|spot| spot.priority == priority)?;
                let share = bands.band_share(priority, whole, &minimums);
                let gets = bands.band(priority)?.fair.share(&spot.handle, share);
                let wants = spot.handle.wants().as_micros() / unit;
                Some(((wants, spot.handle.weight().get()), gets.as_micros() / unit))
            };
            let (wants, shares): (Vec<_>, Vec<_>) = places.iter().filter_map(spot).unzip();
            check_water_filling(&wants, gets[usize::from(level)] / unit, &shares);
            sum += shares.iter().sum::<u64>() * unit;
        }
        let share = |place| bands.share(place, whole, Algorithm::FairShare, &minimums);
        let shares: u64 = places.iter().map(|place| share(place).as_micros()).sum();
        assert_eq!(shares, sum);
    }

    proptest! {
        #[test]
        fn equals_water_filling_band_by_band(
            clients in prop::collection::vec(client(1), 1..12),
            minimums in prop::collection::vec((0..16_u8, 0..50_u64), 0..4),
            capacity in 0..1500_u64,
        ) {
            check(&clients, &minimums, capacity, 1);
        }

        #[test]
        fn whole_units_are_divided_whole(
            clients in prop::collection::vec(client(1_000_000), 1..12),
            minimums in prop::collection::vec((0..16_u8, 0..50_u64), 0..4),
            capacity in 0..1500_u64,
        ) {
            let minimums: Vec<_> = minimums.iter().map(|&(b, c)| (b, c * 1_000_000)).collect();
            check(&clients, &minimums, capacity * 1_000_000, 1_000_000);
        }

        #[test]
        fn what_is_spare_is_spread_over_all_bands(
            clients in prop::collection::vec(client(1), 1..12),
            spare in 0..10_000_u64,
        ) {
            let (bands, places) = allocation(&clients, Quantum::Micro);
            let spare = Capacity::from_micros(spare);
            let parts = places.iter().map(|place| bands.spare(place, spare).as_micros());
            let wanted = bands.sum_wants() > 0;
            prop_assert_eq!(parts.sum::<u64>(), if wanted { spare.as_micros() } else { 0 });
        }
    }
}
