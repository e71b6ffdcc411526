//! Metrics of an election.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tollgate_core::cluster::ShardId;

/// The metrics of an election; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ElectionMetrics {
    master: Family<ShardLabel, Gauge>,
    /// Masterships gained.
    pub(super) elections: Counter,
    /// Lease tables handed over.
    pub(super) hand_overs: Counter,
    /// Failed calls to etcd.
    pub(super) errors: Counter,
    term: Gauge<f64, AtomicU64>,
}

/// At most 64 shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabel {
    shard: u16,
}

// === impl ElectionMetrics ===

impl ElectionMetrics {
    /// Registers the metrics in `registry`. A shard appears when an election mentions it.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "1 if this node is the shard's master";
        registry.register("master", help, metrics.master.clone());
        let help = "Times that this node became master of a shard";
        registry.register("elections", help, metrics.elections.clone());
        let help = "Times that this node handed a shard's lease table over to the next master";
        registry.register("hand_overs", help, metrics.hand_overs.clone());
        let help = "Calls to etcd that failed";
        registry.register("etcd_errors", help, metrics.errors.clone());
        let help = "Time until this node's terms end unless etcd confirms them";
        registry.register_with_unit("term_left", help, Unit::Seconds, metrics.term.clone());
        metrics
    }

    /// Sets whether this node is master of `shard`.
    pub fn set_master(&self, shard: ShardId, leads: bool) {
        let of = ShardLabel { shard: shard.0 };
        self.master.get_or_create(&of).set(leads.into());
    }

    /// Sets the remaining time of this node's terms.
    pub fn set_term(&self, left: Duration) {
        self.term.set(left.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_the_election_have_the_names_on_the_page() {
        let mut registry = Registry::with_prefix("tollgate");
        let metrics = ElectionMetrics::register(&mut registry);
        metrics.set_master(ShardId(0), true);
        metrics.set_master(ShardId(1), false);
        metrics.elections.inc();
        metrics.hand_overs.inc();
        metrics.errors.inc();
        metrics.set_term(Duration::from_millis(2500));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let page = include_str!("../../../../docs/metrics.md");
        for line in [
            "tollgate_master{shard=\"0\"} 1",
            "tollgate_master{shard=\"1\"} 0",
            "tollgate_elections_total 1",
            "tollgate_hand_overs_total 1",
            "tollgate_etcd_errors_total 1",
            "tollgate_term_left_seconds 2.5",
        ] {
            assert!(
                text.lines().any(|said| said == line),
                "no {line} in\n{text}"
            );
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
