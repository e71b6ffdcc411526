//! How many scopes are refreshed per second, from a counter that somebody looks at now and then.

use std::time::Duration;

use tollgate_core::units::Instant;

/// The shortest time that a rate is taken over; whoever looks sooner sees the last one.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// The rate between two looks at a counter; at first, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefreshRate {
    at: Instant,
    count: u64,
    per_second: f64,
}

// === impl RefreshRate ===

impl RefreshRate {
    /// The rate, if the counter says `count` now.
    pub(super) fn look(&mut self, now: Instant, count: u64) -> f64 {
        let span = now.saturating_since(self.at);
        if span >= SPAN_MIN {
            let more = count.saturating_sub(self.count);
            self.per_second = more as f64 / span.as_secs_f64();
            (self.at, self.count) = (now, count);
        }
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_between_looks_that_are_a_second_apart() {
        let mut rate = RefreshRate::default();
        let at = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
        let rows = [
            (500, 10, 0.0),
            (2000, 40, 20.0),
            (2500, 90, 20.0),
            (4000, 100, 30.0),
            (5000, 100, 0.0),
            (4000, 100, 0.0),
        ];
        for (ms, count, want) in rows {
            assert_eq!(rate.look(at(ms), count), want, "{ms} ms");
        }
    }
}
