//! Traffic of clients: attempts and refusals, reported with each request to the coordinator, for people to
//! see. No decision depends on it.

use core::time::Duration;

use crate::units::Instant;

/// Length of the windows in which recent traffic is counted.
const WINDOW: Duration = Duration::from_secs(10);

/// The most that one report may add.
const REPORT_MAX: u64 = 1_000_000_000_000;

/// Tokens, or requests in flight, that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that were admitted, waited or were refused.
    pub attempts: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// Counts of a client since an earlier request of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sequence of that request, the last that was answered; 0 if none was.
    pub since: u64,
    /// Attempts and refusals since then.
    pub counts: Counts,
}

/// Counts of a client that its coordinator may not know of; plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenTally {
    /// Sequence of the last request that was answered.
    pub(crate) since: u64,
    /// All since then.
    pub(crate) counts: Counts,
    /// The part of them that the request reported that waits for its answer.
    pub(crate) reported: Counts,
}

/// Traffic of a resource over all its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    all: Counts,
    /// Start of the present window, and what has come since.
    opened_at: Instant,
    window: Counts,
    /// The window before; none before the first one was over.
    before: Option<Counts>,
}

// === impl Counts ===

impl Counts {
    /// Adds `more`.
    pub(crate) fn add(&mut self, more: Self) {
        self.attempts = self.attempts.saturating_add(more.attempts);
        self.refused = self.refused.saturating_add(more.refused);
    }

    /// These without `less`.
    fn without(self, less: Self) -> Self {
        Self {
            attempts: self.attempts.saturating_sub(less.attempts),
            refused: self.refused.saturating_sub(less.refused),
        }
    }
}

// === impl OpenTally ===

impl OpenTally {
    /// Returns the report for a request.
    pub(crate) fn report(&mut self) -> Tally {
        self.reported = self.counts;
        Tally {
            since: self.since,
            counts: self.counts,
        }
    }

    /// Whether there are counts that no request has reported.
    pub(crate) fn has_more(&self) -> bool {
        self.counts != self.reported
    }

    /// Notes that the request of `sequence` was answered.
    pub(crate) fn settle(&mut self, sequence: u64) {
        self.since = sequence;
        self.counts = self.counts.without(core::mem::take(&mut self.reported));
    }
}

// === impl Tally ===

impl Tally {
    /// Counts that are not in `before`, the last report of the same client. One that is repeated, because
    /// its answer was lost, has the counts of the one before in it.
    pub(crate) fn beyond(&self, before: &Self) -> Counts {
        let counts = if self.since == before.since {
            self.counts.without(before.counts)
        } else {
            self.counts
        };
        Counts {
            attempts: counts.attempts.min(REPORT_MAX),
            refused: counts.refused.min(REPORT_MAX),
        }
    }
}

// === impl Traffic ===

impl Traffic {
    /// Adds what was counted until `now`.
    pub(crate) fn add(&mut self, now: Instant, counts: Counts) {
        *self = if self.all == Counts::default() {
            Self {
                opened_at: now,
                ..Self::default()
            }
        } else {
            self.at(now)
        };
        self.all.add(counts);
        self.window.add(counts);
    }

    /// All since the resource is known.
    pub fn all(&self) -> Counts {
        self.all
    }

    /// The traffic of the last ten to twenty seconds, and how long that was; of a resource that is not known
    /// for so long, since it is known.
    pub fn recent(&self, now: Instant) -> (Counts, Duration) {
        let Self {
            opened_at,
            mut window,
            before,
            ..
        } = self.at(now);
        let elapsed = now.saturating_since(opened_at);
        window.add(before.unwrap_or_default());
        match before {
            Some(_) => (window, elapsed.saturating_add(WINDOW)),
            None => (window, elapsed),
        }
    }

    /// The same with the window of `now`.
    fn at(&self, now: Instant) -> Self {
        let elapsed = now.saturating_since(self.opened_at);
        if elapsed < WINDOW {
            return *self;
        }
        let is_next = elapsed < WINDOW.saturating_mul(2);
        let last = if is_next {
            self.window
        } else {
            Counts::default()
        };
        Self {
            opened_at: if is_next {
                self.opened_at.saturating_add(WINDOW)
            } else {
                now
            },
            window: Counts::default(),
            before: Some(last),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(attempts: u64, refused: u64) -> Counts {
        Counts { attempts, refused }
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(secs))
    }

    #[test]
    fn nothing_is_counted_twice_or_lost_whatever_is_lost() {
        let (mut client, mut server, mut all) = (OpenTally::default(), Tally::default(), 0);
        for sequence in 1..100 {
            client.counts.add(counts(sequence, 1));
            let report = client.report();
            client.counts.add(counts(1000, 0));
            // Each third request is lost, and each fifth answer.
            if sequence % 3 == 0 {
                continue;
            }
            all += report.beyond(&server).attempts;
            server = report;
            if sequence % 5 != 0 {
                client.settle(sequence);
            }
        }
        all += client.report().beyond(&server).attempts;
        assert_eq!(all, (1..100).sum::<u64>() + 99 * 1000);
    }

    #[test]
    fn recent_traffic_is_that_of_ten_to_twenty_seconds() {
        let mut traffic = Traffic::default();
        for second in 0..25 {
            traffic.add(at(second), counts(10, 5));
        }
        assert_eq!(traffic.all(), counts(250, 125));
        // From the tenth to the twenty-fifth second.
        assert_eq!(
            traffic.recent(at(25)),
            (counts(150, 75), Duration::from_secs(15))
        );
        assert_eq!(traffic.recent(at(35)).0, counts(50, 25));
        assert_eq!(traffic.recent(at(60)).0, counts(0, 0));
    }

    #[test]
    fn a_report_adds_a_bounded_number() {
        let mut traffic = Traffic::default();
        let report = Tally {
            since: 1,
            counts: counts(u64::MAX, u64::MAX),
        };
        traffic.add(at(0), report.beyond(&Tally::default()));
        assert_eq!(traffic.all(), counts(REPORT_MAX, REPORT_MAX));
    }
}
