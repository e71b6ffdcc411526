//! Metrics of Doorman's API.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tollgate_observe::label_values;
use tollgate_observe::metrics::{AddMetrics as _, LabelValue as _};

/// Metrics of Doorman's API; clones share them.
#[derive(Clone, Debug, Default)]
pub struct DoormanMetrics {
    calls: Family<DoormanCall, Counter>,
}

label_values! {
    /// Method of Doorman's API.
    pub enum DoormanMethod as "method" {
        /// The address of the master.
        Discovery = "discovery",
        /// Leases of a client.
        GetCapacity = "get_capacity",
        /// Leases of a server for its clients.
        GetServerCapacity = "get_server_capacity",
        /// Leases that are given back.
        ReleaseCapacity = "release_capacity",
    }
}

/// Labels of a call of a Doorman client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoormanCall {
    method: DoormanMethod,
    result: &'static str,
}

// === impl DoormanMetrics ===

impl DoormanMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: registry.add("doorman_requests", "Calls of Doorman clients"),
        };
        for method in DoormanMethod::ALL {
            for answered in [true, false] {
                let call = DoormanCall::new(*method, answered);
                drop(metrics.calls.get_or_create(&call));
            }
        }
        metrics
    }

    /// Counts a call, which was answered or not.
    pub fn count(&self, method: DoormanMethod, answered: bool) {
        let call = DoormanCall::new(method, answered);
        self.calls.get_or_create(&call).inc();
    }
}

// === impl DoormanCall ===

impl DoormanCall {
    fn new(method: DoormanMethod, answered: bool) -> Self {
        let result = if answered { "answered" } else { "refused" };
        Self { method, result }
    }
}
