//! Laws 1, 3, 4 and 5 for trees of coordinators: two and three levels, over a network that loses,
//! delays and reorders, with coordinators that are away or start again.

use core::time::Duration;
use std::collections::BTreeMap;

use tollgate_core::lease::Unit;
use tollgate_core::limit::{Limit, Part};
use tollgate_core::units::Capacity;

use self::world::{Faults, World};
use super::Verdict;
use super::random::Random;

mod place;
mod world;

/// With losses, delays, absences and lowered limits, all clients below the root never have more
/// than its capacity, but for one lease after it was lowered; and no lease outlives the one it was
/// lent out of.
pub(crate) fn leaves_never_use_more_than_the_root_has(seed: u64) -> Verdict {
    let mut world = World::new(seed);
    world.faults = Faults::of(seed);
    for _ in 0..150 {
        world.shake();
        let time = Duration::from_millis(world.random.spread(1000));
        world.run(time)?;
    }
    Ok(())
}

/// When demand stands still and nothing fails, all have what they want or the root's capacity is
/// lent to the last millionth, and at every level it is divided by max-min.
pub(crate) fn a_tree_settles_at_the_max_min_shares(seed: u64) -> Verdict {
    let mut world = World::new(seed);
    world.faults = Faults::of(seed);
    for _ in 0..20 {
        world.shake();
        let time = Duration::from_millis(world.random.spread(1000));
        world.run(time)?;
    }
    world.heal();
    world.run(world.limit.lease * 3)?;
    world.check_settled()
}

/// If all below each child of the root want the same, they get what they would get without a tree.
pub(crate) fn a_tree_divides_as_one_coordinator_would(seed: u64) -> Verdict {
    let mut world = World::new(seed);
    world.want_the_same_in_each_branch();
    world.run(world.limit.lease * 3)?;
    world.check_flat()
}

/// Shares by max-min of `capacity` between those who want so much at such a weight, each within one
/// millionth for each of them.
fn water_fill(capacity: u128, needs: &[(u128, u128)]) -> Vec<u128> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    // A client without weight wants nothing.
    let level = |i: usize, j: usize| needs[i].0 * needs[j].1.max(1);
    order.sort_by(|a, b| level(*a, *b).cmp(&level(*b, *a)));
    let mut shares = vec![0; needs.len()];
    let mut left = capacity;
    let mut weights: u128 = needs.iter().map(|(_, weight)| weight).sum();
    for i in order {
        let (wants, weight) = needs[i];
        shares[i] = wants.min(left * weight / weights.max(1));
        left -= shares[i];
        weights -= weight;
    }
    shares
}

fn limit(random: &mut Random) -> Limit {
    let mut limit = Limit::new(Capacity::from_whole(random.spread(10_000) + 20));
    limit.lease = Duration::from_millis(random.below(3000) + 1000);
    limit.learning = limit.lease;
    limit.refresh = limit.lease / 4;
    limit.min_refresh = Duration::from_millis(50);
    limit.headroom = [Part::NONE, Part::HALF][random.below(2) as usize];
    limit
}

/// The sum over `amounts`, by key.
fn sums<K: Ord>(amounts: impl Iterator<Item = (K, u128)>) -> BTreeMap<K, u128> {
    let mut sums = BTreeMap::new();
    for (key, amount) in amounts {
        *sums.entry(key).or_default() += amount;
    }
    sums
}

fn unit(random: &mut Random) -> Unit {
    [Unit::Requests, Unit::Concurrency][random.below(2) as usize]
}
