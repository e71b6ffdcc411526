//! A cluster in the middle of a tree.

use serde_json::json;
use tokio::time::{Duration, Instant, sleep};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;

use super::nodes::Cluster;
use crate::harness::{Coordinator, request};

/// Only masters hear from the parent.
#[tokio::test]
async fn who_is_above_is_known_through_a_node_that_leads_nothing() {
    let limits = "limits: [{match: 'tenant/*', requests: {rate: 100}}]";
    let root = Coordinator::with(limits, Start::Fresh).await;
    let parent =
        |name: &str, at: &str| format!("parent: {{name: {name}, addresses: ['{at}']}}\nlimits: []");
    let middle = parent("eu", &root.grpc.to_string());
    let mut cluster = Cluster::start(2, 1, &middle).await;
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let leaf = parent("leaf", &cluster.nodes[1].peer.grpc);
    let leaf = Coordinator::with(&leaf, Start::Fresh).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    for sequence in 1.. {
        let call = request("a/1", &[("tenant/acme", sequence, 0.0, 10.0)]);
        leaf.client().refresh(call).await.unwrap();
        let status = leaf.get("/v1/status").await.json();
        let above = &status["parent"]["above"];
        if above.as_array().is_some_and(|above| above.len() == 2) {
            assert_eq!(above[0], json!("eu"), "{above}");
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        sleep(Duration::from_millis(20)).await;
    }
}
