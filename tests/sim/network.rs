//! Qualities of the simulated network that seeds choose.

use std::time::Duration;

use tollgate_sim::network::Quality;
use tollgate_sim::random::{Chance, Random};

/// Shortest time that a message takes.
const DELAY_MIN: Duration = Duration::from_micros(50);

// === free functions ===

/// Returns a quality for the time in which there are faults; afterwards messages are only delayed.
pub(crate) fn faulty(random: &mut Random) -> Quality {
    Quality {
        lost: Chance::percent(random.pick(&[0, 0, 2, 10, 40])),
        doubled: Chance::percent(random.pick(&[0, 0, 5, 30])),
        delay_min: DELAY_MIN,
        delay_max: Duration::from_millis(random.pick(&[1, 5, 50, 400])),
    }
}

/// Returns `network` without losses.
pub(crate) fn healed(network: Quality) -> Quality {
    Quality {
        lost: Chance::NEVER,
        doubled: Chance::NEVER,
        delay_max: network.delay_max.min(Duration::from_millis(5)),
        ..network
    }
}
