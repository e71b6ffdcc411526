//! Access to the admin API, by token.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tollgate_config::tokens::NewToken;
use tollgate_core::lease_server::Start;
use tollgate_tests::http2::Http2;

use crate::harness::{Ask, Coordinator};

/// The tokens of a viewer and an admin, and a coordinator that knows them.
struct Guarded {
    viewer: NewToken,
    admin: NewToken,
    coordinator: Coordinator,
}

impl Guarded {
    async fn start(more: &str) -> Self {
        let (viewer, admin) = ([1; 32], [2; 32]);
        let (viewer, admin) = (NewToken::from_random(viewer), NewToken::from_random(admin));
        let yaml = format!(
            "admin:
  tokens:
  - {{name: grafana, role: viewer, sha256: {}}}
  - {{name: ops, role: admin, sha256: {}}}
{more}
limits: [{{match: '*', requests: {{rate: 5}}}}]",
            viewer.hash, admin.hash
        );
        let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
        Self {
            viewer,
            admin,
            coordinator,
        }
    }

    async fn status(&self, ask: &Ask) -> u16 {
        self.coordinator.ask(ask).await.status
    }
}

#[tokio::test]
async fn reading_needs_a_token_and_writing_the_right_one() {
    let guarded = Guarded::start("").await;
    let (viewer, admin) = (&guarded.viewer.text, &guarded.admin.text);
    let write = Ask::new("DELETE", "/v1/nothing");
    let rows = [
        (Ask::get("/v1/scopes"), 401),
        (Ask::get("/v1/scopes").token("tollgate_00"), 401),
        (Ask::get("/v1/scopes").token(&viewer[..40]), 401),
        (
            Ask::get("/v1/scopes").token(&guarded.viewer.hash.to_string()),
            401,
        ),
        (Ask::get("/v1/scopes").token(viewer), 200),
        (Ask::get("/v1/scopes").token(admin), 200),
        (Ask::get("/v1/openapi.json"), 401),
        (Ask::get("/v1/openapi.json").token(viewer), 200),
        // A caller who may not read does not learn which paths exist.
        (Ask::get("/v1/nothing"), 401),
        (Ask::get("/v1/nothing").token(viewer), 404),
        (write.clone(), 401),
        (write.clone().token(viewer), 403),
        (write.token(admin), 404),
        (Ask::new("OPTIONS", "/v1/scopes"), 401),
        (Ask::get("/metrics"), 401),
        (Ask::get("/metrics").token(viewer), 200),
        (Ask::get("/healthz"), 200),
        (Ask::get("/readyz"), 200),
        (Ask::get("/healthz/"), 401),
        (Ask::get("//healthz"), 401),
    ];
    for (ask, status) in rows {
        let message = format!("{} {} {}", ask.method, ask.path, ask.headers);
        assert_eq!(guarded.status(&ask).await, status, "{message}");
    }
}

#[tokio::test]
async fn who_is_turned_away_is_told_what_is_needed() {
    let guarded = Guarded::start("").await;
    let none = guarded.coordinator.get("/v1/scopes").await;
    assert_eq!(none.header("www-authenticate"), "bearer realm=\"tollgate\"");
    let kind = "application/problem+json";
    assert_eq!(none.header("content-type"), kind);
    let wrong = Ask::get("/v1/scopes").token("wrong");
    let wrong = guarded.coordinator.ask(&wrong).await;
    let want = "bearer realm=\"tollgate\", error=\"invalid_token\"";
    assert_eq!(wrong.header("www-authenticate"), want);
    let viewer = Ask::new("DELETE", "/v1/scopes/a").token(&guarded.viewer.text);
    let viewer = guarded.coordinator.ask(&viewer).await;
    assert_eq!(viewer.status, 403);
    assert_eq!(
        viewer.json()["detail"],
        "this needs a token of role admin; that of \"grafana\" is viewer"
    );
    let want = "bearer realm=\"tollgate\", error=\"insufficient_scope\", scope=\"admin\"";
    assert_eq!(viewer.header("www-authenticate"), want);
    let metrics = Ask::get("/metrics").token(&guarded.viewer.text);
    let metrics = guarded.coordinator.ask(&metrics).await.body;
    for line in [
        "tollgate_admin_auth_failures_total{reason=\"missing\"} 1",
        "tollgate_admin_auth_failures_total{reason=\"unknown\"} 1",
        "tollgate_admin_auth_failures_total{reason=\"role\"} 1",
        "tollgate_admin_requests_total{method=\"GET\",route=\"/v1/scopes\",status=\"401\"} 2",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_password_is_only_taken_for_pages() {
    let guarded = Guarded::start("").await;
    let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
    let password = basic(&format!("anyone:{}", guarded.admin.text));
    let ask = |method, path, value: &str| Ask::new(method, path).header("authorization", value);
    let pages = ["/", "/scopes/tenant/a", "/groups/x", "/v1/openapi.json"];
    for path in pages {
        assert_ne!(
            guarded.status(&ask("GET", path, &password)).await,
            401,
            "{path}"
        );
        assert_eq!(guarded.status(&Ask::get(path)).await, 401, "{path}");
    }
    for (method, path) in [("GET", "/v1/scopes"), ("DELETE", "/"), ("POST", "/v1/x")] {
        let status = guarded.status(&ask(method, path, &password)).await;
        assert_eq!(status, 401, "{method} {path}");
    }
    for bad in [
        basic("anyone:wrong"),
        basic("nocolon"),
        "Basic ///".into(),
        "Basic".into(),
    ] {
        assert_eq!(guarded.status(&ask("GET", "/", &bad)).await, 401, "{bad}");
    }
    // A page is asked for its password, and the script that updates it is not.
    let basic = "www-authenticate: basic realm=\"tollgate\"";
    let page = guarded.coordinator.get("/").await;
    assert!(page.head.contains(basic), "{}", page.head);
    let script = Ask::get("/").header("sec-fetch-dest", "empty");
    let script = guarded.coordinator.ask(&script).await;
    assert!(!script.head.contains(basic), "{}", script.head);
}

#[tokio::test]
async fn what_is_public_needs_no_token() {
    let guarded = Guarded::start("  public: [metrics]").await;
    assert_eq!(guarded.status(&Ask::get("/metrics")).await, 200);
    // This names scopes of requests.
    assert_eq!(guarded.status(&Ask::get("/metrics?top=5")).await, 401);
    assert_eq!(guarded.status(&Ask::get("/")).await, 401);
    assert_eq!(guarded.status(&Ask::new("POST", "/metrics")).await, 401);
}

#[tokio::test]
async fn without_tokens_only_this_machine_gets_in_and_no_page_of_another_site() {
    let coordinator = Coordinator::start("- {match: '*', requests: {rate: 5}}").await;
    let here = coordinator.http.to_string();
    let site = format!("http://{here}");
    let read = |host: &str| Ask::get("/v1/scopes").header("host", host);
    let write = |origin: &str| Ask::new("POST", "/v1/nothing").header("origin", origin);
    let rows = [
        (read("localhost:7711"), 200),
        (read("[::1]:7711"), 200),
        (read("evil.example:7711"), 403),
        (read("127.0.0.1.evil.example"), 403),
        (read(""), 403),
        (write(&site), 404),
        (write("http://evil.example"), 403),
        (write("null"), 403),
        (Ask::get("/healthz").header("host", "evil.example"), 200),
    ];
    for (ask, status) in rows {
        let answer = coordinator.ask(&ask).await;
        assert_eq!(answer.status, status, "{}", ask.headers);
    }
}

#[tokio::test]
async fn without_tokens_absolute_targets_are_held_to_the_same_host_check_and_http_2_is_not_spoken()
{
    let coordinator = Coordinator::start("- {match: '*', requests: {rate: 5}}").await;
    let absolute = Ask::get("http://evil.example/v1/scopes").header("host", "localhost");
    assert_eq!(coordinator.ask(&absolute).await.status, 403);
    let absolute = Ask::get("http://localhost/v1/scopes").header("host", "evil.example");
    assert_eq!(coordinator.ask(&absolute).await.status, 403);
    // Its host would be in the target alone. A coordinator that spoke it would have to check that.
    if let Ok((connection, _running)) = Http2::open(coordinator.http).await {
        assert!(connection.get("/v1/scopes", &[]).await.is_err());
    }
}
