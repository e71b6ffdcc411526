//! Law 4 for one division, against a brute-force water-filling.

use core::num::NonZeroU32;

use tollgate_core::share::FairShare;
use tollgate_core::units::Capacity;

use super::random::Random;
use super::{Verdict, ensure};

/// One client: what it wants in millionths, and its weight.
pub(crate) type Client = (u64, u32);

/// Due of each client, rounded down: satisfies each that wants no more than an equal part (by
/// weight) of the rest, until there is none; the others share the rest then.
pub(crate) fn water_filling(clients: &[Client], capacity: u64) -> Vec<u64> {
    let mut due = vec![None; clients.len()];
    let (mut left, mut width) = (u128::from(capacity), 0_u128);
    width += clients.iter().map(|(_, w)| u128::from(*w)).sum::<u128>();
    loop {
        let (level, weights) = (left, width);
        let mut found = false;
        for (due, (wants, weight)) in due.iter_mut().zip(clients) {
            let (tall, wide) = (u128::from(*wants), u128::from(*weight));
            if due.is_none() && tall * weights <= level * wide {
                *due = Some(*wants);
                (left, width, found) = (left - tall, width - wide, true);
            }
        }
        if !found {
            break;
        }
    }
    let part = |(due, (_, weight)): (Option<u64>, &Client)| {
        due.unwrap_or_else(|| (left * u128::from(*weight) / width) as u64)
    };
    due.into_iter().zip(clients).map(part).collect()
}

/// Checks that `gets` is the max-min division: each within a millionth of the water-filling, no more than
/// is wanted, and nothing left over.
pub(crate) fn check(clients: &[Client], capacity: u64, gets: &[u64]) -> Verdict {
    for ((got, due), client) in gets
        .iter()
        .zip(water_filling(clients, capacity))
        .zip(clients)
    {
        ensure!(*got <= client.0, "{client:?} gets {got}");
        ensure!(
            got.abs_diff(due) <= 1,
            "{client:?} gets {got}, is due {due}"
        );
    }
    let wanted: u128 = clients.iter().map(|(wants, _)| u128::from(*wants)).sum();
    let sum: u128 = gets.iter().map(|got| u128::from(*got)).sum();
    let want = wanted.min(u128::from(capacity));
    ensure!(sum == want, "{sum} handed out, should be {want}");
    Ok(())
}

fn clients(random: &mut Random) -> Vec<Client> {
    let count = random.spread(300);
    let most = random.spread(Capacity::MAX.as_micros()) + 2;
    let weights = random.spread(1 << 20) + 1;
    (0..count)
        .map(|_| (random.spread(most), random.below(weights) as u32 + 1))
        .collect()
}

fn capacity(random: &mut Random, clients: &[Client]) -> u64 {
    let wanted: u128 = clients.iter().map(|(wants, _)| u128::from(*wants)).sum();
    let part = wanted * u128::from(random.below(1200)) / 1000;
    u64::try_from(part).map_or(Capacity::MAX.as_micros(), |part| {
        part.min(Capacity::MAX.as_micros())
    })
}

/// The shares by client, whatever `order` they came in.
fn shares(clients: &[Client], order: &[usize], capacity: u64) -> Vec<u64> {
    let mut fair = FairShare::new();
    let mut handles = Vec::new();
    for index in order {
        let (wants, weight) = clients[*index];
        let weight = NonZeroU32::new(weight).expect("weights start at 1");
        let handle = fair.insert(*index, Capacity::from_micros(wants), weight);
        handles.push((*index, handle));
    }
    let mut gets = vec![0; clients.len()];
    for (index, handle) in &handles {
        gets[*index] = fair
            .share(handle, Capacity::from_micros(capacity))
            .as_micros();
    }
    gets
}

// === laws ===

/// The tree finds what the definition says.
pub(crate) fn equals_water_filling(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let clients = clients(&mut random);
    let capacity = capacity(&mut random, &clients);
    let order: Vec<_> = (0..clients.len()).collect();
    check(&clients, capacity, &shares(&clients, &order, capacity))
}

/// The first client gets no more for it.
pub(crate) fn does_not_depend_on_the_order(seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    let clients = clients(&mut random);
    let capacity = capacity(&mut random, &clients);
    let mut order: Vec<_> = (0..clients.len()).collect();
    let first = shares(&clients, &order, capacity);
    random.shuffle(&mut order);
    let second = shares(&clients, &order, capacity);
    ensure!(first == second, "{first:?} became {second:?}");
    Ok(())
}
