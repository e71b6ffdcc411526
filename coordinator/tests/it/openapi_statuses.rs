//! Every status that the API's description names can occur, and of every operation.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tollgate_admin::history::History;
use tollgate_admin::{AdminMetrics, App, Parts};
use tollgate_cluster::election::{ElectionEvent, Term};
use tollgate_config::Config;
use tollgate_config::catalog::metrics::CatalogMetrics;
use tollgate_config::catalog::store::MemoryStore;
use tollgate_config::tokens::NewToken;
use tollgate_config::writer::CatalogWriter;
use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_core::lease_server::{DRAINS_MAX, Start};
use tollgate_leases::DriverSettings;
use tollgate_leases::metrics::LeaseMetrics;
use tollgate_leases::shards::ShardSupervisor;
use tollgate_net::clock::Clock;
use tollgate_observe::metrics::{Exporter, registry};

use crate::harness::{Answer, Ask, Coordinator};

const YAML: &str = "limits:
- {match: tenant/fixed, requests: {rate: 7}}
- {match: counted/there, requests: {rate: 100, quota: {amount: 100, per: day}}}
- {match: '*', requests: {rate: 100}}
groups: {fixed: {requests: {rate: 50}}}
attach: {tenants: {fixed: fixed}, namespaces: {fixed/fixed: fixed}}";

/// A raise until the year 2100.
const RAISE: &str = r#"{"requests": {"rate": 5}, "until": 4102444800}"#;

/// A credit.
const CREDIT: &str = r#"{"credit": {"id": "ticket", "amount": 1}}"#;

/// Another one with its id.
const OTHER_CREDIT: &str = r#"{"credit": {"id": "ticket", "amount": 2}}"#;

/// Which of the things that a path can name.
#[derive(Clone, Copy)]
enum Named {
    /// One that was written through the API, or is in the lease table.
    There,
    /// One that was not.
    New,
    /// One of the file.
    Fixed,
}

/// An operation of the description.
struct Operation {
    method: &'static str,
    path: String,
    id: String,
}

/// Coordinators in each state that an answer can depend on.
struct Servers {
    open: Coordinator,
    guarded: Coordinator,
    viewer: NewToken,
    /// One that drains as many clients as it may.
    full: Coordinator,
    /// One whose driver and writer have ended.
    ended: SocketAddr,
}

// === impl Operation ===

impl Operation {
    fn ask(&self, named: Named) -> Ask {
        let word = match named {
            Named::There => "there",
            Named::New => "new",
            Named::Fixed => "fixed",
        };
        let kind = if self.path.contains("quotas") {
            "counted"
        } else {
            "tenant"
        };
        let path = self.path.replace("{scope}", &format!("{kind}/{word}"));
        let path = ["{name}", "{tenant}", "{namespace}", "{id}"]
            .iter()
            .fold(path, |path, variable| path.replace(variable, word));
        match self.method {
            "PUT" => Ask::put(&path, self.body()),
            "POST" if self.has_body() => Ask::post(&path, self.body()),
            "PATCH" => Ask::patch(&path, self.body()),
            method => Ask::new(method, &path),
        }
    }

    fn has_body(&self) -> bool {
        ["PUT", "PATCH"].contains(&self.method) || self.id == "changeQuota"
    }

    fn body(&self) -> &'static str {
        if self.path.contains("quotas") {
            CREDIT
        } else if self.path.contains("attachments") {
            r#"{"group": "fixed"}"#
        } else if self.path.contains("raises") {
            RAISE
        } else {
            r#"{"requests": {"rate": 5}}"#
        }
    }

    fn with_body(&self, body: &str) -> Ask {
        Ask {
            body: body.to_owned(),
            ..self.ask(Named::There)
        }
    }

    /// Returns the request of this operation that is answered with `status`, and its server.
    fn provoke(&self, status: u16, servers: &Servers) -> (SocketAddr, Ask) {
        let there = self.ask(Named::There);
        let missing = self.ask(Named::New);
        let writes = self.method != "GET";
        let open = servers.open.http;
        match status {
            200 | 204 => (open, there),
            201 => (open, missing),
            304 => (open, there.header("if-none-match", "*")),
            400 if self.has_body() => (open, self.with_body("{")),
            409 if self.path.contains("quotas") => (open, self.with_body(OTHER_CREDIT)),
            503 if self.path.contains("quotas") => (servers.ended, there),
            409 if self.path.ends_with("/drain") => (servers.full.http, there),
            409 if self.path.contains("raises") => (servers.full.http, missing),
            400 if self.path.contains('{') => {
                let bad = self.path.replace('{', "%FF{");
                (open, Ask::new(self.method, &bad.replace(['{', '}'], "")))
            }
            400 => (open, Ask::get(&format!("{}?nothing=1", self.path))),
            401 => (servers.guarded.http, there),
            403 if writes => (servers.guarded.http, there.token(&servers.viewer.text)),
            403 => (open, there.header("host", "evil.example")),
            404 => (open, missing),
            409 => (open, self.ask(Named::Fixed)),
            412 => (open, there.header("if-match", "\"999999\"")),
            413 => (open, self.with_body(&"9".repeat(70_000))),
            415 => {
                let ask = self.with_body("{}");
                let headers = ask.headers.replace("application/", "text/");
                (open, Ask { headers, ..ask })
            }
            422 => (open, self.with_body("{\"unknown\": 1}")),
            503 if writes => (servers.ended, there),
            // It knows what is in its file.
            503 => (servers.ended, self.ask(Named::Fixed)),
            other => panic!("{}: nothing is known to provoke {other}", self.id),
        }
    }
}

// === impl Servers ===

impl Servers {
    async fn start() -> Self {
        let open = Coordinator::with(YAML, Start::Fresh).await;
        let viewer = NewToken::from_random([1; 32]);
        let token = format!("{{name: v, role: viewer, sha256: {}}}", viewer.hash);
        let yaml = format!("admin: {{tokens: [{token}]}}\n{YAML}");
        Self {
            open,
            guarded: Coordinator::with(&yaml, Start::Fresh).await,
            viewer,
            full: full().await,
            ended: ended().await,
        }
    }

    /// Gives a credit, and puts everything in place that [`Named::There`] names, and nothing that [`Named::New`] does.
    async fn prepare(&self, time: u64) {
        let lease = [("tenant/there", time, 0.0, 1.0)];
        self.open.refresh("there", &lease).await;
        let limits = r#"{"requests": {"rate": 5}}"#;
        let credit = Ask::post("/v1/quotas/counted/there", CREDIT);
        assert_eq!(self.open.ask(&credit).await.status, 200);
        let paths = [
            ("/v1/groups/NAME", limits),
            ("/v1/overrides/tenant/NAME", limits),
            ("/v1/raises/tenant/NAME", RAISE),
            ("/v1/attachments/tenants/NAME", r#"{"group": "fixed"}"#),
            (
                "/v1/attachments/namespaces/NAME/NAME",
                r#"{"group": "fixed"}"#,
            ),
        ];
        for (path, body) in paths {
            let there = Ask::put(&path.replace("NAME", "there"), body);
            assert!(self.open.ask(&there).await.status < 300, "{path}");
            let new = Ask::delete(&path.replace("NAME", "new"));
            assert!(
                [204, 404].contains(&self.open.ask(&new).await.status),
                "{path}"
            );
        }
    }
}

/// A coordinator that drains as many clients, and has as many raises, as it may.
async fn full() -> Coordinator {
    let yaml = format!("{YAML}\nbounds: {{max_raises: 1}}");
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let raise = Ask::put("/v1/raises/tenant/one", RAISE);
    assert_eq!(coordinator.ask(&raise).await.status, 201);
    let refresh = async |client: &str| {
        let lease = [("tenant/there", 1, 0.0, 1.0)];
        coordinator.refresh(client, &lease).await;
    };
    for client in 0..DRAINS_MAX {
        refresh(&client.to_string()).await;
        let drain = Ask::new("POST", &format!("/v1/clients/{client}/drain"));
        assert_eq!(coordinator.ask(&drain).await.status, 200);
    }
    refresh("there").await;
    coordinator
}

/// Returns the listener of a coordinator whose driver and writer have ended.
async fn ended() -> SocketAddr {
    let config = Config::parse(YAML).unwrap();
    let (clock, metrics) = (Clock::start(), LeaseMetrics::default());
    let store = Box::new(MemoryStore::default());
    let writer = CatalogWriter::new(store, config.clone(), clock, CatalogMetrics::default());
    let (writer, catalog) = writer.await.unwrap();
    let settings = DriverSettings {
        catalog: catalog.watch(),
        clock,
        metrics: metrics.clone(),
        ..DriverSettings::alone(config.clone())
    };
    let (supervisor, mut shards) = ShardSupervisor::new(settings, None);
    let (election, events) = mpsc::channel(1);
    let supervisor = tokio::spawn(supervisor.run(events));
    let elected = ElectionEvent::Elected {
        shard: ShardId(0),
        term: Term::for_ever(Epoch(1)),
        snapshot: None,
        vacant_for: None,
    };
    election.send(elected).await.unwrap();
    shards.wait_for(1).await;
    supervisor.abort();
    let _ = supervisor.await;
    drop(writer);
    let (keep, newest) = watch::channel(Arc::new(config));
    let router = tollgate_admin::router(App::new(Parts {
        shards,
        history: History::default(),
        peers: None,
        parent: None,
        metrics: AdminMetrics::default(),
        leases: metrics,
        exporter: Exporter::new(registry()),
        clock,
        writer: catalog,
        config: newest,
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let _keep = keep;
        axum::serve(listener, router).await
    });
    address
}

fn operations(api: &Value) -> Vec<(Operation, Vec<u16>)> {
    let mut operations = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method = match method.as_str() {
                "get" => "GET",
                "put" => "PUT",
                "patch" => "PATCH",
                "post" => "POST",
                "delete" => "DELETE",
                other => panic!("{other}"),
            };
            let statuses = operation["responses"].as_object().unwrap().keys();
            let statuses = statuses.map(|status| status.parse().unwrap()).collect();
            let operation = Operation {
                method,
                path: path.clone(),
                id: operation["operationId"].as_str().unwrap().to_owned(),
            };
            operations.push((operation, statuses));
        }
    }
    operations
}

#[tokio::test]
async fn every_status_that_is_described_can_occur() {
    let servers = Servers::start().await;
    let api = servers.open.get("/v1/openapi.json").await.json();
    let mut answered = 0;
    for (operation, statuses) in operations(&api) {
        for status in statuses {
            answered += 1;
            servers.prepare(answered).await;
            let (to, ask) = operation.provoke(status, &servers);
            let answer = Answer::of(to, &ask).await;
            let id = &operation.id;
            let message = format!("{id}: {} {}: {}", ask.method, ask.path, answer.body);
            assert_eq!(answer.status, status, "{message}");
            if status >= 400 {
                let kind = answer.header("content-type");
                assert_eq!(kind, "application/problem+json", "{message}");
                assert_eq!(answer.json()["status"], status, "{message}");
            }
        }
    }
    assert!(answered > 150, "{answered}");
}

/// A coordinator that cannot scan its leases answers all the same.
#[tokio::test]
async fn no_lease_is_looked_at_for_the_page_of_an_unknown_group() {
    let ended = ended().await;
    for (path, want) in [("/groups/new", 404), ("/groups/fixed", 503)] {
        let answer = Answer::of(ended, &Ask::get(path)).await;
        assert_eq!(answer.status, want, "{path}: {}", answer.body);
    }
}
