//! The last ten minutes, over the admin API.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::Coordinator;

const LIMITS: &str = "- {match: tenant/acme, requests: {rate: 100, headroom: 0}}";

/// Longest wait for a sample, which comes every five seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the last value of a list that is no gap.
pub(crate) fn latest(values: &Value) -> Option<f64> {
    let values = values.as_array().unwrap();
    assert_eq!(values.len(), 120);
    values.iter().rev().find_map(Value::as_f64)
}

/// Calls `read` until it returns something.
pub(crate) async fn eventually<T>(read: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = read().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.expect("a sample")
}

#[tokio::test]
async fn a_coordinator_records_what_its_clients_have() {
    let coordinator = Coordinator::start(LIMITS).await;
    let empty = coordinator.get("/v1/history").await.json();
    assert_eq!(empty["step_ms"], 5000);
    assert_eq!(empty["units"], serde_json::json!({}));
    let sequence = AtomicU64::new(0);
    let overview = eventually(async || {
        // The lease of a client that is silent would expire.
        let sequence = sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let asks = [("tenant/acme", sequence, 0.0, 130.0)];
        coordinator.refresh("envoy-1/a", &asks).await;
        let overview = coordinator.get("/v1/history?resources=1").await.json();
        let has_sample = !overview["resources"].as_array()?.is_empty();
        has_sample.then_some(overview)
    });
    let overview = overview.await;
    let sums = &overview["units"]["requests"];
    assert_eq!(latest(&sums["sum_wants"]), Some(130.0));
    assert_eq!(latest(&sums["capacity"]), Some(100.0));
    let busiest = &overview["resources"][0];
    assert_eq!(busiest["scope"], "tenant/acme");
    assert_eq!(latest(&busiest["sum_has"]), Some(100.0));
    let scope = coordinator.get("/v1/history?scope=tenant/acme").await;
    let requests = &scope.json()["units"]["requests"];
    assert_eq!(latest(&requests["at_most"]), Some(100.0));
    assert_eq!(latest(&requests["waiting_count"]), Some(1.0));
    let client = &requests["clients"][0];
    assert_eq!(client["client"], "envoy-1/a");
    assert_eq!(latest(&client["has"]), Some(100.0));
    let bytes = coordinator.get("/v1/history?unit=request_bytes").await;
    assert_eq!(bytes.json()["resources"], serde_json::json!([]));
    let other = coordinator.get("/v1/history?scope=tenant/other").await;
    assert_eq!(other.json()["units"], serde_json::json!({}));
}

#[tokio::test]
async fn a_wrong_query_is_refused() {
    let coordinator = Coordinator::start(LIMITS).await;
    let long = format!("scope={}", "a".repeat(257));
    for bad in [
        "resources=0",
        "resources=201",
        "unit=bytes",
        "scope=",
        &long,
        "a=1",
    ] {
        let answer = coordinator.get(&format!("/v1/history?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}
