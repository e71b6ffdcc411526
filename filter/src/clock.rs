//! The monotonic clock, as nanoseconds that all workers of a process agree on.
//!
//! Records in shared data carry instants that other VMs read, so an instant must mean the same
//! everywhere. The host's clock does, but `std` hides its number: an [`std::time::Instant`] can
//! only be compared with another. So the clock's zero is found once per VM, as the longest duration
//! that can be taken from now.

use core::time::Duration;
use std::time::Instant as StdInstant;

use tollgate_core::units::Instant;

thread_local! {
    static ZERO: StdInstant = zero(read());
}

/// Now, in nanoseconds since the host's own zero.
pub(crate) fn now() -> Instant {
    let since = ZERO.with(|zero| read().saturating_duration_since(*zero));
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "the filter's only clock")]
fn read() -> StdInstant {
    StdInstant::now()
}

/// The earliest instant that the platform can represent, up to 2^63 ns before `now`.
///
/// On WASI that is the host's zero: its instants are unsigned. Elsewhere it is an arbitrary point,
/// good enough for a test of this process alone.
fn zero(now: StdInstant) -> StdInstant {
    let mut zero = now;
    for bit in (0..63).rev() {
        if let Some(earlier) = zero.checked_sub(Duration::from_nanos(1 << bit)) {
            zero = earlier;
        }
    }
    zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_one_zero_and_does_not_go_back() {
        let first = now();
        assert!(now() >= first);
        assert!(first > Instant::ZERO);
        if cfg!(target_os = "wasi") {
            assert_eq!(ZERO.with(|z| z.checked_sub(Duration::from_nanos(1))), None);
        }
    }
}
