//! Algorithms that work by rounds, without leases.

use tollgate_core::units::{Capacity, Instant};

use crate::course::Course;

/// Algorithm as it is elsewhere.
pub(crate) trait Original {
    /// Plays a round at `now`: what each client used on average since the last one, and what it wanted.
    fn play_round(&mut self, now: Instant, used: &[f64], wanted: &[f64]);

    /// Returns the rate that each client may use.
    fn rates(&self) -> Vec<f64>;

    /// Returns the messages so far.
    fn messages(&self) -> u64;
}

/// Course of a division.
#[derive(Debug)]
pub(crate) struct Played {
    /// Rate that each client may use, of each sample.
    pub(crate) has: Vec<Vec<f64>>,
    pub(crate) messages: u64,
}

// === free functions ===

/// Plays `original` on the wants of a course, with a round every so many seconds.
pub(crate) fn play(course: &Course, original: &mut dyn Original, every: u64) -> Played {
    let clients = course.clients();
    let (mut used, mut wanted) = (vec![0.0; clients], vec![0.0; clients]);
    let mut has = Vec::new();
    let mut second = 0;
    for (at, wants) in course.times.iter().zip(&course.wants) {
        // Wants are those of the sample that ends the time.
        while second < *at {
            let rates = original.rates();
            for (client, wants) in wants.iter().enumerate() {
                used[client] += wants.min(rates[client]) / every as f64;
                wanted[client] += wants / every as f64;
            }
            second += 1;
            if second % every == 0 {
                let now = Instant::from_nanos(second * 1_000_000_000);
                original.play_round(now, &used, &wanted);
                used.fill(0.0);
                wanted.fill(0.0);
            }
        }
        has.push(original.rates());
    }
    Played {
        has,
        messages: original.messages(),
    }
}

/// Returns a rate as the core has it.
pub(crate) fn capacity(rate: f64) -> Capacity {
    Capacity::from_micros((rate * 1e6) as u64)
}
