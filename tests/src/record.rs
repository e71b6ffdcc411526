//! Results of load, in bins of time.

use std::ops::{AddAssign, Range};
use std::time::Duration;

/// Width of a bin.
pub const BIN: Duration = Duration::from_millis(100);

/// Counts of requests in one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were due.
    pub offered: u64,
    /// Answered 200.
    pub admitted: u64,
    /// Answered 429.
    pub refused: u64,
    /// Answered otherwise, or not at all.
    pub failed: u64,
}

/// End of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Answered 200.
    Admitted,
    /// Answered 429.
    Refused,
    /// Answered otherwise, or not at all.
    Failed,
}

/// Tallies of consecutive bins since the load began.
#[derive(Clone, Debug, Default)]
pub struct Record {
    bins: Vec<Tally>,
}

// === impl Tally ===

impl Tally {
    /// Requests that have been answered, or failed.
    pub fn ended(&self) -> u64 {
        self.admitted + self.refused + self.failed
    }

    /// Requests that are still waiting for their answer.
    pub fn waiting(&self) -> u64 {
        self.offered.saturating_sub(self.ended())
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

// === impl RequestOutcome ===

impl RequestOutcome {
    /// Outcome of a status code.
    pub fn of_status(status: u16) -> Self {
        match status {
            200 => Self::Admitted,
            429 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

// === impl Record ===

impl Record {
    /// Counts requests that became due at `since` the start.
    pub fn add_offered(&mut self, since: Duration, requests: u64) {
        self.bin(since).offered += requests;
    }

    /// Counts a request that ended at `since` the start.
    pub fn add(&mut self, since: Duration, outcome: RequestOutcome) {
        let bin = self.bin(since);
        match outcome {
            RequestOutcome::Admitted => bin.admitted += 1,
            RequestOutcome::Refused => bin.refused += 1,
            RequestOutcome::Failed => bin.failed += 1,
        }
    }

    /// Adds another record of the same load, bin by bin.
    pub fn merge(&mut self, other: &Self) {
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), Tally::default());
        }
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += *more;
        }
    }

    /// Sum of the bins that begin within `window`.
    pub fn within(&self, window: Range<Duration>) -> Tally {
        let (from, to) = (index(window.start), index(window.end).min(self.bins.len()));
        let mut sum = Tally::default();
        for bin in self.bins.get(from..to).into_iter().flatten() {
            sum += *bin;
        }
        sum
    }

    /// Sum of all bins.
    pub fn total(&self) -> Tally {
        self.within(Duration::ZERO..self.length())
    }

    /// Requests admitted per second within `window`.
    pub fn admitted_per_second(&self, window: Range<Duration>) -> f64 {
        let length = window.end.saturating_sub(window.start);
        self.within(window).admitted as f64 / length.as_secs_f64()
    }

    /// Admitted requests per second in every window of `length` within `span`, one window per bin.
    pub fn windows(&self, span: Range<Duration>, length: Duration) -> Vec<f64> {
        let mut rates = Vec::new();
        let mut from = span.start;
        while from + length <= span.end {
            rates.push(self.admitted_per_second(from..from + length));
            from += BIN;
        }
        rates
    }

    /// From the start to the end of the last bin.
    pub fn length(&self) -> Duration {
        BIN * u32::try_from(self.bins.len()).unwrap_or(u32::MAX)
    }

    fn bin(&mut self, since: Duration) -> &mut Tally {
        let index = index(since);
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Tally::default());
        }
        &mut self.bins[index]
    }
}

fn index(since: Duration) -> usize {
    usize::try_from(since.as_nanos() / BIN.as_nanos()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn windows_sum_their_bins() {
        let mut record = Record::default();
        for at in [0, 50, 100, 250, 399] {
            record.add(ms(at), RequestOutcome::Admitted);
        }
        record.add(ms(120), RequestOutcome::Refused);
        record.add_offered(ms(0), 7);
        assert_eq!(record.length(), ms(400));
        assert_eq!(record.within(ms(100)..ms(300)).admitted, 2);
        assert_eq!(record.total().waiting(), 1);
        assert_eq!(record.windows(ms(0)..ms(400), ms(200)), [15.0, 10.0, 10.0]);
    }

    #[test]
    fn records_merge_bin_by_bin() {
        let (mut short, mut long) = (Record::default(), Record::default());
        short.add(ms(0), RequestOutcome::Admitted);
        long.add(ms(0), RequestOutcome::Admitted);
        long.add(ms(500), RequestOutcome::Failed);
        short.merge(&long);
        assert_eq!(short.within(ms(0)..ms(100)).admitted, 2);
        assert_eq!(short.total().failed, 1);
    }
}
