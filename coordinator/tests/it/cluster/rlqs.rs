//! Streams of proxies at nodes that are not the masters of all their scopes.

use std::collections::BTreeMap;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;

use super::nodes::Cluster;
use crate::rlqs::{Proxy, until_halved};

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

/// The stream stays where it is, and others answer for its scopes.
#[tokio::test]
async fn a_stream_keeps_its_assignment_when_its_shard_changes_its_master() {
    let mut cluster = Cluster::start(3, 1, CONFIG).await;
    let shard = ShardId(0);
    cluster.elect(shard, 0, Epoch(100)).await;
    let busy = [("acme", 5, 5000)];
    let open = async |cluster: &Cluster, name| {
        let channel = cluster.nodes[2].channel.clone();
        Proxy::over(channel, Some(name), "edge", &busy)
            .await
            .unwrap()
    };
    let mut first = open(&cluster, "edge-1").await;
    first.until_rate("acme", |rate| rate == 100.0).await;
    let snapshot = cluster.nodes[0].steps_down(shard).await;
    assert!(snapshot.is_some());
    // The shard has no master, and a report is answered of what is left of the lease.
    first.report("edge", &busy).await;
    assert_eq!(first.rates().await, [("acme".to_owned(), 100.0)]);
    cluster.elect_with(shard, 1, Epoch(200), snapshot).await;
    let mut second = open(&cluster, "edge-2").await;
    // The new master knows the lease, and tells the stream when it is halved.
    until_halved([&mut first, &mut second], [100.0, 0.0], 50.0).await;
}
