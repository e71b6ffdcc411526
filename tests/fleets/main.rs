//! Fleets that are made from seeds and played by the simulator, and the laws that they keep.
//!
//! A seed becomes a [`Plan`](plan::Plan): a scenario of `tollgate_sim`, as `tollgate simulate` plays
//! it, and the limits that it names. After each event of its simulation every law of `laws/` is
//! checked. A run that fails prints its seed.

mod fleet;
mod laws;
mod plan;
mod seeds;

use std::ops::Range;

use tollgate_sim::defect::Defect;

use self::plan::Plan;

/// Seeds of a plain run.
const SEEDS: Range<u64> = 0..400;
/// Seeds in which a planted defect has to be found.
const SEEDS_OF_DEFECTS: Range<u64> = 0..200;

#[test]
fn the_laws_hold_for_requests() {
    seeds::the_laws_hold(SEEDS, Plan::of_requests);
}

#[test]
fn tokens_that_two_workers_draw_are_found() {
    seeds::assert_found(
        SEEDS_OF_DEFECTS,
        Plan::of_requests,
        Defect::StaleRead,
        "law 6",
    );
}

#[test]
fn a_lost_compare_and_swap_is_found() {
    seeds::assert_found(
        SEEDS_OF_DEFECTS,
        Plan::of_requests,
        Defect::LostCompare,
        "law 6",
    );
}

#[test]
fn a_lease_used_past_its_expiry_is_found() {
    seeds::assert_found(
        SEEDS_OF_DEFECTS,
        Plan::of_requests,
        Defect::LateExpiry,
        "law 1",
    );
}
