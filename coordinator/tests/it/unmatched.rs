//! Limits of rules that no client asks for.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitServiceClient;

use crate::harness::{Ask, Coordinator};
use crate::rls::descriptor;
use crate::{doorman, rlqs, rls};

const YAML: &str = "limits:
- {match: tennant/acme, requests: {rate: 5}}
- {match: 'tennant/*', requests: {rate: 5}}
- {match: 'usr@gold/*', requests: {rate: 5}}
- {match: 'tenant/*', requests: {rate: 5}}
- {match: 'user@gold/*', requests: {rate: 5}}
- {match: '*', requests: {rate: 5}}
groups: {gold: {requests: {rate: 50}}}
rls: {domains: {edge: {scopes: [{scope: 'edge/{ip}'}]}}}
rlqs: {domains: {edge: {scope: 'quota/{tenant}'}}}";

/// Lets `time` pass at once for the whole process.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn patterns(status: &Value) -> Vec<&str> {
    let limits = status["unmatched_limits"].as_array();
    let limits = limits.into_iter().flatten();
    limits.map(|one| one["match"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_limit_of_a_rule_that_no_client_asks_for_is_marked() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    let body = r#"{"requests": {"rate": 1}}"#;
    for scope in ["tenant/bee", "rote/x", "tennant/bee"] {
        let put = Ask::put(&format!("/v1/overrides/{scope}"), body);
        assert_eq!(coordinator.ask(&put).await.status, 201);
    }
    pass(Duration::from_secs(150)).await;
    let silent = coordinator.get("/v1/status").await.json();
    assert_eq!(silent["rules"]["names"], json!([]));
    assert_eq!(patterns(&silent), [""; 0], "no client has asked");

    let scopes = ["tenant/acme", "user@silver/bob", "route/x"].map(|scope| (scope, 1, 0.0, 1.0));
    coordinator.refresh("envoy-1/a", &scopes).await;
    // Long after the leases have ended.
    pass(Duration::from_secs(600)).await;
    let status = coordinator.get("/v1/status").await.json();
    assert_eq!(status["resource_count"], 0);
    assert_eq!(status["rules"]["names"], json!(["route", "tenant", "user"]));
    let want = [
        "tennant/acme",
        "tennant/*",
        "usr@gold/*",
        "rote/x",
        "tennant/bee",
    ];
    assert_eq!(patterns(&status), want);
    assert_eq!(status["unmatched_limit_count"], 5);
    let first = json!({
        "match": "tennant/acme", "source": "file", "rule": "tennant", "similar": "tenant",
    });
    assert_eq!(status["unmatched_limits"][0], first);
    assert_eq!(status["unmatched_limits"][3]["source"], "override");
    let page = coordinator.get("/").await.body;
    let reason = "no client has asked for a rule called tennant in the last 10m";
    assert!(page.contains("<bdi>tennant/*</bdi>"), "{page}");
    assert!(
        page.contains(reason) && page.contains("; did you mean tenant?"),
        "{page}"
    );
}

#[tokio::test]
async fn a_coordinator_that_has_just_started_marks_nothing() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    coordinator.gets("a", "tenant/acme", 1, (0.0, 1.0)).await;
    pass(Duration::from_secs(100)).await;
    let status = coordinator.get("/v1/status").await.json();
    assert_eq!(status["rules"]["names"], json!(["tenant"]));
    assert_eq!(status["unmatched_limit_count"], 0);
    let page = coordinator.get("/").await.body;
    assert!(!page.contains("tennant"), "{page}");
}

#[tokio::test]
async fn requests_of_all_protocols_name_rules() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    let channel = rlqs::connect(&coordinator);
    coordinator.gets("a", "tenant/acme", 1, (0.0, 1.0)).await;
    doorman::Client::new(&channel, "go:1", "cpu")
        .gets(1.0)
        .await;
    let proxy = rls::Proxy::new(RateLimitServiceClient::new(channel.clone()));
    proxy.leased(descriptor("ip", "10.0.0.1")).await;
    let mut quotas = rlqs::Proxy::over(channel, None, "edge", &[("acme", 0, 1)])
        .await
        .unwrap();
    quotas.assignments().await;
    let status = coordinator.get("/v1/status").await.json();
    let want = json!(["doorman", "edge", "quota", "tenant"]);
    assert_eq!(status["rules"]["names"], want);
}
