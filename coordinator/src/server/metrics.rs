//! Metrics of all parts of a coordinator.

use crate::api::metrics::ApiMetrics;
use crate::catalog::metrics::CatalogMetrics;
use crate::cluster::election::ElectionMetrics;
use crate::leases::metrics::LeaseMetrics;
use crate::net::connections::ConnectionMetrics;
use crate::net::tls::TlsMetrics;
use crate::observe::metrics::{Exporter, registry};

/// Metrics of all parts of a coordinator.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) api: ApiMetrics,
    pub(super) leases: LeaseMetrics,
    pub(super) catalog: CatalogMetrics,
    #[cfg_attr(
        not(feature = "etcd"),
        expect(dead_code, reason = "only elections through etcd count")
    )]
    pub(super) election: ElectionMetrics,
    pub(super) connections: ConnectionMetrics,
    pub(super) tls: TlsMetrics,
    pub(super) exporter: Exporter,
}

// === impl Metrics ===

impl Metrics {
    /// Registers all of them.
    pub(super) fn register() -> Self {
        let mut registry = registry();
        Self {
            api: ApiMetrics::register(&mut registry),
            leases: LeaseMetrics::register(&mut registry),
            catalog: CatalogMetrics::register(&mut registry),
            election: ElectionMetrics::register(&mut registry),
            connections: ConnectionMetrics::register(&mut registry),
            tls: TlsMetrics::register(&mut registry),
            exporter: Exporter::new(registry),
        }
    }
}
