//! How the whole cluster is doing, from any node.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_core::cluster::ShardId;

use super::nodes::Cluster;
use super::{LIMITS, tenants};
use crate::harness::Ask;
use crate::history::{eventually, latest};
use crate::unmatched::pass;

/// `any:open sesame`, as a browser sends it.
const PASSWORD: &str = "Basic YW55Om9wZW4gc2VzYW1l";

/// The SHA-256 hash of `open sesame`.
const HASH: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

#[tokio::test]
async fn every_node_shows_the_sums_and_the_busiest_of_all() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 10.0).await;
    // One of each shard is asked for more than the others.
    let of = |shard| {
        let mut all = tenants.iter();
        all.find(|tenant| cluster.shard_of(tenant) == ShardId(shard))
    };
    let busy: Vec<String> = (0..3).filter_map(of).cloned().collect();
    for (tenant, wants) in busy.iter().zip([300.0, 200.0, 400.0]) {
        let one = std::slice::from_ref(tenant);
        cluster.nodes[0].refresh("envoy-b/x", one, wants).await;
    }
    for node in &cluster.nodes {
        let status = node.get("/v1/status?resources=4&clients=1").await.json();
        assert_eq!(status["unanswered"], Value::Null);
        assert_eq!(status["epoch"], 102, "of the latest term");
        let requests = &status["units"]["requests"];
        assert_eq!(requests["resource_count"], 30);
        assert_eq!(requests["client_count"], 33);
        assert_eq!(requests["capacity"], 3000.0);
        assert_eq!(requests["sum_wants"], 1200.0);
        let busiest = status["busiest"].as_array().unwrap();
        let scopes: Vec<_> = busiest
            .iter()
            .map(|one| one["scope"].as_str().unwrap())
            .collect();
        assert_eq!(scopes.len(), 4);
        assert_eq!(scopes[..3], [&*busy[2], &*busy[0], &*busy[1]]);
        let known = &status["cluster"];
        assert_eq!(known["node"], *node.peer.node);
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            let one = &known["nodes"][i];
            assert_eq!((&one["node"], &one["alive"]), (&json!(name), &json!(true)));
            assert!(
                one["uptime_ms"].is_u64() && one["version"].is_string(),
                "{one}"
            );
            let shard = &known["shards"][i];
            assert_eq!(
                (&shard["master"], &shard["epoch"]),
                (&json!(name), &json!(100 + i))
            );
            assert_eq!(shard["learning_count"], 0);
        }
        let page = node.get("/").await.body;
        for tenant in &busy {
            assert!(page.contains(&format!("<bdi>{tenant}</bdi>")), "{page}");
        }
    }
}

#[tokio::test]
async fn every_node_finds_the_same_resources_of_all() {
    let cluster = Cluster::of_three(LIMITS).await;
    let mut tenants = tenants();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 10.0).await;
    tenants.sort();
    tenants.reverse();
    for node in &cluster.nodes {
        let read = async |query: &str| {
            let status = node.get(&format!("/v1/status?{query}")).await.json();
            assert_eq!(status["unanswered"], Value::Null);
            assert_eq!(status["resource_count"], 30);
            let found = status["busiest"].as_array().unwrap().iter();
            let scopes = found.map(|one| one["scope"].as_str().unwrap().to_owned());
            (status["match_count"].clone(), scopes.collect::<Vec<_>>())
        };
        let (count, scopes) = read("sort=scope&order=desc&resources=7").await;
        assert_eq!((count, &scopes[..]), (json!(30), &tenants[..7]));
        let last = tenants[0].to_uppercase().replace('/', "%2F");
        let (count, scopes) = read(&format!("search={last}")).await;
        assert_eq!((count, &scopes[..]), (json!(1), &tenants[..1]));
        let (count, scopes) = read("only=throttled").await;
        assert_eq!((count, scopes.len()), (json!(0), 0));
    }
}

#[tokio::test]
async fn every_node_has_the_history_of_all() {
    let cluster = Cluster::of_three(LIMITS).await;
    let tenants = tenants();
    for node in &cluster.nodes {
        let overview = eventually(async || {
            // The leases of a client that is silent would expire.
            cluster.nodes[0].refresh("envoy-a/x", &tenants, 10.0).await;
            let overview = node.get("/v1/history?resources=40").await.json();
            assert_eq!(overview["unanswered"], Value::Null);
            let wanted = latest(overview["units"]["requests"].get("sum_wants")?);
            (wanted == Some(300.0)).then_some(overview)
        });
        let overview = overview.await;
        let resources = overview["resources"].as_array().unwrap();
        assert_eq!(resources.len(), 30, "of all shards");
        for one in resources {
            assert_eq!(latest(&one["sum_has"]), Some(10.0), "{one}");
        }
        let path = format!("/v1/history?scope={}", tenants[7]);
        let scope = node.get(&path).await.json();
        let client = &scope["units"]["requests"]["clients"][0];
        assert_eq!(latest(&client["has"]), Some(10.0), "{scope}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_is_named() {
    let mut cluster = Cluster::of_three(LIMITS).await;
    cluster.nodes[0].refresh("envoy-a/x", &tenants(), 1.0).await;
    cluster.nodes.remove(1).stop().await;
    // Its peers count it as a node until its lease in etcd expires. A connection may outlast its server for a moment.
    let status = eventually(async || {
        let status = cluster.nodes[0].get("/v1/status").await.json();
        (status["unanswered"] == json!(["b"])).then_some(status)
    });
    let status = status.await;
    let nodes = &status["cluster"]["nodes"];
    assert_eq!(
        [&nodes[1]["alive"], &nodes[2]["alive"]],
        [&json!(false), &json!(true)]
    );
    let shards = &status["cluster"]["shards"];
    assert_eq!(
        shards[1]["learning_count"],
        Value::Null,
        "its master was not heard"
    );
    let there = status["units"]["requests"]["resource_count"]
        .as_u64()
        .unwrap();
    assert!(there > 0 && there < 30, "{there}");
}

/// A browser sends the token as a password, which is taken for the page alone.
#[tokio::test]
async fn the_page_of_a_node_has_what_its_reader_may_read_at_the_others() {
    let admin = format!("admin: {{tokens: [{{name: ops, role: viewer, sha256: {HASH}}}]}}");
    let cluster = Cluster::of_three(&format!("{LIMITS}\n{admin}")).await;
    let tenants = tenants();
    cluster.nodes[0].refresh("envoy-a/x", &tenants, 10.0).await;
    let node = &cluster.nodes[0];
    assert_eq!(node.get("/").await.status, 401);
    let ask = Ask::get("/").header("authorization", PASSWORD);
    let page = node.ask(&ask).await;
    assert_eq!(page.status, 200, "{}", page.body);
    for tenant in &tenants {
        let row = format!("<bdi>{tenant}</bdi>");
        assert!(page.body.contains(&row), "no {tenant}");
    }
    // So are the pages of scopes that other nodes lead.
    for tenant in &tenants {
        let path = format!("/scopes/{tenant}");
        let ask = Ask::get(&path).header("authorization", PASSWORD);
        let page = node.ask(&ask).await.body;
        assert!(page.contains("<bdi>envoy-a/x</bdi>"), "{tenant}: {page}");
        assert!(!page.contains("did not answer"), "{tenant}: {page}");
    }
}

/// A rule is known if any node has been asked for it, and none is if a node does not say.
#[tokio::test]
async fn a_limit_is_unmatched_only_if_no_node_has_been_asked_for_its_rule() {
    let limits = "limits: [{match: 'tennant/*', requests: {rate: 5}}, {match: 'tenant/*', \
                  requests: {rate: 5}}, {match: 'route/*', requests: {rate: 5}}]";
    let mut cluster = Cluster::of_three(limits).await;
    let of = |rule: &str, shard| {
        let mut ids = (0..).map(|i| format!("{rule}/{i}"));
        ids.find(|id| cluster.shard_of(id) == ShardId(shard))
            .unwrap()
    };
    let scopes = [of("tenant", 1), of("route", 2)];
    cluster.nodes[0].refresh("envoy-a/x", &scopes, 1.0).await;
    pass(Duration::from_secs(150)).await;
    for node in &cluster.nodes {
        let status = node.get("/v1/status").await.json();
        assert_eq!(status["unanswered"], Value::Null);
        assert_eq!(status["rules"]["names"], json!(["route", "tenant"]));
        assert_eq!(status["unmatched_limit_count"], 1);
        assert_eq!(status["unmatched_limits"][0]["match"], "tennant/*");
    }
    cluster.nodes.remove(1).stop().await;
    let status = eventually(async || {
        let status = cluster.nodes[0].get("/v1/status").await.json();
        (status["unanswered"] == json!(["b"])).then_some(status)
    });
    let status = status.await;
    assert_eq!(status["rules"], Value::Null);
    assert_eq!(status["unmatched_limit_count"], 0);
}
