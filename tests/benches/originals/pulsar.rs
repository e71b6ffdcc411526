//! Pulsar's resource groups: each broker reports its usage to all others, and computes its own part.

use std::time::Duration;

use tollgate_core::share::usage_share::{QuotaRule, ReportPolicy, UsagePeer};
use tollgate_core::units::{Capacity, Instant};

use crate::original::{Original, capacity};

/// Brokers of one quota. All reports arrive at once.
pub(crate) struct Pulsar {
    peers: Vec<UsagePeer<usize>>,
    quotas: Vec<Capacity>,
    quota: Capacity,
    messages: u64,
}

// === impl Pulsar ===

impl Pulsar {
    /// Brokers that have not used anything yet, and report every so many seconds.
    pub(crate) fn new(clients: usize, quota: f64, every: u64) -> Self {
        let policy = ReportPolicy {
            interval: Duration::from_secs(every),
            ..ReportPolicy::PULSAR
        };
        let peers = vec![UsagePeer::new(policy, QuotaRule::AtLeastOne); clients];
        let quota = capacity(quota);
        let first = peers.iter().map(|peer| peer.quota(Instant::ZERO, quota));
        Self {
            quotas: first.collect(),
            peers,
            quota,
            messages: 0,
        }
    }
}

impl Original for Pulsar {
    fn play_round(&mut self, now: Instant, used: &[f64], _: &[f64]) {
        for (number, used) in used.iter().enumerate() {
            let used = capacity(*used);
            if !self.peers[number].report(now, used) {
                continue;
            }
            for other in (0..self.peers.len()).filter(|other| *other != number) {
                self.peers[other].handle_report(now, number, used);
                self.messages += 1;
            }
        }
        for (quota, peer) in self.quotas.iter_mut().zip(&self.peers) {
            *quota = peer.quota(now, self.quota);
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.quotas.iter().map(|quota| quota.as_f64()).collect()
    }

    fn messages(&self) -> u64 {
        self.messages
    }
}
