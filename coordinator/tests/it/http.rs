//! Pages for people, and metrics for Prometheus.

use serde_json::json;

use crate::harness::{Coordinator, EPOCH};

const LIMITS: &str = "- {match: tenant/acme, requests: {rate: 100, safe: 5, headroom: 0}}
- {match: '*', requests: {rate: unlimited}}";

#[tokio::test]
async fn a_scope_shows_its_capacity_and_its_clients() {
    let coordinator = Coordinator::start(LIMITS).await;
    coordinator
        .gets("envoy-1/a", "tenant/acme", 1, (0.0, 40.0))
        .await;
    coordinator
        .gets("envoy-2/b", "tenant/acme", 1, (0.0, 20.5))
        .await;
    let answer = coordinator.get("/v1/scopes/tenant/acme").await;
    assert_eq!(answer.status, 200);
    let mut detail = answer.json();
    let requests = &mut detail["units"]["requests"];
    let clients = requests["clients"].as_array_mut().unwrap();
    clients.sort_by_key(|client| client["client"].to_string());
    for client in clients {
        let expires = client["expires_in_ms"].take().as_u64().unwrap();
        assert!((1..=10_000).contains(&expires), "{expires}");
    }
    let want = json!({
        "scope": "tenant/acme",
        "units": {"requests": {
            "capacity": 100.0, "safe": 5.0, "learning_ms": 0,
            "sum_has": 60.5, "sum_wants": 60.5, "client_count": 2, "waiting_count": 0,
            "limited_by": {"whose": "own limit", "at_most": 100.0},
            "traffic": {
                "attempts_per_second": 0.0, "refused_per_second": 0.0, "attempts": 0, "refused": 0,
            },
            "clients": [
                {"client": "envoy-1/a", "wants": 40.0, "has": 40.0, "expires_in_ms": null},
                {"client": "envoy-2/b", "wants": 20.5, "has": 20.5, "expires_in_ms": null},
            ],
        }},
    });
    assert_eq!(detail, want);
    let one = coordinator
        .get("/v1/scopes/tenant/acme?clients=1")
        .await
        .json();
    let requests = &one["units"]["requests"];
    assert_eq!(requests["clients"].as_array().unwrap().len(), 1);
    assert_eq!(requests["client_count"], 2);
}

#[tokio::test]
async fn an_unlimited_scope_says_so_in_the_word_of_the_configuration() {
    let coordinator = Coordinator::start(LIMITS).await;
    coordinator
        .refresh("a", &[("route/ü x?", 1, 0.0, 3.0)])
        .await;
    let detail = coordinator
        .get("/v1/scopes/route/%C3%BC%20x%3F")
        .await
        .json();
    assert_eq!(detail["scope"], "route/ü x?");
    let requests = &detail["units"]["requests"];
    assert_eq!(requests["capacity"], "unlimited");
    assert_eq!(requests["safe"], json!(null));
    assert_eq!(requests["sum_has"], "unlimited");
    assert_eq!(requests["sum_wants"], 3.0);
}

#[tokio::test]
async fn scopes_are_listed_in_pages() {
    let coordinator = Coordinator::start(LIMITS).await;
    let scopes = ["tenant/b", "tenant/c", "tenant/a", "route/x"].map(|id| (id, 1, 0.0, 1.0));
    coordinator.refresh("a", &scopes).await;
    let mut path = "/v1/scopes?limit=3".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = coordinator.get(&path).await.json();
        let ids = page["scopes"].as_array().unwrap().iter();
        pages.push(ids.map(|scope| scope["scope"].clone()).collect::<Vec<_>>());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/v1/scopes?limit=3&after={next}");
    }
    let want = [vec!["route/x", "tenant/a", "tenant/b"], vec!["tenant/c"]];
    assert_eq!(pages, want);
    let all = coordinator.get("/v1/scopes?limit=4").await.json();
    assert_eq!(all["next"], json!(null));
    assert_eq!(all["scopes"][0]["units"]["requests"]["client_count"], 1);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_in_json() {
    let coordinator = Coordinator::start(LIMITS).await;
    let rows = [
        (
            "/v1/scopes/tenant/acme",
            404,
            "no client has or wants a lease of tenant/acme",
        ),
        ("/v2", 404, "nothing is served at /v2"),
        (
            "/v1/scopes?limit=0",
            400,
            "limit: 0 is not between 1 and 1000",
        ),
        (
            "/v1/scopes/a?clients=1001",
            400,
            "clients: 1001 is not between 1 and 1000",
        ),
        (
            "/v1/scopes?page=2",
            400,
            "Failed to deserialize query string: page: unknown field `page`, expected `limit` or \
             `after`",
        ),
    ];
    for (path, status, detail) in rows {
        let answer = coordinator.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        let kind = "content-type: application/problem+json";
        assert!(answer.head.contains(kind), "{path}: {}", answer.head);
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{path}");
        assert_eq!(problem["detail"], detail, "{path}");
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_are_there() {
    let coordinator = Coordinator::start(LIMITS).await;
    assert_eq!(coordinator.get("/healthz").await.status, 200);
    assert_eq!(coordinator.get("/readyz").await.status, 200);
    let scopes = [("tenant/acme", 1, 0.0, 40.0), ("route/x", 1, 0.0, 2.0)];
    coordinator.refresh("a", &scopes).await;
    coordinator.gets("b", "tenant/acme", 1, (0.0, 9.0)).await;
    coordinator.release("b", "tenant/acme", 2).await;
    let answer = coordinator.get("/metrics").await;
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let epoch = format!("tollgate_epoch {EPOCH}");
    let lines = [
        "tollgate_refresh_calls_total 2",
        "tollgate_refreshes_total 3",
        "tollgate_refresh_errors_total{reason=\"busy\"} 0",
        "tollgate_releases_total 1",
        "tollgate_refresh_duration_seconds_count 2",
        "tollgate_resources{unit=\"requests\"} 2.0",
        "tollgate_resources{unit=\"concurrency\"} 0.0",
        "tollgate_clients{unit=\"requests\"} 2.0",
        "tollgate_waiting_clients{unit=\"requests\"} 0.0",
        "tollgate_learning_resources{unit=\"requests\"} 0.0",
        "tollgate_capacity{unit=\"requests\"} 100.0",
        "tollgate_leased{unit=\"requests\"} 40.0",
        "tollgate_drawn_total 0.0",
        "tollgate_wanted{unit=\"requests\"} 42.0",
        "tollgate_limits 2",
        "tollgate_build_info{version=\"0.1.0\"} 1",
        &epoch,
    ];
    for line in lines {
        let found = answer.body.lines().any(|is| is == line);
        assert!(found, "no `{line}` in\n{}", answer.body);
    }
}

#[tokio::test]
async fn it_stops_although_clients_stay_connected() {
    let coordinator = Coordinator::start(LIMITS).await;
    let idle = tokio::net::TcpStream::connect(coordinator.http)
        .await
        .unwrap();
    let client = coordinator.client();
    coordinator.gets("a", "tenant/acme", 1, (0.0, 1.0)).await;
    let http = coordinator.http;
    coordinator.stop().await.unwrap();
    assert!(tokio::net::TcpStream::connect(http).await.is_err());
    drop((idle, client));
}
