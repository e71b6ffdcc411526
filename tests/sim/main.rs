//! Fleets that are made from seeds and played by the simulator, and the laws that they keep.
//!
//! A seed becomes a [`Plan`](plan::Plan): a scenario of `tollgate_sim`, as `tollgate simulate` plays
//! it, and the limits that it names. After each event of its simulation every law of `laws/` is
//! checked. A run that fails prints its seed.

mod borrowing;
mod coverage;
mod file;
mod fleet;
mod history;
mod laws;
mod limits;
mod plan;
mod seeds;
mod soak;

use std::ops::Range;

use tollgate_sim::defect::Defect;

use self::coverage::Coverage;
use self::fleet::Fleet;
use self::plan::Plan;

/// Seeds of a plain run.
const SEEDS: Range<u64> = 0..400;
/// Seeds of runs where bytes or requests in flight are counted, or requests wait in queues.
const SEEDS_OF_OTHER_UNITS: Range<u64> = 0..200;
/// Seeds of runs where shares depend on what processes use.
const SEEDS_OF_USAGE: Range<u64> = 0..100;
/// Seeds of runs with quotas.
const SEEDS_OF_QUOTAS: Range<u64> = 0..50;
/// Seeds of trees of coordinators, with processes that count all units.
const SEEDS_OF_TREES: Range<u64> = 0..150;
/// Seeds of trees where shares depend on what processes use.
const SEEDS_OF_USAGE_IN_TREES: Range<u64> = 0..50;
/// Seeds in which a planted defect has to be found.
const SEEDS_OF_DEFECTS: Range<u64> = 0..200;
/// Seeds among which is one in which masters that do not look at their terms lend capacity that is
/// already lent. Few do; they begin shortly before one that does.
const SEEDS_WITHOUT_TERMS: Range<u64> = 330..2000;

#[test]
fn the_laws_hold_for_requests() {
    seeds::the_laws_hold(SEEDS, Plan::of_requests, Coverage::missing_in_clusters);
}

#[test]
fn the_laws_hold_for_other_units() {
    seeds::the_laws_hold(
        SEEDS_OF_OTHER_UNITS,
        Plan::of_other_units,
        Coverage::missing_of_other_units,
    );
}

#[test]
fn the_laws_hold_for_shares_by_usage() {
    seeds::the_laws_hold(SEEDS_OF_USAGE, Plan::of_usage, |_| Vec::new());
}

#[test]
fn the_laws_hold_for_quotas() {
    seeds::the_laws_hold(SEEDS_OF_QUOTAS, Plan::of_quotas, |_| Vec::new());
}

#[test]
fn the_laws_hold_in_trees() {
    seeds::the_laws_hold(SEEDS_OF_TREES, Plan::of_trees, Coverage::missing_in_trees);
}

#[test]
fn the_laws_hold_in_trees_for_shares_by_usage() {
    seeds::the_laws_hold(SEEDS_OF_USAGE_IN_TREES, Plan::of_usage_in_trees, |_| {
        Vec::new()
    });
}

/// Expands to tests in each of which a law finds a planted defect.
macro_rules! found {
    ($($test:ident: $defect:ident by $law:literal in $seeds:ident of $plan:ident;)+) => {
        $(
            #[test]
            fn $test() {
                seeds::assert_found($seeds, Plan::$plan, Defect::$defect, $law);
            }
        )+
    };
}

found! {
    tokens_that_two_workers_draw_are_found: StaleRead by "law 6" in SEEDS_OF_DEFECTS of of_requests;
    a_lost_compare_and_swap_is_found: LostCompare by "law 6" in SEEDS_OF_DEFECTS of of_requests;
    a_lease_used_past_its_expiry_is_found: LateExpiry by "law 1" in SEEDS_OF_DEFECTS of of_requests;
    a_master_that_outlives_its_term_is_found:
        WithoutTerms by "law 1" in SEEDS_WITHOUT_TERMS of of_requests;
    capacity_that_is_left_over_is_found: HalfCapacity by "law 3" in SEEDS_OF_DEFECTS of of_requests;
    shares_that_are_not_max_min_are_found:
        Proportional by "law 4" in SEEDS_OF_DEFECTS of of_requests;
    a_lease_that_outlasts_what_is_borrowed_is_found:
        LateExpiry by "law 5" in SEEDS_OF_DEFECTS of of_trees;
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        for make in [Plan::of_requests, Plan::of_trees] {
            let digest = |fleet: Fleet| fleet.simulation.digest();
            let digests = [(); 2].map(|()| seeds::run(seed, make).map(digest));
            assert_eq!(digests[0], digests[1], "seed {seed}");
        }
    }
}
