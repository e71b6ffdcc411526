//! Three coordinators with a shard each share the work, and no call is forwarded more than once.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tollgate_core::cluster::shard_of;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::v1;
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::wait;
use tonic::transport::Endpoint;

use crate::print_line;
use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 200}\n";
const SHARDS: u16 = 3;
const NODES: usize = 3;
/// Calls to each node.
const CALLS: u64 = 200;
/// Scopes in each call.
const SCOPES: u64 = 60;
/// Longest time for shards to move to their preferred nodes.
const SPREAD_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn three_coordinators_share_the_work_and_pass_nothing_on_twice() {
    run_test(
        "three_coordinators_share_the_work_and_pass_nothing_on_twice",
        spread,
    );
}

async fn spread(test: &TestContext) -> Result<()> {
    let spec = ClusterSpec {
        members: 1,
        nodes: NODES,
        shards: SHARDS,
        lease_s: 3,
        limits: LIMITS,
    };
    let cluster = Cluster::start(test.dir(), &spec).await?;
    let masters = spread_masters(&cluster).await?;
    let scopes: Vec<String> = (0..SCOPES).map(|i| format!("tenant/{i}")).collect();
    let mut of_node = [0; NODES];
    for scope in &scopes {
        let shard = shard_of(scope, NonZeroU16::try_from(SHARDS)?).0;
        of_node[masters[usize::from(shard)]] += 1;
    }
    let before = counts(&cluster).await?;
    for node in 0..NODES {
        call(&cluster, node, &scopes).await?;
    }
    let after = counts(&cluster).await?;

    let count = |node: usize, name: &str| after[node][name] - before[node][name];
    let (mut forwarded, mut calls) = (0, 0);
    for (node, own) in of_node.iter().enumerate() {
        let local = count(node, "tollgate_answered_total{by=\"local\"}");
        let peer = count(node, "tollgate_answered_total{by=\"peer\"}");
        print_line(&format!(
            "node {node}: {own} of {SCOPES} scopes; answered {local} itself, forwarded {peer}"
        ));
        // A node answers its own scopes for calls to any node, and forwards the others of its calls.
        assert_eq!(local, NODES as u64 * CALLS * own);
        assert_eq!(peer, CALLS * (SCOPES - own));
        assert_eq!(count(node, "tollgate_answered_total{by=\"none\"}"), 0);
        ensure!(*own >= SCOPES / 6, "the scopes are not spread: {of_node:?}");
        forwarded += peer;
        calls += count(node, "tollgate_refresh_calls_total");
    }
    // Each call is forwarded to the two other masters, and by them no further.
    assert_eq!(calls, NODES as u64 * CALLS * NODES as u64);
    print_line(&format!(
        "{} calls of clients made {calls} calls, {forwarded} scopes were forwarded",
        NODES as u64 * CALLS
    ));
    Ok(())
}

/// Master of each shard, once each node has one and no shard moves any more.
async fn spread_masters(cluster: &Cluster) -> Result<Vec<usize>> {
    wait::until("a shard at each node", SPREAD_WITHIN, async || {
        let masters = cluster.masters().await?;
        let masters: Option<Vec<usize>> = masters.into_iter().collect();
        let masters = masters.context("a shard is moving")?;
        let mut nodes = masters.clone();
        nodes.sort_unstable();
        nodes.dedup();
        ensure!(nodes.len() == NODES, "a node without a shard: {masters:?}");
        Ok(masters)
    })
    .await
}

async fn call(cluster: &Cluster, node: usize, scopes: &[String]) -> Result<()> {
    let address = cluster.addresses()[node];
    let channel = Endpoint::try_from(format!("http://{address}"))?
        .connect()
        .await?;
    let mut client = LeaseServiceClient::new(channel);
    for sequence in 1..=CALLS {
        let scope = |scope: &String| v1::ScopeRequest {
            scope: scope.clone(),
            units: vec![v1::UnitRequest {
                unit: v1::Unit::Requests.into(),
                sequence,
                wants: 10.0,
                ..v1::UnitRequest::default()
            }],
        };
        let answer = client
            .refresh(v1::RefreshRequest {
                client_id: format!("client-{node}/x"),
                scopes: scopes.iter().map(scope).collect(),
                incarnation: 1,
                term: 0,
            })
            .await?;
        ensure!(answer.into_inner().scopes.len() == scopes.len());
    }
    Ok(())
}

/// All metrics of each node.
async fn counts(cluster: &Cluster) -> Result<Vec<BTreeMap<String, u64>>> {
    let mut counts = Vec::new();
    for node in 0..cluster.len() {
        let metrics = cluster.coordinator(node).metrics().await?;
        let metrics = metrics.into_iter();
        counts.push(metrics.map(|(name, value)| (name, value as u64)).collect());
    }
    Ok(counts)
}
