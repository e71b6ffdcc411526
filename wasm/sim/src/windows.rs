//! Requests that went on within some seconds, of each scope.

use std::time::Duration;

/// Length of a window, or one sample if that is longer.
const WINDOW: Duration = Duration::from_secs(10);

/// Sums of the last samples of each scope.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Samples of a window.
    len: usize,
    seconds: f64,
    /// The last samples of each scope, in turns.
    recent: Vec<u64>,
    sums: Vec<u64>,
    samples: usize,
}

// === impl Windows ===

impl Windows {
    pub(crate) fn new(scopes: usize, sample: Duration) -> Self {
        let len = Self::samples(sample);
        Self {
            len,
            seconds: sample.as_secs_f64() * len as f64,
            recent: vec![0; len * scopes],
            sums: vec![0; scopes],
            samples: 0,
        }
    }

    /// Returns the number of samples of a window, each of which is kept for each scope.
    pub(crate) fn samples(sample: Duration) -> usize {
        let len = WINDOW.as_nanos() / sample.as_nanos().max(1);
        usize::try_from(len).unwrap_or(usize::MAX).clamp(1, 1000)
    }

    /// Adds a sample of `scope`.
    pub(crate) fn add(&mut self, scope: usize, count: u64) {
        let oldest = &mut self.recent[scope * self.len + self.samples % self.len];
        let sum = &mut self.sums[scope];
        *sum = *sum - *oldest + count;
        *oldest = count;
    }

    /// Ends the sample of all scopes.
    pub(crate) fn advance(&mut self) {
        self.samples += 1;
    }

    /// Returns the mean of `scope` per second in the window that ends with this sample, if so much time
    /// has passed.
    pub(crate) fn mean(&self, scope: usize) -> Option<f64> {
        let is_full = self.samples + 1 >= self.len;
        is_full.then(|| self.sums[scope] as f64 / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_of_the_last_ten_seconds() {
        let mut windows = Windows::new(2, Duration::from_secs(5));
        let mut means = Vec::new();
        for count in [100, 50, 0, 30] {
            windows.add(0, 7);
            windows.add(1, count);
            means.push(windows.mean(1));
            windows.advance();
        }
        assert_eq!(means, [None, Some(15.0), Some(5.0), Some(3.0)]);
        let mut long = Windows::new(1, Duration::from_secs(60));
        long.add(0, 120);
        assert_eq!(long.mean(0), Some(2.0));
    }
}
