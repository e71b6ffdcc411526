//! Lease tables of the whole cluster, read from any node.

use serde_json::{Value, json};
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_net::wire::PeerServiceClient;
use tollgate_proto::v1;

use super::nodes::{Cluster, Node};
use super::{LIMITS, tenants};
use crate::harness::Ask;

/// All pages of a list at `node`, `limit` entries each.
async fn list(node: &Node, list: &str, key: &str, limit: usize) -> Vec<Value> {
    list_of(node, list, list, key, limit).await
}

/// The same of a path whose list has another name.
async fn list_of(node: &Node, path: &str, list: &str, key: &str, limit: usize) -> Vec<Value> {
    let mut entries = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/{path}?limit={limit}&after={after}");
        let page = node.get(&path).await.json();
        assert_eq!(page["unanswered"], Value::Null, "all have");
        let found = page[list].as_array().unwrap();
        assert!(found.len() <= limit);
        entries.extend(found.iter().cloned());
        let Some(next) = page["next"].as_str() else {
            return entries;
        };
        assert_eq!(Some(next), found.last().unwrap()[key].as_str());
        after = next.replace('/', "%2F");
    }
}

#[tokio::test]
async fn every_node_shows_the_books_of_all() {
    let cluster = Cluster::of_three(LIMITS).await;
    let mut tenants = tenants();
    tenants.sort();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 60.0).await;
    for node in &cluster.nodes {
        for limit in [7, 1000] {
            let scopes = list(node, "scopes", "scope", limit).await;
            let names: Vec<_> = scopes
                .iter()
                .map(|scope| scope["scope"].as_str().unwrap())
                .collect();
            assert_eq!(names, tenants);
        }
        for tenant in &tenants {
            let scope = node.get(&format!("/v1/scopes/{tenant}")).await.json();
            assert_eq!(scope["units"]["requests"]["clients"][0]["has"], 60.0);
        }
        assert_eq!(node.get("/v1/scopes/tenant/nobody").await.status, 404);
        let clients = list(node, "clients", "client", 10).await;
        assert_eq!(clients.len(), 1);
        assert_eq!(clients[0]["resource_count"], 30);
        let client = node.get("/v1/clients/envoy-a%2Fx").await.json();
        assert_eq!(client["lease_count"], 30);
        assert_eq!(client["leases"].as_array().unwrap().len(), 30);
    }
    // A node that is asked by another answers for itself alone: nothing goes round.
    let mut alone = 0;
    for node in &cluster.nodes {
        let mut peer = PeerServiceClient::new(node.channel.clone());
        let request = v1::ListPeerRequest {
            after: String::new(),
            limit: 1000,
        };
        let list = peer.list_scopes(request).await.unwrap().into_inner();
        let page: Value = serde_json::from_slice(&list.json).unwrap();
        alone += page["scopes"].as_array().unwrap().len();
    }
    assert_eq!(alone, 30);
}

#[tokio::test]
async fn quotas_are_changed_and_read_at_any_node() {
    let limits = "limits: [{match: 'tenant/*', requests: {quota: {amount: 100, per: year}}}]";
    let cluster = Cluster::of_three(limits).await;
    let mut tenants = tenants();
    tenants.sort();
    for (tenant, node) in tenants.iter().zip(cluster.nodes.iter().cycle()) {
        let path = format!("/v1/quotas/{tenant}");
        let change = Ask::post(&path, r#"{"set_used": 40}"#);
        let changed = node.ask(&change).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        for node in &cluster.nodes {
            let quota = &node.get(&path).await.json()["units"]["requests"][0];
            assert_eq!(
                (&quota["used"], &quota["left"]),
                (&json!(40.0), &json!(60.0))
            );
        }
        let refused = Ask::post(&path, r#"{"credit": {"id": "a", "amount": 1, "until": 1}}"#);
        let refused = node.ask(&refused).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert_eq!(
            refused.json()["detail"],
            "the credit would have expired already"
        );
    }
    for node in &cluster.nodes {
        for limit in [7, 1000] {
            let quotas = list_of(node, "quotas", "scopes", "scope", limit).await;
            let names = quotas.iter().map(|scope| scope["scope"].as_str().unwrap());
            assert!(names.eq(tenants.iter().map(|tenant| &**tenant)));
        }
    }
}

#[tokio::test]
async fn a_client_is_drained_in_all_shards() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    let [a, b, c] = &cluster.nodes[..] else {
        panic!()
    };
    // It has leases in one shard only, so far.
    let is_first = |tenant: &String| cluster.shard_of(tenant) == ShardId(0);
    let (first, rest): (Vec<String>, Vec<String>) = tenants.into_iter().partition(is_first);
    a.refresh("envoy-a/x", &first, 60.0).await;
    let drain = Ask::new("POST", "/v1/clients/envoy-a%2Fx/drain?for=1m");
    let answer = b.ask(&drain).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    for answer in c.refresh("envoy-a/x", &rest, 60.0).await {
        let lease = answer.outcome.unwrap()[0].answer.lease.unwrap();
        assert_eq!(lease.capacity.as_f64(), 0.0);
    }
    assert_eq!(
        b.ask(&Ask::delete("/v1/clients/envoy-a%2Fx/drain"))
            .await
            .status,
        204
    );
    for answer in c.refresh("envoy-b/x", &rest, 60.0).await {
        let lease = answer.outcome.unwrap()[0].answer.lease.unwrap();
        assert_eq!(lease.capacity.as_f64(), 60.0);
    }
    let drain = Ask::new("POST", "/v1/clients/nobody/drain?for=1m");
    assert_eq!(b.ask(&drain).await.status, 404);
}

/// All nodes know of a drain, so a new master without the old lease table keeps it.
#[tokio::test]
async fn a_drain_outlives_the_master() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 60.0).await;
    let drain = Ask::new("POST", "/v1/clients/envoy-a%2Fx/drain?for=10m");
    assert_eq!(cluster.nodes[1].ask(&drain).await.status, 200);
    let gets = async |cluster: &Cluster, client: &str| {
        let answers = cluster.nodes[0].refresh(client, &tenants, 60.0).await;
        let leases = answers.into_iter().map(|answer| {
            let lease = answer.outcome.unwrap()[0].answer.lease.unwrap();
            (cluster.shard_of(&answer.scope), lease.capacity.as_f64())
        });
        leases.collect::<Vec<_>>()
    };
    // A master that dies, and its shard moves.
    cluster.nodes[0].lost(ShardId(0)).await;
    cluster.elect(ShardId(0), 1, Epoch(200)).await;
    for (shard, has) in gets(&cluster, "envoy-a/y").await {
        let left = if shard == ShardId(0) { 60.0 } else { 40.0 };
        assert_eq!(
            has, left,
            "of {shard}, whose lease table knew another client"
        );
    }
    // The other shards repeat their answers.
    let of_first = async |cluster: &Cluster| {
        let all = gets(cluster, "envoy-a/x").await.into_iter();
        let first = all.filter(|(shard, _)| *shard == ShardId(0));
        first.map(|(_, has)| has).collect::<Vec<_>>()
    };
    let first = of_first(&cluster).await;
    assert!(
        !first.is_empty() && first.iter().all(|has| *has == 0.0),
        "{first:?}"
    );
    let client = cluster.nodes[2].get("/v1/clients/envoy-a%2Fx").await.json();
    assert!(client["drained_for_ms"].as_u64().unwrap() > 0, "{client}");
    // A drain that was ended stays ended.
    let undrain = Ask::delete("/v1/clients/envoy-a%2Fx/drain");
    assert_eq!(cluster.nodes[2].ask(&undrain).await.status, 204);
    cluster.nodes[1].lost(ShardId(0)).await;
    cluster.elect(ShardId(0), 2, Epoch(300)).await;
    let first = of_first(&cluster).await;
    assert!(first.iter().all(|has| *has == 60.0), "{first:?}");
}

#[tokio::test]
async fn a_read_says_who_did_not_answer() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    cluster.nodes[0].refresh("envoy-a/x", &tenants(), 1.0).await;
    let gone = cluster.nodes.remove(2);
    let name = gone.peer.node.clone();
    gone.stop().await;
    let page = cluster.nodes[0].get("/v1/scopes?limit=1000").await.json();
    assert_eq!(page["unanswered"], serde_json::json!([name]));
    let there = page["scopes"].as_array().unwrap().len();
    assert!(there > 0 && there < 30, "{there}");
}
