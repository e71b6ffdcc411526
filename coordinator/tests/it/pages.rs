//! Pages for people with browsers.

use tollgate_core::lease_server::Start;

use crate::harness::{Ask, Coordinator};

const YAML: &str = "limits:
- {match: 'tenant/*', requests: {rate: 100, headroom: 0}}
- {match: '*', requests: {rate: unlimited}}
groups: {gold: {requests: {rate: 50}}}
attach: {tenants: {acme: gold, bee: gold}}";

/// A scope that tries to be more than a text.
const HOSTILE: &str = "tenant/<img src=x onerror=alert(1)>";

#[tokio::test]
async fn the_pages_show_scopes_as_text_whatever_they_are_called() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    let empty = coordinator.get("/").await;
    assert!(empty.body.contains("No client has or wants a lease."));
    let lease = [(HOSTILE, 1, 0.0, 7.0)];
    coordinator.refresh("<b>\"'&", &lease).await;
    let scope = "/scopes/tenant/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E";
    for path in ["/", scope] {
        let page = coordinator.get(path).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("cache-control"), "no-store");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
        assert!(!page.body.contains("<img"), "{}", page.body);
        let shown = "tenant/&lt;img src=x onerror=alert(1)&gt;";
        assert!(page.body.contains(shown), "{}", page.body);
        assert!(page.body.contains(scope) || path == scope, "{}", page.body);
    }
    let page = coordinator.get(scope).await.body;
    assert!(page.contains("<bdi>&lt;b&gt;&quot;'&amp;</bdi>"), "{page}");
}

#[tokio::test]
async fn the_page_of_a_group_shows_its_members_and_no_other_scope() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    let scopes = ["tenant/acme", "tenant/bee", "tenant/cat"];
    for scope in scopes {
        coordinator.refresh("a", &[(scope, 1, 0.0, 40.0)]).await;
    }
    let page = coordinator.get("/groups/gold?sort=scope").await.body;
    for scope in scopes {
        let link = format!("<a href=\"/scopes/{scope}\">");
        assert_eq!(
            page.contains(&link),
            scope != "tenant/cat",
            "{scope}: {page}"
        );
    }
    assert!(
        page.contains("<strong>50 of 50</strong> requests per second"),
        "{page}"
    );
    assert!(page.contains("2 resources"), "{page}");
    let one = coordinator.get("/groups/gold?q=bee").await.body;
    assert!(one.contains("1 resource that matches"), "{one}");
}

#[tokio::test]
async fn a_problem_is_a_page_for_browsers_and_json_for_programs() {
    let coordinator = Coordinator::with(YAML, Start::Fresh).await;
    let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
    for (path, status) in [("/groups/none", 404), ("/x", 404), ("/?limit=0", 400)] {
        let page = Ask::get(path).header("accept", browser);
        let page = coordinator.ask(&page).await;
        assert_eq!(page.status, status, "{path}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert!(!page.header("content-security-policy").is_empty());
        assert!(
            page.body.contains("<a href=\"/\">Back to the status</a>"),
            "{path}"
        );
        let problem = coordinator.get(path).await;
        assert_eq!(problem.status, status, "{path}");
        assert_eq!(problem.header("content-type"), "application/problem+json");
        assert_eq!(problem.json()["status"], status);
    }
}
