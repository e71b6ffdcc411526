//! Metrics as Prometheus reads them.

use std::collections::BTreeSet;
use std::io::{Write as _, stderr};
use std::time::Duration;

use tollgate_core::lease_server::Start;
use tollgate_tests::monitoring::{
    alerts, check_open_metrics, check_prometheus_text, check_queries, dashboard_queries,
    missing_metrics, runbook,
};

use crate::certificates::{Client, Folder, Issuer};
use crate::etcd::Etcd;
use crate::harness::{Answer, Ask, Coordinator, request};

const LIMITS: &str = "limits:
- {match: tenant/acme, requests: {rate: 100, safe: 5, headroom: 0}}
- {match: 'tenant/*', requests: {rate: 50}}";
const PAGE: &str = include_str!("../../../docs/metrics.md");
const OPEN_METRICS: &str = "application/openmetrics-text";

/// A coordinator that has answered for two scopes and a request of its admin API, so that metrics with
/// labels show, too. Its admin API speaks TLS, for which there are metrics.
struct Busy {
    coordinator: Coordinator,
    client: Client,
    _files: Folder,
}

// === impl Busy ===

impl Busy {
    /// One that is alone.
    async fn alone() -> Self {
        Self::start(|_, _| String::new()).await
    }

    /// One that is the master of its only shard.
    async fn in_cluster(etcd: &Etcd) -> Self {
        let etcd = format!("{{endpoints: ['http://{}'], lease: 5s}}", etcd.address());
        let cluster = |door: &str, ca: &str| {
            let tls = format!("{{ca: '{ca}', {door}}}");
            format!("cluster: {{node: a, shards: 1, etcd: {etcd}, tls: {tls}}}\n")
        };
        Self::start(cluster).await
    }

    /// One with the cluster that `cluster` makes of a certificate with its key, and of the issuer's.
    async fn start(cluster: impl Fn(&str, &str) -> String) -> Self {
        let (issuer, folder) = (Issuer::new(), Folder::new());
        let (door, ca) = (
            folder.door(&issuer.issue()),
            folder.write("ca.crt", &issuer.pem()),
        );
        let cluster = cluster(&door, &ca);
        let yaml = format!("{cluster}tls: {{http: {{{door}}}}}\n{LIMITS}");
        let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
        let client = Client::new(coordinator.http, "http/1.1", &issuer, None);
        let busy = Self {
            coordinator,
            client,
            _files: folder,
        };
        busy.get("/metrics", "*/*").await;
        let scopes = [("tenant/acme", 1, 0.0, 40.0), ("route/x", 1, 0.0, 2.0)];
        // A node of a cluster is not a master at once.
        while !busy.answers(&scopes).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        busy
    }

    async fn answers(&self, scopes: &[(&str, u64, f64, f64)]) -> bool {
        let mut client = self.coordinator.client();
        let answer = client.refresh(request("envoy-1/a", scopes)).await;
        answer.is_ok_and(|answer| !answer.into_inner().scopes.is_empty())
    }

    /// Gets `path` as one who accepts `accept`.
    async fn get(&self, path: &str, accept: &str) -> Answer {
        let ask = Ask::get(path).header("accept", accept);
        let stream = self.client.connect().await.unwrap();
        Answer::exchange(stream, "localhost", &ask).await.unwrap()
    }

    async fn metrics(&self, accept: &str) -> String {
        self.get("/metrics", accept).await.body
    }
}

// === free functions ===

/// Names of the families on `page`, which is Prometheus text.
fn families(page: &str) -> BTreeSet<&str> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

/// Names in the table of docs/metrics.md.
fn documented() -> impl Iterator<Item = &'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next());
    names.filter(|name| {
        ["tollgate_", "process_"]
            .iter()
            .any(|p| name.starts_with(p))
    })
}

/// Says, past the capture of a test's output, that `checked` is false because promtool is missing.
fn say_if_skipped(checked: bool) {
    if !checked {
        let line = b"SKIPPED: there is no promtool, so no page of metrics was checked\n";
        stderr().write_all(line).unwrap();
    }
}

#[tokio::test]
async fn the_page_names_every_metric_and_no_other() {
    let busy = Busy::alone().await;
    let page = busy.metrics("*/*").await;
    // From this row on the page says: only in a cluster.
    let named = documented().take_while(|name| *name != "tollgate_master");
    assert_eq!(families(&page), named.collect::<BTreeSet<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_names_every_metric_of_a_cluster_and_queries_name_no_other() {
    let etcd = Etcd::start().await;
    let busy = Busy::in_cluster(&etcd).await;
    let page = busy.metrics("*/*").await;
    assert_eq!(families(&page), documented().collect::<BTreeSet<_>>());
    say_if_skipped(check_prometheus_text(&page).unwrap());
    let mut queries = dashboard_queries("coordinators.json").unwrap();
    let alerts = alerts("tollgate-coordinators").unwrap();
    queries.extend(alerts.into_iter().map(|alert| alert.expr));
    assert_eq!(missing_metrics(&queries, &page), BTreeSet::new());
    let page = busy.metrics(OPEN_METRICS).await;
    say_if_skipped(check_open_metrics(&page).unwrap());
}

#[tokio::test]
async fn the_busiest_scopes_have_series_for_those_who_ask_for_so_many() {
    let busy = Busy::alone().await;
    let page = busy.get("/metrics?top=1", "*/*").await.body;
    let top = page
        .lines()
        .filter(|line| line.starts_with("tollgate_top_scope_"));
    let wanted = [
        "tollgate_top_scope_capacity{scope=\"tenant/acme\",unit=\"requests\"} 100.0",
        "tollgate_top_scope_has{scope=\"tenant/acme\",unit=\"requests\"} 40.0",
        "tollgate_top_scope_refused_per_second{scope=\"tenant/acme\",unit=\"requests\"} 0.0",
        "tollgate_top_scope_waiting_clients{scope=\"tenant/acme\",unit=\"requests\"} 0.0",
        "tollgate_top_scope_wants{scope=\"tenant/acme\",unit=\"requests\"} 40.0",
    ];
    assert_eq!(top.collect::<BTreeSet<_>>(), wanted.into());
    say_if_skipped(check_prometheus_text(&page).unwrap());
    for number in ["0", "101", "many"] {
        let path = format!("/metrics?top={number}");
        assert_eq!(busy.get(&path, "*/*").await.status, 400, "{number}");
    }
}

#[tokio::test]
async fn each_format_is_served_to_those_who_ask_for_it() {
    let busy = Busy::alone().await;
    let text = busy.get("/metrics", "*/*").await;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(text.header("content-type"), kind);
    assert_eq!(text.header("vary"), "accept");
    assert!(
        text.body
            .contains("# TYPE tollgate_refresh_calls_total counter\n")
    );
    say_if_skipped(check_prometheus_text(&text.body).unwrap());
    let accept = format!("{OPEN_METRICS};version=1.0.0;q=0.6,text/plain;q=0.3");
    let open = busy.get("/metrics", &accept).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), kind);
    assert!(
        open.body
            .contains("# TYPE tollgate_refresh_calls counter\n")
    );
    assert!(open.body.ends_with("\n# EOF\n"));
    say_if_skipped(check_open_metrics(&open.body).unwrap());
    let samples = |page: &str| {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.split([' ']).next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(samples(&text.body), samples(&open.body));
}

#[test]
fn queries_of_dashboards_and_alerts_are_valid() {
    for dashboard in ["coordinators.json", "tollgate.json"] {
        let queries = dashboard_queries(dashboard).unwrap();
        say_if_skipped(check_queries(&queries).unwrap());
    }
    assert!(!check_queries(&["sum by".to_owned()]).is_ok_and(|checked| checked));
}

#[test]
fn each_alert_leads_to_its_section_of_the_documentation() {
    for group in ["tollgate-coordinators", "tollgate-envoys"] {
        for alert in alerts(group).unwrap() {
            let section = runbook(&alert).unwrap();
            let heading = section.lines().next().unwrap();
            assert_eq!(heading.trim_start_matches(['#', ' ']), alert.alert);
            assert!(section.lines().count() > 2, "{section}");
        }
    }
}

#[test]
fn promtool_finds_fault_with_a_wrong_page() {
    let wrong = "# HELP t_calls Calls.\n# TYPE t_calls counter\nt_calls 1\n";
    assert!(!check_prometheus_text(wrong).is_ok_and(|checked| checked));
    let wrong = "# TYPE t_calls counter\nt_calls_total 1\n";
    assert!(!check_open_metrics(wrong).is_ok_and(|checked| checked));
}

#[tokio::test]
async fn the_process_is_measured() {
    let busy = Busy::alone().await;
    let page = busy.metrics("*/*").await;
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap()
    };
    assert!(value("process_cpu_seconds_total ") > 0.0);
    assert!(value("process_resident_memory_bytes ") > 1e6);
    assert!(value("process_open_fds ") > 3.0);
    assert!(value("process_max_fds ") >= value("process_open_fds "));
    let started = |page: &str| {
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with("process_start_time_seconds "));
        line.map(str::to_owned)
    };
    let again = busy.metrics("*/*").await;
    assert_eq!(started(&page), started(&again));
    assert!(value("process_start_time_seconds ") > 1.7e9);
}
