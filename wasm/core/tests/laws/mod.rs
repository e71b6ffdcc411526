//! The project's laws as plain functions of a seed, so that they run wherever the core does: under
//! libtest natively and in WASI, under wasm-bindgen in a JavaScript VM.

pub(crate) mod bucket;
pub(crate) mod crash_loop;
pub(crate) mod fair_share;
pub(crate) mod learning;
pub(crate) mod lease_server;
pub(crate) mod random;
pub(crate) mod rate_limiter;
pub(crate) mod slow;
pub(crate) mod tree;
pub(crate) mod wait_queue;

/// Verdict of a law on one seed: nothing, or how it was broken.
pub(crate) type Verdict = Result<(), String>;

/// Fails the law with a message unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// Expands to one test per law, each over so many seeds.
macro_rules! each_law {
    ($test:meta, $seeds:expr) => {
        laws::each_law! { @ $test, $seeds,
            bucket::equals_its_definition,
            bucket::never_admits_more_than_burst_and_rate,
            bucket::shares_that_change_mint_nothing,
            bucket::denied_exactly_until_retry_at,
            bucket::any_cut_of_time_earns_the_same,
            crash_loop::a_client_that_crashes_takes_nobodys_share,
            fair_share::equals_water_filling,
            fair_share::does_not_depend_on_the_order,
            lease_server::settles_at_the_max_min_shares,
            lease_server::learns_what_clients_have,
            rate_limiter::falls_back_to_the_safe_capacity,
            rate_limiter::ignores_an_earlier_master,
            learning::a_liar_takes_nobodys_lease,
            slow::little_demand_is_served,
            slow::little_demand_is_not_starved_at_its_limit,
            tree::a_tree_settles_at_the_max_min_shares,
            tree::a_tree_divides_as_one_coordinator_would,
            wait_queue::shares_the_tokens,
            wait_queue::estimates_are_true,
        }
    };
    (@ $test:meta, $seeds:expr, $($module:ident::$law:ident,)+) => {
        $(
            #[$test]
            fn $law() {
                laws::hold(stringify!($law), $seeds, laws::$module::$law);
            }
        )+
    };
}
pub(crate) use each_law;

/// Checks `law` for every seed below `seeds`; a broken one is named with its seed.
pub(crate) fn hold(name: &str, seeds: u64, law: fn(u64) -> Verdict) {
    for seed in 0..seeds {
        if let Err(how) = law(seed) {
            panic!("{name}, seed {seed}: {how}");
        }
    }
}
