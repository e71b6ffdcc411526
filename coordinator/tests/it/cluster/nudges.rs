//! Nudges of clients whose streams end at another node than the master.

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::nudge::Watch;
use tonic::Code;

use super::LIMITS;
use super::nodes::{Cluster, Node, asked_again};
use crate::harness::{unit, whole};
use crate::nudges::Watching;

/// Waits until so many streams are open at `node`.
async fn watched(node: &Node, count: f64) {
    while node.metrics().await["tollgate_watches"] != count {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Capacity that `client` gets of the only scope of `scopes`, of which it wants all.
async fn gets(node: &Node, client: &str, scopes: &[String], sequence: u64) -> f64 {
    let call = asked_again(client, scopes, sequence, 100.0);
    let answers = node.try_refresh(call).await.unwrap();
    unit(&answers[0]).answer.lease.unwrap().capacity.as_f64()
}

#[tokio::test]
async fn a_client_is_nudged_through_any_node_also_after_a_change_of_masters() {
    let mut cluster = Cluster::start(3, 1, LIMITS).await;
    let scopes = ["tenant/acme".to_owned()];
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let stub = LeaseServiceClient::new(cluster.nodes[2].channel.clone());
    let mut watching = Watching::start(stub, "envoy/b").await;
    for (master, other) in [(0, 1), (1, 0)] {
        if master == 1 {
            cluster.nodes[0].lost(ShardId(0)).await;
            cluster.elect(ShardId(0), 1, Epoch(200)).await;
        }
        // The node watches where the master is, and nowhere else.
        watched(&cluster.nodes[master], 1.0).await;
        watched(&cluster.nodes[other], 0.0).await;
        watched(&cluster.nodes[2], 1.0).await;
        let [a, b] = ["envoy/a", "envoy/b"];
        assert_eq!(gets(&cluster.nodes[1], a, &scopes, 1).await, 100.0);
        assert_eq!(gets(&cluster.nodes[2], b, &scopes, 1).await, 0.0);
        cluster.nodes[1].release(a, &scopes).await;
        watching.named(&scopes[0]).await;
        assert_eq!(gets(&cluster.nodes[2], b, &scopes, 2).await, 100.0);
    }
    drop(watching);
    for node in &cluster.nodes {
        watched(node, 0.0).await;
    }
}

/// A client that watches at the master itself is nudged there, and no node hears of it.
#[tokio::test]
async fn nodes_hear_of_clients_that_watch_there_only() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = super::tenants();
    let here = tenants
        .iter()
        .find(|tenant| cluster.shard_of(tenant) == ShardId(0));
    let scopes = [here.unwrap().clone()];
    let stub = |node: usize| LeaseServiceClient::new(cluster.nodes[node].channel.clone());
    let mut at_master = Watching::start(stub(0), "envoy/b").await;
    let mut node = Watching::of_node(stub(0), &cluster.nodes[2].peer.node)
        .await
        .unwrap();
    for (client, is_told) in [("envoy/b", false), ("envoy/c", true)] {
        let answers = cluster.nodes[1].refresh("envoy/a", &scopes, 100.0).await;
        let lease = unit(&answers[0]).answer.lease.unwrap();
        assert_eq!(lease.capacity, whole(100));
        assert_eq!(gets(&cluster.nodes[1], client, &scopes, 1).await, 0.0);
        cluster.nodes[1].release("envoy/a", &scopes).await;
        if is_told {
            assert_eq!(node.client_named(&scopes[0]).await, client)
        } else {
            at_master.named(&scopes[0]).await
        }
        cluster.nodes[1].release(client, &scopes).await;
    }
}

#[tokio::test]
async fn other_nodes_of_the_cluster_may_open_a_stream_each_and_nothing_else() {
    let cluster = Cluster::of_three(LIMITS).await;
    let stub = || LeaseServiceClient::new(cluster.nodes[0].channel.clone());
    let unnamed = Watching::of(stub(), &Watch::Rest).await;
    assert_eq!(unnamed.err().unwrap().code(), Code::InvalidArgument);
    let me = &cluster.nodes[0].peer.node;
    for name in ["", "elsewhere", me] {
        let refused = Watching::of_node(stub(), name).await;
        assert_eq!(
            refused.err().unwrap().code(),
            Code::PermissionDenied,
            "{name}"
        );
    }
    let other = &cluster.nodes[1].peer.node;
    let mut earlier = Watching::of_node(stub(), other).await.unwrap();
    let _later = Watching::of_node(stub(), other).await.unwrap();
    assert_eq!(earlier.end().await.code(), Code::Aborted);
    watched(&cluster.nodes[0], 1.0).await;
}
