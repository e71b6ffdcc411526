//! Masters that are away or have lost their term, and nodes that peers mistake for a master.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tollgate_cluster::election::{Master, Masters, Peer, Term, TermDeadline};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use super::nodes::{Cluster, asked, passed_on};
use super::{LIMITS, tenants};

#[tokio::test]
async fn a_shard_without_a_master_costs_its_own_scopes_alone() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    let lost = ShardId(1);
    cluster.nodes[1].lost(lost).await;
    cluster.forget(lost).await;
    let tenants = tenants();
    for node in &cluster.nodes {
        let client = format!("envoy-{}/x", node.peer.node);
        for answer in node.refresh(&client, &tenants, 1.0).await {
            if cluster.shard_of(&answer.scope) == lost {
                let error = answer.outcome.unwrap_err();
                assert_eq!(error.code, Code::Unavailable as u32);
                assert_eq!(error.message, "shard 1 has no master now");
            } else {
                assert!(answer.outcome.is_ok(), "{answer:?}")
            }
        }
        let is_lost = |tenant: &&String| cluster.shard_of(tenant) == lost;
        let its: Vec<String> = tenants.iter().filter(is_lost).cloned().collect();
        let status = node
            .try_refresh(asked(&client, &its, 1.0))
            .await
            .unwrap_err();
        assert_eq!(
            status.code(),
            Code::Unavailable,
            "nothing at all could be answered"
        );
        let retry = status.get_error_details();
        let retry = retry.retry_info().and_then(|retry| retry.retry_delay);
        assert_eq!(retry, Some(Duration::from_millis(500)));
    }
}

#[tokio::test]
async fn two_nodes_that_take_each_other_for_the_master_do_not_call_for_ever() {
    let cluster = Cluster::start(2, 1, LIMITS).await;
    let [a, b] = &cluster.nodes[..] else { panic!() };
    for (node, other) in [(a, b), (b, a)] {
        let peer = Arc::new(other.peer.clone());
        let epoch = Epoch(1);
        node.told(Masters::new([Some(Master { peer, epoch })], Vec::new()))
            .await;
    }
    for node in [a, b] {
        let status = node
            .try_refresh(asked("envoy/x", &tenants(), 1.0))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("not the master"), "{status:?}");
    }
    for node in [a, b] {
        let calls = node.metrics().await["tollgate_refresh_calls_total"];
        assert_eq!(calls, 2.0, "its client's, and one that the other passed on");
    }
}

#[tokio::test]
async fn a_master_whose_term_is_over_answers_nothing() {
    let mut cluster = Cluster::start(2, 1, LIMITS).await;
    let shard = ShardId(0);
    let term = cluster.elect(shard, 0, Epoch(7)).await;
    let call = || asked("envoy/x", &tenants(), 1.0);
    for node in &cluster.nodes {
        assert!(node.try_refresh(call()).await.is_ok());
    }
    term.end();
    for node in &cluster.nodes {
        let status = node.try_refresh(call()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    // Nor does one that learns of its election when its time is over.
    let over = Term::new(Epoch(8), TermDeadline::at(Duration::from_nanos(1)));
    cluster.nodes[1].elected(shard, over, None).await;
    let status = cluster.nodes[1].try_refresh(call()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_call_that_was_passed_on_is_for_the_master_of_that_term_or_a_later_one() {
    let mut cluster = Cluster::start(2, 1, LIMITS).await;
    cluster.elect(ShardId(0), 0, Epoch(7)).await;
    let rows = [
        (0, 0, 6, Ok(())),
        (0, 0, 7, Ok(())),
        (0, 0, 8, Err(Code::Unavailable)),
        (1, 0, 7, Err(Code::Unavailable)),
        (0, 1, 7, Err(Code::Unavailable)),
    ];
    for (node, shard, epoch, want) in rows {
        let mut call = Request::new(asked("envoy/x", &tenants(), 1.0));
        passed_on(&mut call, ShardId(shard), epoch);
        let answer = cluster.nodes[node].try_refresh(call).await;
        let came = answer.map(drop).map_err(|status| status.code());
        assert_eq!(came, want, "shard {shard} of term {epoch} at node {node}");
    }
}

/// Nodes whose configurations differ for a moment must not lend one pool in two shards.
#[tokio::test]
async fn a_master_answers_for_scopes_of_its_own_shard_alone() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    let mut call = Request::new(asked("envoy/x", &tenants, 1.0));
    passed_on(&mut call, ShardId(0), 100);
    for answer in cluster.nodes[0].try_refresh(call).await.unwrap() {
        match cluster.shard_of(&answer.scope) {
            ShardId(0) => assert!(answer.outcome.is_ok()),
            _ => assert_eq!(answer.outcome.unwrap_err().code, Code::Unavailable as u32),
        }
    }
}

/// A master that is stopped keeps its connections open and says nothing.
#[tokio::test]
async fn a_master_that_hangs_costs_its_own_scopes_alone() {
    let cluster = Cluster::of_three(LIMITS).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = Peer {
        node: "silent".to_owned(),
        grpc: silent.local_addr().unwrap().to_string(),
        http: silent.local_addr().unwrap().to_string(),
        grpc_tls: false,
        http_tls: false,
    };
    let master = |peer: &Peer, epoch| Master {
        peer: Arc::new(peer.clone()),
        epoch: Epoch(epoch),
    };
    let [a, _, c] = &cluster.nodes[..] else {
        panic!()
    };
    let masters = [
        Some(master(&a.peer, 100)),
        Some(master(&peer, 101)),
        Some(master(&c.peer, 102)),
    ];
    a.told(Masters::new(masters, Vec::new())).await;
    let mut call = Request::new(asked("envoy/x", &tenants(), 1.0));
    call.set_timeout(Duration::from_secs(2));
    for answer in a.try_refresh(call).await.unwrap() {
        let hangs = cluster.shard_of(&answer.scope) == ShardId(1);
        assert_eq!(answer.outcome.is_err(), hangs, "{answer:?}");
    }
}
