//! Time of the simulated world, by its clock and by the wall's.

use std::time::Duration;

use tollgate_core::units::{Instant, WallTime};

/// First instant of the world: no time is zero.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);

/// Time of the wall clock so long after the start: it begins with the year 2026, on a Thursday.
pub(crate) fn wall_time(elapsed: Duration) -> WallTime {
    WallTime::from_millis(1_767_225_600_000).saturating_add(elapsed)
}
