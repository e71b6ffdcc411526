//! The laws of the lease protocol, for a lease server and clients that only messages connect.
//!
//! Numbers are small on purpose (capacities of some hundred millionths), so that roundings are as
//! large as they can be. A failure names its seed; the seed is the whole run.

use core::time::Duration;

use proptest::prelude::*;

use std::vec::Vec;

use crate::lease::{Priority, Unit};
use crate::limit::{Algorithm, Guarantees, Limit, Part};
use crate::share::Quantum;
use crate::units::Capacity;

mod fleet;

use fleet::{Faults, Fleet, LEASE_MS_MAX, Shared};

/// A limit of so many of the smallest parts of `unit`.
fn limit(unit: Unit, parts: u64, headroom: Part) -> Limit {
    let micros = parts * Quantum::of(unit).micros();
    let mut limit = Limit::new(Capacity::from_micros(micros));
    limit.lease = Duration::from_millis(LEASE_MS_MAX);
    limit.learning = limit.lease;
    limit.refresh = Duration::from_millis(300);
    limit.min_refresh = Duration::from_millis(50);
    limit.headroom = headroom;
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

/// One resource alone, or up to three in a pool; what the fleet shares is all of one headroom.
fn shared(algorithm: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Shared> {
    let member = (1..2000_u64, algorithm, 0..300_u64);
    let members = prop::collection::vec(member, 1..4);
    let unit = prop_oneof![3 => Just(Unit::Requests), 1 => Just(Unit::Concurrency)];
    let reserve = prop_oneof![2 => Just(0.0), 1 => Just(0.1)];
    let pool = prop::option::of(1..2000_u64);
    (members, pool, unit, headroom(), reserve).prop_map(
        |(members, pool, unit, headroom, reserve)| {
            let limit = |parts| {
                let mut limit = limit(unit, parts, headroom);
                limit.reserve = Part::try_from_f64(reserve).unwrap();
                limit
            };
            let member = |(parts, algorithm, minimum): (u64, Algorithm, u64)| {
                let mut limit = limit(parts);
                limit.algorithm = algorithm;
                let minimum = minimum.min(parts) * Quantum::of(unit).micros();
                let bands = Guarantees::default();
                limit.guaranteed = bands.with(Priority::LOWEST, Capacity::from_micros(minimum));
                limit
            };
            let members: Vec<_> = members.into_iter().map(member).collect();
            let alone = usize::from(pool.is_none());
            Shared {
                limits: members.into_iter().take(3 - 2 * alone).collect(),
                pool: pool.map(limit),
                unit,
            }
        },
    )
}

fn headroom() -> impl Strategy<Value = Part> {
    prop::sample::select(&[Part::NONE, Part::HALF, Part::ALL][..])
}

fn faults() -> impl Strategy<Value = Faults> {
    let percent = |most| prop_oneof![Just(0), 1..=most];
    let messages = (percent(60_u64), percent(30), 0..800_u64);
    // Two restarts while a lease lasts, after a new limit, are rare enough; so some fleets have many.
    let often = || prop_oneof![3 => percent(2), 1 => percent(15)];
    let others = (percent(2), often(), often(), percent(30), often());
    (messages, others).prop_map(|(messages, others)| Faults {
        lost: messages.0,
        twice: messages.1,
        late_ms_max: messages.2,
        crash: others.0,
        restart: others.1,
        new_limit: others.2,
        whim: others.3,
        hand_over: others.4,
    })
}

proptest! {
    /// Laws 1 and 2, which the fleet checks at every step: whatever is lost, doubled, late, out of
    /// order, restarted or reconfigured.
    #[test]
    fn nothing_that_happens_makes_the_fleet_use_more_than_the_capacity(
        seed: u64,
        clients in 1..7_usize,
        shared in shared(algorithm()),
        faults in faults(),
    ) {
        let mut fleet = Fleet::new(seed, clients, shared, faults);
        for step in 0..2000 {
            if step % 100 == 0 {
                fleet.change_demand(1500);
            }
            fleet.step();
        }
    }

    /// A fleet whose masters hand over is answered exactly as one that keeps its master.
    #[test]
    fn nobody_notices_a_hand_over(
        seed: u64,
        clients in 1..7_usize,
        shared in shared(algorithm()),
        faults in faults(),
        hand_over in 1..30_u64,
    ) {
        // Of two answers to one request the one of an earlier master is dropped, if it comes last.
        let keeping = Faults { twice: 0, hand_over: 0, ..faults };
        let handing = Faults { hand_over, ..keeping };
        let mut fleets = [keeping, handing]
            .map(|faults| Fleet::new(seed, clients, shared.clone(), faults));
        for step in 0..1000 {
            for fleet in &mut fleets {
                if step % 100 == 0 {
                    fleet.change_demand(1500);
                }
                fleet.step();
            }
        }
        let [kept, handed] = fleets.map(|fleet| fleet.answers);
        prop_assert_eq!(kept, handed);
    }

    /// Laws 3 and 4: once demand is stable and the network behaves, everybody has its max-min
    /// share, nothing is left over, and headroom is spread.
    #[test]
    fn stable_demand_settles_in_time(
        seed: u64,
        clients in 1..30_usize,
        shared in shared(prompt_algorithm()),
    ) {
        let limit = shared.limits[0].clone();
        let mut fleet = Fleet::new(seed, clients, shared, Faults::NONE);
        for most in [2000, 100, 3000, 60, 1_000_000_000] {
            fleet.change_demand(most);
            fleet.run(settled_after(&limit, 2));
            fleet.check_shares_roughly();
            // Nobody hurries for the last hundredth, nor for headroom.
            fleet.run(2 * (limit.refresh + ROUND_TRIP));
            fleet.check_shares();
            fleet.check_headroom();
            // And then nobody is kept busy for nothing.
            fleet.run(limit.refresh + ROUND_TRIP);
            fleet.check_at_rest();
        }
    }

    /// The same after anything has gone wrong: it heals within the time to learn and one lease.
    #[test]
    fn troubles_leave_no_trace(
        seed: u64,
        clients in 1..7_usize,
        shared in shared(prompt_algorithm()),
        faults in faults(),
    ) {
        let limit = shared.limits[0].clone();
        let mut fleet = Fleet::new(seed, clients, shared, faults);
        for _ in 0..500 {
            fleet.step();
        }
        fleet.faults = Faults::NONE;
        fleet.change_demand(1500);
        fleet.run(limit.learning + limit.lease + settled_after(&limit, 4));
        fleet.check_shares();
        fleet.check_headroom();
    }
}

/// The longest way to an answer and back without faults.
const ROUND_TRIP: Duration = Duration::from_millis(2 * Faults::NONE.late_ms_max);

/// Within one refresh interval everybody has said what it wants, and within another one
/// everybody has been told what to give back. That takes a short one to be acknowledged, and one
/// more for those to return who wait for it.
fn settled_after(limit: &Limit, intervals: u32) -> Duration {
    let short = limit.min_refresh + ROUND_TRIP;
    intervals * (limit.refresh + ROUND_TRIP) + 2 * short
}
