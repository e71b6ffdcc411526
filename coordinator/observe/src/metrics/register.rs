//! Registration of metrics that begin at zero.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

/// Bounds of histograms of durations: from a call with one scope on an idle machine to the deadline.
const DURATIONS_S: [f64; 10] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0,
];

/// Histogram of durations; clones share it.
#[derive(Clone, Debug)]
pub struct Durations(Histogram);

/// Registry to which new metrics are added, each with its name and a help text.
pub trait AddMetrics {
    /// Adds a metric.
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M;

    /// Adds a metric in `unit`, which ends its name.
    fn add_in<M: Metric + Clone + Default>(&mut self, unit: Unit, name: &str, help: &str) -> M;

    /// Adds a histogram of durations.
    fn add_durations(&mut self, name: &str, help: &str) -> Durations;
}

// === impl Registry ===

impl AddMetrics for Registry {
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.register(name, help, metric.clone());
        metric
    }

    fn add_in<M: Metric + Clone + Default>(&mut self, unit: Unit, name: &str, help: &str) -> M {
        let metric = M::default();
        self.register_with_unit(name, help, unit, metric.clone());
        metric
    }

    fn add_durations(&mut self, name: &str, help: &str) -> Durations {
        let durations = Durations::default();
        self.register_with_unit(name, help, Unit::Seconds, durations.0.clone());
        durations
    }
}

// === impl Durations ===

impl Durations {
    /// Counts a duration.
    pub fn observe(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self(Histogram::new(DURATIONS_S))
    }
}
