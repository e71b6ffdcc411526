//! Metrics of the configuration: the store and the file.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, Durations, LabeledCounter};

/// Metrics of the catalog and of the configuration file; clones share them.
#[derive(Clone, Debug, Default)]
pub struct CatalogMetrics {
    limits: Gauge,
    reloads: LabeledCounter<Reloaded>,
    store_writes: Durations,
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
        let reloads = "Times that the configuration file changed";
        let writes = "Time to make writes of the admin API durable, several at a time";
        let errors = "Times that writes of the admin API could not be made durable";
        let bad = "Records of the store that could not be read and were skipped";
        let detached = "Whether the store's file was deleted or replaced while it is open";
        Self {
            limits: registry.add("limits", "Limits in the configuration"),
            reloads: LabeledCounter::register(registry, "reloads", reloads),
            store_writes: registry.add_durations("store_write_duration", writes),
            store_errors: registry.add("store_errors", errors),
            bad_records: registry.add("store_bad_records", bad),
            store_detached: registry.add("store_detached", detached),
        }
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
        self.store_writes.observe(duration);
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
