//! The monotonic clock, as nanoseconds that all workers of a process agree on.
//!
//! Records in shared data carry instants that other VMs read, so an instant must mean the same
//! everywhere. The host's clock does, but `std` hides its number: an [`std::time::Instant`] can
//! only be compared with another. So the clock's zero is found once per VM, by taking as much from
//! an instant as it allows.

use core::time::Duration;
use std::time::Instant as StdInstant;

use tollgate_core::units::Instant;

thread_local! {
    static ZERO: StdInstant = zero(read());
}

/// Now, in nanoseconds since the host's own zero.
pub fn now() -> Instant {
    let since = ZERO.with(|zero| read().saturating_duration_since(*zero));
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "the filter's only clock")]
fn read() -> StdInstant {
    StdInstant::now()
}

/// The host's zero, found from any instant: the earliest one that the platform can represent, or
/// what lies 2^63 seconds after that where seconds are signed.
fn zero(now: StdInstant) -> StdInstant {
    let seconds = (0..64).rev().map(|bit| Duration::from_secs(1 << bit));
    let nanos = (0..30).rev().map(|bit| Duration::from_nanos(1 << bit));
    let earliest = seconds.chain(nanos).fold(now, |earliest, step| {
        earliest.checked_sub(step).unwrap_or(earliest)
    });
    let signed = earliest.checked_add(Duration::from_secs(1 << 63));
    signed.filter(|zero| *zero <= now).unwrap_or(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_one_zero_and_does_not_go_back() {
        let first = now();
        assert!(now() >= first);
        assert!(first > Instant::ZERO);
    }

    #[test]
    fn whoever_looks_finds_the_same_zero() {
        let (early, late) = (
            read(),
            read().checked_add(Duration::from_nanos(1_234_567_890)),
        );
        assert_eq!(zero(early), zero(late.unwrap()));
        // A host's clock counts from its boot, not from the beginning of what can be counted.
        assert!(now() < Instant::from_nanos(u64::MAX / 4));
    }
}
