//! Health checks, as load balancers see them.

use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::LIMITS;
use super::nodes::{Cluster, Node};

/// Waits until `node` says of each of `names` whether it serves.
async fn until(node: &Node, names: &[(&str, bool)]) {
    for (name, serves) in names {
        loop {
            let mut client = HealthClient::new(node.channel.clone());
            let service = (*name).to_owned();
            let answer = client.check(HealthCheckRequest { service }).await;
            let status = answer.unwrap().into_inner().status;
            if (status == ServingStatus::Serving as i32) == *serves {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn every_node_serves_and_the_master_says_so() {
    let mut cluster = Cluster::start(2, 2, LIMITS).await;
    let nobody = [
        ("", false),
        ("tollgate.v1.LeaseService", false),
        ("master", false),
    ];
    for node in &cluster.nodes {
        until(node, &nobody).await;
    }
    let shard = ShardId(1);
    let term = cluster.elect(shard, 0, Epoch(7)).await;
    let whole = [("", true), ("tollgate.v1.LeaseService", true)];
    let [master, other] = &cluster.nodes[..] else {
        panic!()
    };
    for node in [master, other] {
        until(node, &whole).await;
    }
    until(
        master,
        &[("master", true), ("shard/0", false), ("shard/1", true)],
    )
    .await;
    until(
        other,
        &[("master", false), ("shard/0", false), ("shard/1", false)],
    )
    .await;
    // No event announces a term that just ends.
    term.end();
    until(master, &[("master", false), ("shard/1", false), ("", true)]).await;
    cluster.forget(shard).await;
    for node in &cluster.nodes {
        until(node, &nobody).await;
    }
}
