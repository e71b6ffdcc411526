//! Time since when a client has got less than it wants.

use core::time::Duration;

use crate::units::Instant;

/// Time of the refresh since which a client has got less than it wants at each one.
///
/// In nanoseconds since the clock's epoch, and signed: a snapshot may tell of a time before this
/// coordinator started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottledSince(i64);

// === impl ThrottledSince ===

impl ThrottledSince {
    pub(super) fn at(now: Instant) -> Self {
        Self(nanos(now))
    }

    /// A time that was `duration` before `now`.
    pub(super) fn ago(now: Instant, duration: Duration) -> Self {
        let duration = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self(nanos(now).saturating_sub(duration))
    }

    /// Time that has passed since then.
    pub fn elapsed(self, now: Instant) -> Duration {
        let nanos = nanos(now).saturating_sub(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
    }
}

// === free functions ===

fn nanos(instant: Instant) -> i64 {
    i64::try_from(instant.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_epoch_is_kept() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let ms = Duration::from_millis;
        let rows = [
            (at(50), ms(0), at(50), ms(0)),
            (at(50), ms(90_000), at(50), ms(90_000)),
            (at(50), ms(90_000), at(1050), ms(91_000)),
            // The clock of a test may go back.
            (at(50), ms(0), at(20), ms(0)),
            (
                at(0),
                Duration::MAX,
                at(0),
                Duration::from_nanos(i64::MAX as u64),
            ),
        ];
        for (restored_at, before, now, want) in rows {
            let since = ThrottledSince::ago(restored_at, before);
            assert_eq!(since.elapsed(now), want, "{before:?}");
        }
        let since = ThrottledSince::at(at(7));
        assert_eq!(since.elapsed(at(10)), ms(3));
    }
}
