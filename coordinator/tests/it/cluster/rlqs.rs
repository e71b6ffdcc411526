//! Streams of proxies at nodes that are not the masters of all their scopes.

use std::collections::BTreeMap;

use super::nodes::Cluster;
use crate::rlqs::Proxy;

const CONFIG: &str = "rlqs: {domains: {edge: {scope: 'tenant/{tenant}'}}}
limits: [{match: tenant/*, requests: {rate: 100, headroom: 0, lease: 20s}}]";

/// The first rate that each of `count` tenants is assigned.
async fn rates(proxy: &mut Proxy, count: usize) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    while rates.len() < count {
        for (tenant, rate) in proxy.rates().await {
            rates.entry(tenant).or_insert(rate);
        }
    }
    rates
}

#[tokio::test]
async fn a_stream_has_leases_of_all_shards_and_goes_on_at_another_node() {
    let cluster = Cluster::of_three(CONFIG).await;
    let tenants: Vec<String> = (0..30).map(|i| i.to_string()).collect();
    let busy: Vec<_> = tenants.iter().map(|tenant| (&**tenant, 5, 5000)).collect();
    // The second stream is the same client, so what the first one left counts as its own.
    for node in [0, 2] {
        let channel = cluster.nodes[node].channel.clone();
        let proxy = Proxy::over(channel, Some("edge-1"), "edge", &busy).await;
        let rates = rates(&mut proxy.unwrap(), tenants.len()).await;
        assert!(rates.values().all(|rate| *rate == 100.0), "{rates:?}");
    }
    let channel = cluster.nodes[1].channel.clone();
    let other = Proxy::over(channel, Some("edge-2"), "edge", &busy).await;
    let rates = rates(&mut other.unwrap(), tenants.len()).await;
    assert!(rates.values().all(|rate| *rate == 0.0), "{rates:?}");
}
