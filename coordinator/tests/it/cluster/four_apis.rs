//! Clients of all four APIs on one resource, each at a node of its own choice.

use tollgate_tests::seeds::chosen;

use super::nodes::{Cluster, Node};
use crate::four_apis::{Fleet, Link, SEEDS, config};

#[tokio::test]
async fn what_all_apis_lend_at_three_nodes_never_adds_up_to_more_than_the_capacity() {
    for seed in chosen(SEEDS) {
        eprintln!("seed {seed}");
        let cluster = Cluster::of_three(&config(seed)).await;
        let link = |node: &Node| Link {
            channel: node.channel.clone(),
            http: node.http,
        };
        let nodes = cluster.nodes.iter().map(link).collect();
        Fleet::start(seed, nodes).await.play().await;
    }
}
