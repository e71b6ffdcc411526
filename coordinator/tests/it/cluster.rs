//! Several coordinators in one process that share the shards between them. The test names the
//! master of each shard, in place of an election.

mod doorman;
mod elected;
mod faults;
mod forward;
mod four_apis;
mod health;
mod nodes;
mod nudges;
mod peers;
mod reads;
mod rlqs;
mod rls;
mod rust_client;
mod status;
mod tls;
mod tree;

use std::collections::BTreeMap;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::{Epoch, Origin};
use tollgate_proto::response::ScopeAnswer;

use self::nodes::Cluster;
use crate::harness::{unit, whole};

/// Thirty tenants, each with a capacity of 100.
const LIMITS: &str = "limits: [{match: tenant/*, requests: {rate: 100, headroom: 0}}]";

/// All of them.
fn tenants() -> Vec<String> {
    (0..30).map(|i| format!("tenant/{i}")).collect()
}

#[tokio::test]
async fn a_call_to_any_node_is_answered_from_the_same_books() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    let mut owned: BTreeMap<ShardId, usize> = BTreeMap::new();
    for (i, node) in cluster.nodes.iter().enumerate() {
        let client = format!("envoy-{i}/x");
        let answers = node.refresh(&client, &tenants, 60.0).await;
        let scopes: Vec<&str> = answers.iter().map(|answer| &*answer.scope).collect();
        assert_eq!(scopes, tenants, "in the order of the call");
        for answer in &answers {
            let gets = unit(answer).answer.lease.unwrap().capacity;
            assert_eq!(gets, whole([60, 40, 0][i]), "what the others leave");
            let shard = cluster.shard_of(&answer.scope);
            let epoch = Epoch(100 + u64::from(shard.0));
            let shard = Some(shard);
            assert_eq!(answer.origin, Origin { shard, epoch });
            *owned.entry(answer.origin.shard.unwrap()).or_default() += 1;
        }
    }
    // The work is spread: each node answers for its own shard, and none is asked more than once.
    assert_eq!(owned.len(), 3);
    for (node, (_, count)) in cluster.nodes.iter().zip(owned) {
        let metrics = node.metrics().await;
        assert_eq!(
            metrics["tollgate_answered_total{by=\"local\"}"],
            count as f64
        );
        let own = count as f64 / 3.0;
        assert_eq!(metrics["tollgate_answered_total{by=\"peer\"}"], 30.0 - own);
        assert_eq!(metrics["tollgate_answered_total{by=\"none\"}"], 0.0);
        // Its own call, and one from each of the others.
        assert_eq!(metrics["tollgate_refresh_calls_total"], 3.0);
    }
}

#[tokio::test]
async fn what_is_released_anywhere_is_free_everywhere() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    let [a, b, c] = &cluster.nodes[..] else {
        panic!()
    };
    a.refresh("envoy-a/x", &tenants, 100.0).await;
    for answer in b.refresh("envoy-b/x", &tenants, 100.0).await {
        assert_eq!(unit(&answer).answer.lease.unwrap().capacity, whole(0));
    }
    c.release("envoy-a/x", &tenants).await;
    for answer in b.refresh("envoy-c/x", &tenants, 50.0).await {
        assert_eq!(unit(&answer).answer.lease.unwrap().capacity, whole(50));
    }
}

/// A pool is in one shard, so its members are, whatever their own names say.
#[tokio::test]
async fn members_of_a_group_share_its_capacity_whoever_is_asked() {
    let attach: String = (0..30).map(|i| format!("\"{i}\": gold, ")).collect();
    let yaml = format!(
        "{LIMITS}\ngroups: {{gold: {{requests: {{rate: 90, headroom: 0}}}}}}\n\
         attach: {{tenants: {{{attach}}}}}"
    );
    let cluster = Cluster::of_three(&yaml).await;
    let tenants = tenants();
    let mut lent = 0.0;
    for (i, node) in cluster.nodes.iter().enumerate() {
        for answer in node.refresh(&format!("envoy-{i}/x"), &tenants, 50.0).await {
            assert_eq!(answer.origin.shard, Some(cluster.shard_of("group/gold")));
            let lease = unit(&answer).answer.lease;
            lent += lease.map_or(0.0, |lease| lease.capacity.as_f64());
        }
    }
    assert!(lent > 0.0 && lent <= 90.0, "{lent}");
}

/// A rolling restart moves shards about; whoever has a lease goes on as if nothing had been.
#[tokio::test]
async fn books_go_along_with_a_shard() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 60.0).await;
    let snapshot = cluster.nodes[0].steps_down(ShardId(0)).await;
    assert!(snapshot.is_some());
    let wants_all = |answers: Vec<ScopeAnswer>| -> Vec<_> {
        let gets = answers.into_iter().map(|answer| {
            let units = answer.outcome.ok()?;
            Some((answer.origin.epoch, units[0].answer.lease?.capacity))
        });
        gets.collect()
    };
    // In between the shard has no master: its scopes wait, and no old lease table answers them.
    let between = wants_all(cluster.nodes[2].refresh("envoy-b/x", &tenants, 60.0).await);
    let is_moved = |tenant: &String| cluster.shard_of(tenant) == ShardId(0);
    let moved: Vec<bool> = tenants.iter().map(is_moved).collect();
    for (answer, moved) in between.iter().zip(&moved) {
        assert_eq!(answer.is_none(), *moved, "{answer:?}");
    }
    cluster
        .elect_with(ShardId(0), 1, Epoch(200), snapshot)
        .await;
    let after = wants_all(cluster.nodes[2].refresh("envoy-c/x", &tenants, 60.0).await);
    for (answer, moved) in after.into_iter().zip(moved) {
        let (epoch, gets) = answer.expect("no learning");
        let left = if moved { 40 } else { 0 };
        assert_eq!((epoch == Epoch(200), gets), (moved, whole(left)));
    }
}
