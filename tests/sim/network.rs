//! Simulated network: it delays, loses and doubles messages.

use std::time::Duration;

use crate::random::Random;

/// Quality of the network while there are faults; afterwards it only delays messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    /// Messages lost, in percent.
    lost: u64,
    /// Messages that arrive twice, in percent.
    doubled: u64,
    /// The longest a message takes; each takes a time of its own, so they overtake each other.
    delay_max: Duration,
}

impl Quality {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            lost: random.pick(&[0, 0, 2, 10, 40]),
            doubled: random.pick(&[0, 0, 5, 30]),
            delay_max: Duration::from_millis(random.pick(&[1, 5, 50, 400])),
        }
    }

    /// Returns a network that loses nothing.
    pub(crate) fn healed(self) -> Self {
        Self {
            lost: 0,
            doubled: 0,
            delay_max: self.delay_max.min(Duration::from_millis(5)),
        }
    }

    /// Returns the delay of each copy of a message; none if it is lost.
    pub(crate) fn deliveries(self, random: &mut Random) -> Vec<Duration> {
        let mut delay = || Duration::from_micros(random.between(50, self.delay_us()));
        let delays = [delay(), delay()];
        let copies = match (random.chance(self.lost), random.chance(self.doubled)) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        delays.into_iter().take(copies).collect()
    }

    /// Returns the longest delay of a message.
    pub(crate) fn slowest(self) -> Duration {
        self.delay_max
    }

    fn delay_us(self) -> u64 {
        self.delay_max.as_micros() as u64
    }
}
