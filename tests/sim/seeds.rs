//! Runs of many seeds.

use std::ops::Range;

use tollgate_sim::defect::Defect;

use crate::coverage::Coverage;
use crate::fleet::Fleet;
use crate::plan::Plan;

/// The most failed seeds that are named.
const HEADS_MAX: usize = 30;

/// Runs the fleet that `make` makes of `seed`.
pub(crate) fn run(seed: u64, make: fn(u64) -> Plan) -> Result<Fleet, String> {
    let mut fleet = Fleet::new(make(seed), None);
    match fleet.run() {
        Ok(()) => Ok(fleet),
        Err(broken) => Err(format!(
            "seed {seed} at {:?}: {broken}\n{}\nreplay with: just sim {seed}",
            fleet.simulation.elapsed(),
            fleet.plan,
        )),
    }
}

/// Runs all `seeds`, or those that the environment names. All of them together leave nothing
/// `missing`.
pub(crate) fn the_laws_hold(
    all: Range<u64>,
    make: fn(u64) -> Plan,
    missing: fn(&Coverage) -> Vec<String>,
) {
    let (seeds, verbose) = named(all.clone());
    let mut coverage = Coverage::default();
    let mut broken = Vec::new();
    for seed in seeds.clone() {
        match run(seed, make) {
            Ok(fleet) => {
                coverage.add(&fleet);
                if verbose {
                    eprintln!("{}# events: {}", fleet.plan, fleet.simulation.events());
                }
            }
            Err(how) => broken.push((seed, how)),
        }
    }
    let heads = broken.iter().filter_map(|(_, how)| how.lines().next());
    let heads: String = heads
        .take(HEADS_MAX)
        .map(|head| format!("\n{head}"))
        .collect();
    if let Some((_, first)) = broken.first() {
        let count = broken.len();
        panic!("{count} of {seeds:?} failed:{heads}\nthe first so: {first}");
    }
    let missing = missing(&coverage);
    assert!(
        seeds != all || missing.is_empty(),
        "{seeds:?} leave {missing:?} untried: {coverage:?}"
    );
}

/// Checks that a seed finds a defect because it breaks `law`. Other seeds may find it by another
/// law: a write that is lost may be that of tokens or of a lease.
pub(crate) fn assert_found(seeds: Range<u64>, make: fn(u64) -> Plan, defect: Defect, law: &str) {
    let find = |seed| {
        let broken = Fleet::new(make(seed), Some(defect)).run().err()?;
        Some((seed, broken))
    };
    let by_law = seeds
        .filter_map(find)
        .find(|(_, broken)| broken.contains(law));
    let (seed, broken) = by_law.unwrap_or_else(|| panic!("no seed finds {defect:?} by {law}"));
    eprintln!("{defect:?} is found by seed {seed}: {broken}");
}

/// Returns the seed that `TOLLGATE_SEED` asks for, or as many as `TOLLGATE_SEEDS` says, as `30` or
/// `10..30`, else all `seeds`; and whether to print more.
fn named(seeds: Range<u64>) -> (Range<u64>, bool) {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let number = |text: &str| -> u64 { text.parse().expect("a whole number of seeds") };
    match (variable("TOLLGATE_SEED"), variable("TOLLGATE_SEEDS")) {
        (Some(seed), _) => (number(&seed)..number(&seed) + 1, true),
        (None, Some(seeds)) => match seeds.split_once("..") {
            Some((from, to)) => (number(from)..number(to), false),
            None => (0..number(&seeds), false),
        },
        (None, None) => (seeds, false),
    }
}
