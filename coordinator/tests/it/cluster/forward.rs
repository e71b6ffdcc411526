//! Refreshes that a node passes on, many in a call.

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_net::wire::ForwardServiceClient;
use tollgate_proto::v1;
use tonic::{Code, Status};

use super::LIMITS;
use super::nodes::Cluster;
use crate::harness::request;

fn forwarded(shard: u32, epoch: u64, scopes: &[&str]) -> v1::ForwardedRefresh {
    let scopes: Vec<_> = scopes.iter().map(|scope| (*scope, 1, 0.0, 1.0)).collect();
    v1::ForwardedRefresh {
        shard,
        epoch,
        refresh: Some(request("envoy/a", &scopes)),
    }
}

/// Answers of the only node, which is master of shard 0 in term 100.
async fn answers(refreshes: Vec<v1::ForwardedRefresh>) -> Result<Vec<v1::ForwardedAnswer>, Status> {
    let mut cluster = Cluster::start(1, 1, LIMITS).await;
    cluster.elect(ShardId(0), 0, Epoch(100)).await;
    let mut node = ForwardServiceClient::new(cluster.nodes[0].channel.clone());
    let answers = node.forward(v1::ForwardRequest { refreshes }).await?;
    Ok(answers.into_inner().answers)
}

#[tokio::test]
async fn each_refresh_is_answered_by_itself_in_order() {
    let broken = v1::ForwardedRefresh {
        refresh: None,
        ..forwarded(0, 100, &[])
    };
    let rows = [
        (forwarded(0, 100, &["tenant/a"]), Code::Ok),
        (forwarded(1, 100, &["tenant/a"]), Code::Unavailable),
        (forwarded(70_000, 100, &["tenant/a"]), Code::Unavailable),
        (forwarded(0, 101, &["tenant/a"]), Code::Unavailable),
        (broken, Code::InvalidArgument),
        (forwarded(0, 0, &["tenant/b", "tenant/c"]), Code::Ok),
    ];
    let (refreshes, codes): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let requested = refreshes.clone();
    let answers = answers(refreshes).await.unwrap();
    assert_eq!(answers.len(), codes.len());
    for ((answer, code), requested) in answers.into_iter().zip(codes).zip(requested) {
        assert_eq!(answer.code, code as u32, "{answer:?}");
        assert_eq!(answer.error.is_empty(), code == Code::Ok);
        let Some(response) = answer.response else {
            assert_ne!(code, Code::Ok);
            continue;
        };
        let names = response.scopes.into_iter().map(|answer| answer.scope);
        let requested = requested.refresh.unwrap().scopes.into_iter();
        assert!(names.eq(requested.map(|requested| requested.scope)));
    }
}

#[tokio::test]
async fn a_call_has_at_most_so_many_refreshes_and_scopes() {
    let names: Vec<String> = (0..1001).map(|i| format!("tenant/{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let one = |scopes: usize| forwarded(0, 100, &names[..scopes]);
    let rows = [
        (vec![], "has 0, there must be 1 to 64"),
        (vec![one(1); 65], "has 65, there must be 1 to 64"),
        (vec![one(500), one(501)], "have 1001 scopes, at most 1000"),
    ];
    for (refreshes, rule) in rows {
        let status = answers(refreshes).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(rule), "{status}");
    }
    for refreshes in [vec![one(1); 64], vec![one(500), one(500)], vec![one(1000)]] {
        let answers = answers(refreshes).await.unwrap();
        assert!(answers.iter().all(|answer| answer.code == 0));
    }
    // One that has too many by itself is refused as it would be without being passed on.
    let answers = answers(vec![one(1001)]).await.unwrap();
    assert_eq!(answers[0].code, Code::InvalidArgument as u32);
}
