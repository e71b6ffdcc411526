//! Metrics of watches and nudges.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of watches and nudges; clones share them.
#[derive(Clone, Debug, Default)]
pub struct NudgeMetrics {
    pub(super) watches: Gauge<u64, AtomicU64>,
    pub(super) nudges: Counter,
    pub(super) dropped: Counter,
}

// === impl NudgeMetrics ===

impl NudgeMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Open streams on which clients and other nodes are nudged";
        registry.register("watches", help, metrics.watches.clone());
        let help = "Resources that clients were told to ask for on such streams";
        registry.register("nudges", help, metrics.nudges.clone());
        let help = "Nudges that found no place, because too many waited";
        registry.register("nudges_dropped", help, metrics.dropped.clone());
        metrics
    }
}
