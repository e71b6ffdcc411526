//! Metrics of the configuration: the store and the file.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::observe::metrics::{DURATIONS_S, LabeledCounter, label_values};

/// Metrics of the catalog and of the configuration file; clones share them.
#[derive(Clone, Debug)]
pub struct CatalogMetrics {
    limits: Gauge,
    reloads: LabeledCounter<Reloaded>,
    store_writes: Histogram,
    store_errors: Counter,
    bad_records: Counter,
    store_detached: Gauge,
}

label_values! {
    /// Outcome of a change of the configuration file.
    pub enum Reloaded as "result" {
        /// It is in force.
        Taken = "taken",
        /// It is wrong; the one before is in force.
        Refused = "refused",
        /// It could not be read, or not in time.
        Unreadable = "unreadable",
    }
}

// === impl CatalogMetrics ===

impl CatalogMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Times that the configuration file changed";
        let metrics = Self {
            reloads: LabeledCounter::register(registry, "reloads", help),
            ..Self::default()
        };
        let help = "Limits in the configuration";
        registry.register("limits", help, metrics.limits.clone());
        let help = "Time to make writes of the admin API durable, several at a time";
        let writes = metrics.store_writes.clone();
        registry.register_with_unit("store_write_duration", help, Unit::Seconds, writes);
        let help = "Times that writes of the admin API could not be made durable";
        registry.register("store_errors", help, metrics.store_errors.clone());
        let help = "Records of the store that could not be read and were skipped";
        registry.register("store_bad_records", help, metrics.bad_records.clone());
        let help = "Whether the store's file was deleted or replaced while it is open";
        registry.register("store_detached", help, metrics.store_detached.clone());
        metrics
    }

    /// Counts a change of the configuration file.
    pub fn count_reload(&self, result: Reloaded) {
        self.reloads.count(result, 1);
    }

    /// Sets the number of limits in the configuration.
    pub fn set_limits(&self, limits: usize) {
        self.limits.set(i64::try_from(limits).unwrap_or(i64::MAX));
    }

    /// Counts writes that took `duration` to be made durable, or could not be.
    pub fn count_store_write(&self, duration: Duration, durable: bool) {
        self.store_writes.observe(duration.as_secs_f64());
        if !durable {
            self.store_errors.inc();
        }
    }

    /// Counts a record of the store that could not be read.
    pub fn count_bad_record(&self) {
        self.bad_records.inc();
    }

    /// Sets whether the store's path leads to another file than the one that is open.
    pub fn set_store_detached(&self, detached: bool) {
        self.store_detached.set(i64::from(detached));
    }
}

impl Default for CatalogMetrics {
    /// Metrics that are not registered.
    fn default() -> Self {
        Self {
            limits: Gauge::default(),
            reloads: LabeledCounter::default(),
            store_writes: Histogram::new(DURATIONS_S),
            store_errors: Counter::default(),
            bad_records: Counter::default(),
            store_detached: Gauge::default(),
        }
    }
}
