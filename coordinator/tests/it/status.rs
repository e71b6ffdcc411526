//! How the coordinator is doing.

use crate::harness::Coordinator;

const LIMITS: &str = "- {match: tenant/acme, requests: {rate: 100, headroom: 0}}
- {match: '*', requests: {rate: unlimited}}";

#[tokio::test]
async fn the_busiest_come_first_with_those_that_have_most() {
    let coordinator = Coordinator::start(LIMITS).await;
    coordinator.gets("a", "tenant/acme", 1, (0.0, 90.0)).await;
    coordinator.gets("b", "tenant/acme", 1, (0.0, 60.0)).await;
    let idle = [("tenant/idle", 1, 0.0, 5.0)];
    coordinator.refresh("a", &idle).await;
    let status = coordinator.get("/v1/status?clients=1").await.json();
    assert_eq!(status["epoch"], crate::harness::EPOCH);
    let requests = &status["units"]["requests"];
    assert_eq!(requests["client_count"], 3);
    assert_eq!(requests["unlimited_count"], 1);
    assert_eq!(requests["capacity"], 100.0);
    assert_eq!(requests["sum_wants"], 155.0);
    let busiest = status["busiest"].as_array().unwrap();
    let scopes: Vec<_> = busiest.iter().map(|one| &one["scope"]).collect();
    assert_eq!(scopes, ["tenant/acme", "tenant/idle"]);
    let acme = &busiest[0];
    assert_eq!(acme["waiting_count"], 1);
    assert_eq!(acme["client_count"], 2);
    assert_eq!(acme["clients"].as_array().unwrap().len(), 1);
    assert_eq!(acme["clients"][0]["client"], "a");
    let one = coordinator.get("/v1/status?resources=1").await.json();
    assert_eq!(one["busiest"].as_array().unwrap().len(), 1);
    for bad in ["resources=0", "resources=201", "clients=51", "depth=1"] {
        let answer = coordinator.get(&format!("/v1/status?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn resources_are_searched_filtered_and_sorted() {
    let coordinator = Coordinator::start(LIMITS).await;
    let scopes = [
        ("tenant/acme", 1, 0.0, 150.0),
        ("route/acme", 1, 0.0, 7.0),
        ("tenant/Bee", 1, 0.0, 9.0),
    ];
    coordinator.refresh("a", &scopes).await;
    let rows = [
        ("search=ACME", 2, ["tenant/acme", "route/acme"].as_slice()),
        ("search=bee", 1, &["tenant/Bee"]),
        ("search=nobody", 0, &[]),
        ("only=throttled", 1, &["tenant/acme"]),
        ("unit=concurrency", 0, &[]),
        (
            "sort=scope&order=asc",
            3,
            &["route/acme", "tenant/Bee", "tenant/acme"],
        ),
        ("sort=wanted&order=asc&resources=1", 3, &["route/acme"]),
        (
            "sort=capacity&unit=requests&search=tenant",
            2,
            &["tenant/Bee", "tenant/acme"],
        ),
    ];
    for (query, matching, want) in rows {
        let status = coordinator.get(&format!("/v1/status?{query}")).await;
        let status = status.json();
        let found = status["busiest"].as_array().unwrap().iter();
        let found: Vec<_> = found.map(|one| one["scope"].as_str().unwrap()).collect();
        assert_eq!(found, want, "{query}");
        assert_eq!(status["match_count"], matching, "{query}");
        assert_eq!(status["resource_count"], 3, "{query}");
    }
    let long = format!("search={}", "a".repeat(201));
    for bad in ["sort=size", "order=up", "unit=bytes", "only=waiting", &long] {
        let answer = coordinator.get(&format!("/v1/status?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}
