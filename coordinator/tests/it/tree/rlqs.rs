//! Proxies with Envoy's rate limit quota service at the leaves of a tree.

use tollgate_core::lease_server::Start;

use super::below;
use crate::harness::Coordinator;
use crate::rlqs::{DOMAINS, Proxy, connect, until_halved};

const LIMITS: &str = "limits: [{match: 'tenant/*', requests: \
    {rate: 100, lease: 20s, refresh: 200ms, min_refresh: 20ms, headroom: 0}}]";

#[tokio::test]
async fn proxies_at_two_leaves_share_the_capacity_of_the_root() {
    let root = Coordinator::with(LIMITS, Start::Fresh).await;
    let leaf_limits = format!("{DOMAINS}\nlimits: []");
    let east = below("east", &[&root], &leaf_limits).await;
    let west = below("west", &[&root], &leaf_limits).await;
    let open = async |leaf: &Coordinator, name| {
        let busy = [("acme", 5, 5000)];
        let proxy = Proxy::over(connect(leaf), Some(name), "edge", &busy).await;
        proxy.unwrap()
    };
    let mut first = open(&east, "edge-1").await;
    first.until_rate("acme", |rate| rate == 100.0).await;
    let mut second = open(&west, "edge-2").await;
    until_halved([&mut first, &mut second], [100.0, 0.0], 50.0).await;
}
