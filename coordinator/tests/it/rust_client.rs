//! The Rust client over real gRPC: changed shares, other nodes, TLS, and its example servers.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_client::{
    Certificate, Charge, Client, ClientTlsConfig, Identity, Rule, ScopeLevel, Settings,
};
use tollgate_core::lease_server::Start;
use tollgate_tests::process::Process;
use tollgate_tests::{artifact, ports, wait};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use crate::certificates::{Folder, Issuer};
use crate::harness::{Answer, Ask, Coordinator};

/// Longer than anything here takes on a machine that has much else to do.
pub(crate) const NEVER: Duration = Duration::from_secs(60);

/// A client that wants more of one scope than there is.
pub(crate) struct LoadedClient {
    client: Client,
    scope: String,
    _load: JoinSet<()>,
}

/// One of the client's example servers.
struct Example {
    address: SocketAddr,
    _process: Process,
    _logs: TempDir,
}

// === impl LoadedClient ===

impl LoadedClient {
    pub(crate) fn start(settings: Settings, scope: &str) -> Self {
        let client = Client::start(&settings.rule(Rule::new("tenant"))).unwrap();
        let mut load = JoinSet::new();
        let (limits, charge) = (client.clone(), Charge::of(scope));
        load.spawn(async move {
            loop {
                let _ = limits.try_admit(&charge);
                sleep(Duration::from_millis(3)).await;
            }
        });
        Self {
            client,
            scope: scope.to_owned(),
            _load: load,
        }
    }

    pub(crate) fn level(&self) -> ScopeLevel {
        self.client.levels(&self.scope).unwrap()[0]
    }

    /// Waits until it leases `rate`.
    pub(crate) async fn until(&self, rate: u64) {
        let reached = wait::until("a share", NEVER, async || {
            let level = self.level();
            ensure!(level.is_leased, "no lease: {level:?}");
            let leased = level.rate.as_micros();
            ensure!(leased.abs_diff(rate * 1_000_000) < 500_000, "{level:?}");
            Ok(())
        });
        reached.await.unwrap();
    }
}

// === impl Example ===

impl Example {
    /// Starts the example `name` with the limits of `coordinator`, and waits until it listens.
    async fn start(name: &str, coordinator: &Coordinator) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free().unwrap()));
        let logs = TempDir::new().unwrap();
        let mut command = Command::new(artifact::example(name).unwrap());
        command.env("LISTEN", address.to_string());
        command.env("TOLLGATE", format!("http://{}", coordinator.grpc));
        let mut process = Process::start(logs.path(), name, &mut command).unwrap();
        let listens = wait::until("the example to listen", NEVER, async || {
            process.check_running()?;
            TcpStream::connect(address).await?;
            Ok(())
        });
        listens.await.unwrap();
        Self {
            address,
            _process: process,
            _logs: logs,
        }
    }
}

#[tokio::test]
async fn a_client_follows_a_changed_share_at_once() {
    // Without nudges a client would not hear of another for four minutes.
    let coordinator = Coordinator::start(
        "- {match: 'tenant/*', requests: \
         {rate: 100, headroom: 0, lease: 600s, refresh: 240s, min_refresh: 20ms}}",
    )
    .await;
    let url = format!("http://{}", coordinator.grpc);
    let settings = |node: &str| Settings::new(&url).node(node);
    let first = LoadedClient::start(settings("first"), "tenant/acme");
    first.until(100).await;
    let second = LoadedClient::start(settings("second"), "tenant/acme");
    first.until(50).await;
    second.until(50).await;
}

#[tokio::test]
async fn a_client_leases_over_mutual_tls() {
    let (issuer, folder) = (Issuer::new(), Folder::new());
    let door = folder.door(&issuer.issue());
    let ca = folder.write("ca.crt", &issuer.pem());
    let yaml = format!(
        "tls: {{grpc: {{{door}, client_ca: '{ca}'}}}}\n\
         limits: [{{match: 'tenant/*', requests: {{rate: 100, headroom: 0}}}}]"
    );
    let coordinator = Coordinator::with(&yaml, Start::Fresh).await;
    let pair = issuer.issue();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(issuer.pem()))
        .identity(Identity::from_pem(&pair.cert, &pair.key))
        .domain_name("localhost");
    let settings = Settings::new(format!("https://{}", coordinator.grpc)).tls(tls);
    LoadedClient::start(settings, "tenant/acme")
        .until(100)
        .await;
}

/// A coordinator whose tenants have one request at once, and none soon after.
async fn one_request() -> Coordinator {
    Coordinator::start("- {match: 'tenant/*', requests: {rate: 0.001, burst: 1}}").await
}

#[tokio::test]
async fn the_example_for_axum_refuses_what_is_beyond_the_limit() {
    let coordinator = one_request().await;
    let example = Example::start("axum", &coordinator).await;
    let ask = Ask::get("/").header("x-tenant", "acme");
    let first = Answer::of(example.address, &ask).await;
    assert_eq!((first.status, &*first.body), (200, "served\n"));
    let refused = wait::until("a refusal", NEVER, async || {
        let answer = Answer::of(example.address, &ask).await;
        ensure!(answer.status == 429, "{}", answer.status);
        // On a busy machine the first lease is late, and the safe capacity holds until then.
        ensure!(answer.body.contains("quota-exceeded"), "{}", answer.body);
        Ok(answer)
    });
    let refused = refused.await.unwrap();
    assert_eq!(refused.header("tollgate-reason"), "tenant/requests");
    assert_eq!(refused.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn the_example_for_tonic_refuses_what_is_beyond_the_limit() {
    let coordinator = one_request().await;
    let example = Example::start("tonic", &coordinator).await;
    let endpoint = Endpoint::try_from(format!("http://{}", example.address)).unwrap();
    let health = HealthClient::new(endpoint.connect_lazy());
    let check = async || {
        let mut request = Request::new(HealthCheckRequest::default());
        request
            .metadata_mut()
            .insert("x-tenant", "acme".parse().unwrap());
        health.clone().check(request).await
    };
    check().await.unwrap();
    let refused = wait::until("a refusal", NEVER, async || {
        let status = check().await.err().context("it passed")?;
        let info = status.get_details_error_info();
        let reason = info.context("a refusal without details")?.reason;
        ensure!(reason == "RATE_LIMITED", "{reason}");
        Ok(status)
    });
    assert_eq!(refused.await.unwrap().code(), Code::ResourceExhausted);
}
