//! Metrics of watches and nudges.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_observe::metrics::AddMetrics as _;

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
        let watches = "Open streams on which clients and other nodes are nudged";
        let nudges = "Resources that clients were told to ask for on such streams";
        let dropped = "Nudges that found no place, because too many waited";
        Self {
            watches: registry.add("watches", watches),
            nudges: registry.add("nudges", nudges),
            dropped: registry.add("nudges_dropped", dropped),
        }
    }
}
