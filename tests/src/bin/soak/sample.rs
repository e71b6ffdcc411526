//! Sample: state of the fleet at one time.

use std::time::Duration;

/// State of the fleet at one time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Time since the start.
    pub(crate) at: Duration,
    /// Requests of the greedy tenant admitted per second since the last sample.
    pub(crate) admitted: f64,
    /// Requests of any tenant without an answer since the last sample.
    pub(crate) failures: u64,
    /// Latencies of the other tenants.
    pub(crate) latencies: Latencies,
    /// Tenants that have come so far.
    pub(crate) tenants: u64,
    /// Memory of the larger Envoy.
    pub(crate) envoy_bytes: u64,
    /// Memory of the largest VM.
    pub(crate) vm_bytes: u64,
    /// Slots in use, of the Envoy with more of them.
    pub(crate) slots: u64,
    /// Memory of the largest coordinator.
    pub(crate) coordinator_bytes: u64,
}

/// Latencies of some requests; zero without requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latencies {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

// === impl Sample ===

impl Sample {
    /// Header of the CSV file.
    pub(crate) const HEADER: &str = "seconds,admitted_per_second,failures,median_ms,p99_ms,longest_ms,tenants,envoy_bytes,vm_bytes,slots,coordinator_bytes";

    /// Returns the sample's line of the CSV file.
    pub(crate) fn csv(&self) -> String {
        let Latencies {
            median,
            p99,
            longest,
        } = self.latencies;
        let [median, p99, longest] = [median, p99, longest].map(|time| time.as_secs_f64() * 1e3);
        format!(
            "{:.0},{:.1},{},{median:.3},{p99:.3},{longest:.3},{},{},{},{},{}",
            self.at.as_secs_f64(),
            self.admitted,
            self.failures,
            self.tenants,
            self.envoy_bytes,
            self.vm_bytes,
            self.slots,
            self.coordinator_bytes
        )
    }

    /// Returns the sample as a line of progress in a run of `length`.
    pub(crate) fn line(&self, length: Duration) -> String {
        format!(
            "{:>6.0} of {:.0} s: {:>5.1}/s admitted, p99 {:.1?}, {} failed, {} tenants; Envoy {:.1} MiB, VM {:.2} MiB, coordinator {:.1} MiB",
            self.at.as_secs_f64(),
            length.as_secs_f64(),
            self.admitted,
            self.latencies.p99,
            self.failures,
            self.tenants,
            mebibytes(self.envoy_bytes),
            mebibytes(self.vm_bytes),
            mebibytes(self.coordinator_bytes),
        )
    }
}

// === impl Latencies ===

impl Latencies {
    /// Computes them of the times of requests.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied();
        Self {
            median: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
            longest: times.last().copied().unwrap_or_default(),
        }
    }
}

// === free functions ===

/// Converts bytes to MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
