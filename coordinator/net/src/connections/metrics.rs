//! Metrics of connections.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::tls::{Labels, Listener};

/// The metrics of connections; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    open: Family<Labels<1>, Gauge<u64, AtomicU64>>,
    dropped: Family<Labels<2>, Counter>,
    refused_calls: Family<Labels<1>, Counter>,
    pub(super) call_memory: Gauge<u64, AtomicU64>,
}

/// Reason for which the coordinator closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DropReason {
    /// It kept the coordinator waiting longest when another came to a full listener.
    Full,
    /// It was not accepted: calls were being worked on on all others.
    Refused,
    /// Its TLS handshake took too long.
    Handshake,
    /// The header or the body of a request took too long.
    Request,
    /// An answer was not read in time.
    Response,
    /// Nothing was heard for too long.
    Idle,
    /// It held the most of the memory of calls when that ran out.
    Memory,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// Shown in `registry`, all at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Open connections";
        registry.register("connections", help, metrics.open.clone());
        let help = "Connections that the coordinator closed";
        registry.register("connections_dropped", help, metrics.dropped.clone());
        let help = "Calls that were refused for want of memory, or on a connection for probes";
        registry.register("refused_calls", help, metrics.refused_calls.clone());
        let help = "Bytes of requests under way and of answers not yet sent";
        let memory = metrics.call_memory.clone();
        registry.register_with_unit("call_memory", help, Unit::Bytes, memory);
        for listener in [Listener::Grpc, Listener::Http] {
            drop(metrics.open.get_or_create(&[listener.label()]));
            drop(metrics.refused_calls.get_or_create(&[listener.label()]));
            for reason in DropReason::ALL {
                metrics.count_dropped(listener, reason, 0);
            }
        }
        metrics
    }

    pub(super) fn set_open(&self, listener: Listener, count: usize) {
        let open = self.open.get_or_create(&[listener.label()]);
        open.set(count as u64);
    }

    pub(super) fn count_dropped(&self, listener: Listener, reason: DropReason, count: usize) {
        let labels = [listener.label(), ("reason", reason.name())];
        let dropped = self.dropped.get_or_create(&labels);
        dropped.inc_by(count as u64);
    }

    pub(super) fn count_refused_call(&self, listener: Listener) {
        let refused = self.refused_calls.get_or_create(&[listener.label()]);
        refused.inc();
    }
}

// === impl DropReason ===

impl DropReason {
    const ALL: [Self; 7] = [
        Self::Full,
        Self::Refused,
        Self::Handshake,
        Self::Request,
        Self::Response,
        Self::Idle,
        Self::Memory,
    ];

    /// The name in labels and logs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Handshake => "handshake",
            Self::Request => "request",
            Self::Response => "response",
            Self::Idle => "idle",
            Self::Memory => "memory",
        }
    }
}
