//! Simulated network: it delays, loses and doubles messages.

use std::time::Duration;

use crate::random::{Chance, Random};

/// Quality of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Quality {
    /// Messages that are lost.
    pub lost: Chance,
    /// Messages that arrive twice.
    pub doubled: Chance,
    /// The shortest time a message takes.
    pub delay_min: Duration,
    /// The longest; each message takes a time of its own, so they overtake each other.
    pub delay_max: Duration,
}

// === impl Quality ===

impl Quality {
    /// Returns the delay of each copy of a message; none if it is lost.
    pub fn deliveries(self, random: &mut Random) -> Vec<Duration> {
        let mut delay = || Duration::from_micros(random.between(self.least_us(), self.most_us()));
        let delays = [delay(), delay()];
        let copies = match (random.happens(self.lost), random.happens(self.doubled)) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        delays.into_iter().take(copies).collect()
    }

    fn least_us(self) -> u64 {
        self.delay_min.min(self.delay_max).as_micros() as u64
    }

    fn most_us(self) -> u64 {
        self.delay_max.as_micros() as u64
    }
}
