//! Seeds of random tests, which the environment chooses.

use std::env;
use std::ops::Range;

/// Returns the seed in `TOLLGATE_SEED` alone, else those in `TOLLGATE_SEEDS`, written `30` or `10..30`,
/// else `default`.
///
/// # Panics
/// When a variable says anything else.
pub fn chosen(default: Range<u64>) -> Range<u64> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let number = |text: &str| -> u64 { text.parse().expect("a whole number of seeds") };
    match (variable("TOLLGATE_SEED"), variable("TOLLGATE_SEEDS")) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some(seeds)) => match seeds.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&seeds),
        },
        (None, None) => default,
    }
}
