//! Metrics of all parts of a coordinator.

use prometheus_client::registry::Registry;
use tollgate_admin::AdminMetrics;
use tollgate_apis::doorman::DoormanMetrics;
use tollgate_apis::rlqs::RlqsMetrics;
use tollgate_apis::rls::RlsMetrics;
#[cfg(feature = "etcd")]
use tollgate_cluster::election::ElectionMetrics;
use tollgate_config::catalog::metrics::CatalogMetrics;
use tollgate_leases::metrics::LeaseMetrics;
use tollgate_leases::nudges::NudgeMetrics;
use tollgate_net::connections::ConnectionMetrics;
use tollgate_net::tls::TlsMetrics;
use tollgate_observe::metrics::{Exporter, registry};

/// Metrics of all parts of a coordinator.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) admin: AdminMetrics,
    pub(super) doorman: DoormanMetrics,
    pub(super) rlqs: RlqsMetrics,
    pub(super) rls: RlsMetrics,
    pub(super) leases: LeaseMetrics,
    pub(super) nudges: NudgeMetrics,
    pub(super) catalog: CatalogMetrics,
    pub(super) connections: ConnectionMetrics,
    pub(super) tls: TlsMetrics,
    pub(super) exporter: Exporter,
}

// === impl Metrics ===

impl Metrics {
    /// Registers those that every node has.
    pub(super) fn register() -> Self {
        Self::of(registry())
    }

    /// Registers them and those of an election, which only a node of a cluster has: without one a
    /// remaining term of 0 would look like a node that lends nothing.
    #[cfg(feature = "etcd")]
    pub(super) fn register_in_cluster() -> (Self, ElectionMetrics) {
        let mut registry = registry();
        let election = ElectionMetrics::register(&mut registry);
        (Self::of(registry), election)
    }

    fn of(mut registry: Registry) -> Self {
        Self {
            admin: AdminMetrics::register(&mut registry),
            doorman: DoormanMetrics::register(&mut registry),
            rlqs: RlqsMetrics::register(&mut registry),
            rls: RlsMetrics::register(&mut registry),
            leases: LeaseMetrics::register(&mut registry),
            nudges: NudgeMetrics::register(&mut registry),
            catalog: CatalogMetrics::register(&mut registry),
            connections: ConnectionMetrics::register(&mut registry),
            tls: TlsMetrics::register(&mut registry),
            exporter: Exporter::new(registry),
        }
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use tollgate_core::cluster::ShardId;
    use tollgate_observe::metrics::Exposition;

    use super::*;

    /// The metrics of an election that `metrics` shows, by their types.
    fn shown(metrics: &Metrics) -> Vec<&'static str> {
        let text = metrics
            .exporter
            .encode(Exposition::OpenMetrics, |_| {})
            .unwrap();
        let mut names = vec![
            "tollgate_master gauge",
            "tollgate_elections counter",
            "tollgate_hand_overs counter",
            "tollgate_term_left_seconds gauge",
            "tollgate_etcd_errors counter",
        ];
        names.retain(|name| text.contains(&format!("# TYPE {name}\n")));
        names
    }

    #[test]
    fn only_a_node_of_a_cluster_shows_the_metrics_of_an_election() {
        assert!(shown(&Metrics::register()).is_empty());
        let (metrics, election) = Metrics::register_in_cluster();
        election.set_master(ShardId(0), true);
        assert_eq!(shown(&metrics).len(), 5);
    }
}
