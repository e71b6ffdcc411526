//! The laws of the lease protocol, for a lease server and clients that keep their half of it.
//!
//! A run is a list of steps, one at a time, without a network: messages lie in a bag, and steps say
//! which one arrives, arrives again, or is lost. Numbers are small on purpose (capacities of some
//! hundred millionths), so that roundings are as large as they can be.

use core::num::NonZeroU32;
use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use crate::lease::{Band, Priority, Unit};
use crate::limit::{Algorithm, Guarantees, Limit, Part};
use crate::share::Quantum;
use crate::units::Capacity;

mod check;
mod client;
mod step;
mod table;

use self::step::Step;
use self::table::{LEASE_MS_MAX, Shared, Table};

/// A limit of so many of the smallest parts of `unit`.
fn limit(unit: Unit, parts: u64) -> Limit {
    let micros = parts * Quantum::of(unit).micros();
    let mut limit = Limit::new(Capacity::from_micros(micros));
    limit.lease = Duration::from_millis(LEASE_MS_MAX);
    limit.learning = limit.lease;
    limit.refresh = Duration::from_millis(300);
    limit.min_refresh = Duration::from_millis(50);
    limit
}

/// Algorithms that leave nothing over when demand is stable, within two refreshes.
fn prompt_algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        3 => Just(Algorithm::FairShare),
        1 => Just(Algorithm::ProportionalShare)
    ]
}

/// Algorithms that keep the capacity.
fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        2 => prompt_algorithm(),
        1 => Just(Algorithm::UsageShare),
        1 => Just(Algorithm::MaxRate)
    ]
}

fn headroom() -> impl Strategy<Value = Part> {
    prop::sample::select(&[Part::NONE, Part::HALF, Part::ALL][..])
}

/// One resource alone, or up to three in a pool; what is shared is all of one headroom.
fn shared(algorithm: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Shared> {
    let member = (1..2000_u64, algorithm, 0..300_u64);
    let members = prop::collection::vec(member, 1..4);
    let unit = prop_oneof![3 => Just(Unit::Requests), 1 => Just(Unit::Concurrency)];
    let reserve = prop_oneof![2 => Just(0.0), 1 => Just(0.1)];
    let pool = prop::option::of(1..2000_u64);
    (members, pool, unit, headroom(), reserve).prop_map(
        |(members, pool, unit, headroom, reserve)| {
            let limit = |parts| Limit {
                headroom,
                reserve: Part::try_from_f64(reserve).unwrap(),
                ..limit(unit, parts)
            };
            let member = |(parts, algorithm, minimum): (u64, Algorithm, u64)| {
                let minimum = minimum.min(parts) * Quantum::of(unit).micros();
                let bands = Guarantees::default();
                Limit {
                    algorithm,
                    guaranteed: bands.with(Priority::LOWEST, Capacity::from_micros(minimum)),
                    ..limit(parts)
                }
            };
            let alone = usize::from(pool.is_none());
            let members = members.into_iter().map(member);
            Shared {
                limits: members.take(3 - 2 * alone).collect(),
                pool: pool.map(limit),
                unit,
            }
        },
    )
}

/// Wants of one client, of up to `most` parts; most clients are of one priority.
fn band(most: u64) -> impl Strategy<Value = Band> {
    let priorities = prop_oneof![4 => Just(0), 1 => 0..3_u8];
    (0..=most, priorities, 1..5_u32).prop_map(|(parts, priority, weight)| Band {
        priority: Priority::nearest(priority.into()),
        wants: Capacity::from_micros(parts),
        subclients: NonZeroU32::new(weight).unwrap(),
    })
}

/// Wants of each client.
fn bands(clients: usize) -> impl Strategy<Value = Vec<Band>> {
    let most = prop::sample::select(&[2000, 100, 3000, 60, 1_000_000_000][..]);
    most.prop_flat_map(move |most| prop::collection::vec(band(most), clients))
}

/// Messages of clients, their fate, and time.
fn message() -> impl Strategy<Value = Step> {
    let again = prop::bool::weighted(0.2);
    prop_oneof![
        4 => any::<usize>().prop_map(Step::Exchange),
        4 => any::<usize>().prop_map(Step::Ask),
        7 => (any::<usize>(), again).prop_map(|(mail, again)| Step::Deliver { mail, again }),
        2 => any::<usize>().prop_map(Step::Lose),
        3 => (0..60_u64).prop_map(Step::Wait),
        2 => (0..700_u64).prop_map(Step::Wait),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (number, parts) = (any::<usize>(), 0..2000_u64);
    let limit = (number, parts.clone(), 0..900_u64);
    prop_oneof![
        60 => message(),
        8 => (number, band(1500)).prop_map(|(client, band)| Step::Want(client, band)),
        2 => number.prop_map(Step::Release),
        1 => (number, any::<bool>()).prop_map(|(client, keeps_id)| Step::Crash { client, keeps_id }),
        1 => Just(Step::Restart),
        1 => (0..100_000_u64).prop_map(|offset_ms| Step::HandOver { offset_ms }),
        2 => limit.prop_map(|(member, parts, shorter_ms)| Step::Limit { member, parts, shorter_ms }),
        1 => parts.prop_map(Step::PoolLimit),
        1 => (number, 1..5_u32).prop_map(|(member, weight)| Step::Move { member, weight }),
    ]
}

proptest! {
    /// Laws 1 and 2, which the table checks at every step, whatever is lost, doubled, late, out of
    /// order, restarted or reconfigured; a master that takes over answers as the one before would.
    /// And then all heals within the time to learn and one lease (laws 3 and 4).
    #[test]
    fn troubles_break_no_law_and_leave_no_trace(
        (shared, start) in (1..7_usize).prop_flat_map(|n| (shared(algorithm()), bands(n))),
        steps in prop::collection::vec(step(), 0..500),
    ) {
        let limit = shared.limits[0].clone();
        let mut table = Table::new(shared, &start);
        for step in &steps {
            table.take(step);
        }
        table.calm_down();
        table.run(limit.learning + limit.lease + settled_after(&limit, 4));
        table.check_shares();
    }

    /// Laws 3 and 4: once demand is stable, everybody has its max-min share, nothing is left over,
    /// and headroom is spread.
    #[test]
    fn stable_demand_settles_in_time(
        (shared, changes) in (1..30_usize).prop_flat_map(|n| {
            (shared(prompt_algorithm()), prop::collection::vec(bands(n), 5))
        }),
        starts in prop::collection::vec(0..100_u64, 0..30),
    ) {
        let limit = shared.limits[0].clone();
        let mut table = Table::new(shared, &changes[0]);
        for (client, wait_ms) in starts.into_iter().enumerate() {
            table.take(&Step::Exchange(client));
            table.take(&Step::Wait(wait_ms));
        }
        for bands in &changes {
            table.want(bands);
            table.run(settled_after(&limit, 2));
            table.check_shares_roughly();
            // Nobody hurries for the last hundredth, nor for headroom.
            table.run(2 * limit.refresh);
            table.check_shares();
            // And then nobody is kept busy for nothing.
            table.run(limit.refresh);
            table.check_at_rest();
        }
    }
}

/// Within one refresh interval everybody has said what it wants, and within another one
/// everybody has been told what to give back. That takes a short one to be acknowledged, and one
/// more for those to return who wait for it.
fn settled_after(limit: &Limit, intervals: u32) -> Duration {
    intervals * limit.refresh + 2 * limit.min_refresh
}
