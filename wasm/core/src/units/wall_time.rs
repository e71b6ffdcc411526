//! Time by the wall clock, which people set: it may stand, or go back.

use core::time::Duration;

use super::Instant;

/// A point in time by the wall clock: milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

/// The wall clock beside the monotonic one, as it was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    read_at: Instant,
    time: WallTime,
}

// === impl WallTime ===

impl WallTime {
    /// So many milliseconds since 1970.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time `duration` later, or the last one that can be represented.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The time `duration` earlier, or 1970.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// The time since `earlier`; zero if that is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

// === impl WallClock ===

impl WallClock {
    /// A wall clock that shows `time` at `read_at`.
    pub const fn new(read_at: Instant, time: WallTime) -> Self {
        Self { read_at, time }
    }

    /// The instant at which it was read.
    pub const fn read_at(self) -> Instant {
        self.read_at
    }

    /// Time that it shows at `now`.
    pub fn time(self, now: Instant) -> WallTime {
        self.time.saturating_add(now.saturating_since(self.read_at))
    }

    /// The instant at which it will show `time`; the one at which it was read if it has.
    pub fn instant(self, time: WallTime) -> Instant {
        self.read_at
            .saturating_add(time.saturating_since(self.time))
    }
}

// === free functions ===

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
