//! Nudges that go down a tree.

use std::time::Duration;

use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::Start;

use super::{Envoy, ROOT, below, metric};
use crate::harness::{Coordinator, EPOCH};
use crate::nudges::Watching;

/// Limits whose regular refreshes come later than the test waits.
const SELDOM: &str = "limits: [{match: 'tenant/*', requests: \
    {rate: 100, lease: 600s, refresh: 240s, min_refresh: 20ms, headroom: 0}}]";

/// An Envoy at the root takes a part from one at the leaf.
#[tokio::test]
async fn a_change_at_the_root_reaches_the_clients_of_a_leaf() {
    let root = Coordinator::with(SELDOM, Start::Fresh).await;
    let leaf = below("eu", &[&root], SELDOM).await;
    let mut at_leaf = Envoy::new(&leaf, "a/1");
    at_leaf.until(100.0, 100.0).await;
    // A lease lasts for the minimum interval.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut nudged_at_leaf = Watching::start(leaf.client(), "a/1").await;
    let mut at_root = Envoy::new(&root, "b/1");
    let mut nudged_at_root = Watching::start(root.client(), "b/1").await;
    while metric(&root, "tollgate_watches").await < 2.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shrinks = async {
        loop {
            nudged_at_leaf.named("tenant/acme").await;
            at_leaf.refresh(100.0).await;
        }
    };
    let grows = async {
        at_root.refresh(100.0).await;
        while at_root.has < 50.0 {
            nudged_at_root.named("tenant/acme").await;
            at_root.refresh(100.0).await;
        }
    };
    tokio::select! {
        () = shrinks => {}
        () = grows => {}
    }
    assert_eq!(at_root.has, 50.0);
    assert_eq!(at_leaf.has, 50.0);
}

#[tokio::test]
async fn a_leaf_watches_again_when_its_root_is_back() {
    let root = Coordinator::with(ROOT, Start::Fresh).await;
    let port = root.grpc.port();
    let leaf = below("eu", &[&root], "limits: []").await;
    let watched = async |root: &Coordinator| {
        while metric(root, "tollgate_watches").await < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    watched(&root).await;
    root.stop().await.unwrap();
    let root = Coordinator::at(port, ROOT, Start::Fresh, Epoch(EPOCH + 1)).await;
    watched(&root).await;
    drop(leaf);
}
