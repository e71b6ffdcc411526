//! Wait after calls that failed.

use core::time::Duration;

use crate::hash::mixed;

const FIRST_MS: u64 = 100;
/// Five doublings of [`FIRST_MS`]: 3.2 s, so that a coordinator that returns is found within
/// seconds and a fleet of thousands does not knock it over again.
const DOUBLINGS_MAX: u32 = 5;

/// The wait after `failures` failures in a row, with `left` of the lease, if there is one: it
/// doubles, and `seed` takes up to half of it off, so that clients that failed together do not
/// return together.
///
/// No wait is longer than a quarter of the time that is left, or the first one: a lease that is not
/// renewed in time is a loss, and a client that comes back after it learns that its part is not
/// known any more. For a lease of ten seconds that is some twenty to forty calls.
pub(super) fn backoff(failures: u8, left: Option<Duration>, seed: u64) -> Duration {
    let doublings = u32::from(failures).saturating_sub(1).min(DOUBLINGS_MAX);
    let first_us = FIRST_MS.saturating_mul(1000);
    let doubled_us = first_us.checked_shl(doublings).unwrap_or(0);
    let left_us = left.and_then(|left| u64::try_from(left.as_micros()).ok());
    let quarter_us = left_us.map_or(u64::MAX, |left_us| left_us / 4);
    let whole_us = doubled_us.min(quarter_us.max(first_us));
    let jitter_us = mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let jitter_us = jitter_us.checked_rem(whole_us / 2).unwrap_or(0);
    Duration::from_micros(whole_us.saturating_sub(jitter_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_bound_and_differs_by_seed() {
        for (failures, whole_ms) in [(0, 100), (1, 100), (2, 200), (6, 3200), (255, 3200)] {
            for seed in 0..1000 {
                let wait = backoff(failures, None, seed);
                let whole = Duration::from_millis(whole_ms);
                assert!(
                    wait <= whole && wait > whole / 2,
                    "{failures} {seed} {wait:?}"
                );
            }
        }
        let waits = (0..100).map(|seed| backoff(3, None, seed));
        let distinct: std::collections::BTreeSet<_> = waits.collect();
        assert!(distinct.len() > 90);
    }
    #[test]
    fn a_lease_that_ends_soon_is_asked_for_sooner() {
        // Failures, what is left of the lease, and the longest wait, in milliseconds.
        let rows = [
            (1, 10_000, 100),
            (6, 20_000, 3200),
            (6, 10_000, 2500),
            (255, 2000, 500),
            (255, 10, 100),
            (255, 0, 100),
        ];
        for (failures, left_ms, whole_ms) in rows {
            let left = Some(Duration::from_millis(left_ms));
            let whole = Duration::from_millis(whole_ms);
            for seed in 0..1000 {
                let wait = backoff(failures, left, seed);
                assert!(wait <= whole && wait > whole / 2, "{failures} {left_ms}");
            }
        }
    }
}
