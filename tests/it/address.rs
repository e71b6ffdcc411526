//! Coordinators that Envoy calls at an address, without a cluster: in plain text, with TLS, and with
//! mutual TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rcgen::SanType;
use serde_json::{Value, json};
use tollgate_client::{Certificate, Client, ClientTlsConfig, Identity, Rule, Settings};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{by_tenant, tollgate_in};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::wait;

use crate::certificates::{Authority, authority, issue};
use crate::test_context::{TestContext, assert_near, print_course, run_test, s};

const RATE: f64 = 100.0;
const LIMITS: &str = "limits: [{match: \"*\", requests: {rate: 100, burst: 20, safe: 5, lease: 3s, \
                      refresh: 500ms}}]\n";
/// The name in the coordinators' certificates.
const SERVER: &str = "coordinator.example";

#[test]
fn coordinators_at_an_address_are_asked_in_plain_text_tls_and_mutual_tls() {
    run_test(
        "coordinators_at_an_address_are_asked_in_plain_text_tls_and_mutual_tls",
        addresses,
    );
}

/// Connection to a coordinator, with the name of its listener and tenant.
struct Connection {
    name: &'static str,
    to: SocketAddr,
    tls: Value,
}

/// A listener for each way to connect, and one whose client certificate is wrong at first.
async fn addresses(test: &TestContext) -> Result<()> {
    let authority = authority()?;
    let files = Files::new(test.dir())?;
    let ca = files.put("ca", &authority.pem())?;
    let [mut plain, tls, mutual] = coordinators(test, &files, &authority).await?;
    let [cert, key] = files.certificate("client", &authority)?;
    let other_authority = crate::certificates::authority()?;
    let [late_cert, late_key] = files.certificate("late", &other_authority)?;
    let with_ca = json!({"ca": authority.pem(), "server_name": SERVER});
    let certified = json!({"ca": ca, "cert": cert, "key": key, "server_name": SERVER});
    let late = json!({"ca": ca, "cert": late_cert, "key": late_key, "server_name": SERVER,
        "reread_seconds": 1});
    let connections = [
        Connection::new("plain", &plain, Value::Null),
        Connection::new("tls", &tls, with_ca.clone()),
        Connection::new("mutual", &mutual, certified),
        Connection::new("late", &mutual, late),
        Connection::new("uncertified", &mutual, with_ca),
    ];
    let mut spec = EnvoySpec::new("envoy", 2, test.upstream.address(), Vec::new());
    spec.listeners = connections
        .iter()
        .map(Connection::listener)
        .collect::<Result<_>>()?;
    let envoy = Envoy::start(test.dir(), &spec).await?;
    let flows = connections.iter().map(|connection| connection.flow(&envoy));
    let load = Load::start(flows.collect::<Result<Vec<_>>>()?);
    load.run_until(s(5.0)).await;
    for (flow, coordinator) in [&plain, &tls, &mutual].into_iter().enumerate() {
        let (name, record) = (connections[flow].name, load.record(flow));
        print_course(name, &record);
        let rate = record.admitted_per_second(s(2.0)..s(5.0));
        assert_near(name, rate, RATE, 0.05);
        assert!(has_lease(coordinator, name).await?, "{name}");
    }
    for name in ["late", "uncertified"] {
        assert!(!has_lease(&mutual, name).await?, "{name}");
    }
    let client = certified_client(&mutual, &files, &authority)?;
    drop(client.acquire("tenant/service", 1).await?);
    let leases = mutual.leases("tenant/service").await?;
    assert!(leases.is_some(), "it has asked");
    let changed = load.elapsed();
    files.certificate("late", &authority)?;
    plain.process.kill()?;
    plain.restart().await?;
    lease(&mutual, "late").await?;
    let renewed = load.elapsed() - changed;
    lease(&plain, "plain").await?;
    let restarted = load.elapsed() - changed;
    eprintln!("leases {renewed:.1?} after a new certificate, {restarted:.1?} after a restart");
    assert!(!has_lease(&mutual, "uncertified").await?);
    for record in load.stop().await? {
        assert_eq!(record.total().failed, 0);
    }
    Ok(())
}

impl Connection {
    fn new(name: &'static str, coordinator: &Coordinator, tls: Value) -> Self {
        let to = coordinator.grpc();
        Self { name, to, tls }
    }

    /// A listener that limits by tenant and asks the coordinators at the address.
    fn listener(&self) -> Result<(String, Vec<Value>)> {
        let coordinator = json!({"address": self.to.to_string(), "tls": self.tls});
        let plugin = by_tenant(&json!({"coordinator": coordinator}));
        Ok((
            self.name.to_owned(),
            vec![tollgate_in("tollgate", &plugin)?],
        ))
    }

    fn flow(&self, envoy: &Envoy) -> Result<Flow> {
        let to = envoy.listener(self.name).context("a listener")?;
        Ok(Flow::new(to, self.name, 2.0 * RATE))
    }
}

/// A client without Envoy that shows a certificate.
fn certified_client(
    coordinator: &Coordinator,
    files: &Files,
    authority: &Authority,
) -> Result<Client> {
    let [cert, key] = files.certificate("service", authority)?;
    let tls = ClientTlsConfig::new()
        .domain_name(SERVER)
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .identity(Identity::from_pem(fs::read(cert)?, fs::read(key)?));
    let settings = Settings::new(format!("https://{}", coordinator.grpc()));
    Ok(Client::start(&settings.tls(tls).rule(Rule::new("tenant")))?)
}

/// Coordinators in plain text, with TLS, and with mutual TLS.
async fn coordinators(
    test: &TestContext,
    files: &Files,
    authority: &Authority,
) -> Result<[Coordinator; 3]> {
    let ca = files.put("client-ca", &authority.pem())?;
    let [cert, key] = files.certificate("server", authority)?;
    let server =
        |more: &str| format!("tls: {{grpc: {{cert: {cert}, key: {key}{more}}}}}\n{LIMITS}");
    Ok([
        start(test, "plain", LIMITS).await?,
        start(test, "tls", &server("")).await?,
        start(test, "mutual", &server(&format!(", client_ca: {ca}"))).await?,
    ])
}

async fn start(test: &TestContext, name: &str, config: &str) -> Result<Coordinator> {
    let dir = test.dir().join(name);
    fs::create_dir(&dir)?;
    Coordinator::start(&dir, config).await
}

/// Returns whether the tenant's rate is leased.
async fn has_lease(coordinator: &Coordinator, tenant: &str) -> Result<bool> {
    let leases = coordinator.leases(&format!("tenant/{tenant}")).await?;
    Ok(leases.is_some_and(|leases| leases.sum_has() > 0.99 * RATE))
}

/// Waits until the tenant's rate is leased.
async fn lease(coordinator: &Coordinator, tenant: &str) -> Result<()> {
    wait::until("a lease", s(10.0), async || {
        ensure!(has_lease(coordinator, tenant).await?, "{tenant} has none");
        Ok(())
    })
    .await
}

/// Folder of PEM files.
struct Files(PathBuf);

impl Files {
    fn new(dir: &Path) -> Result<Self> {
        let dir = dir.join("pem");
        fs::create_dir(&dir)?;
        Ok(Self(dir))
    }

    /// Writes a file at once and returns its path.
    fn put(&self, name: &str, pem: &str) -> Result<String> {
        let (new, file) = (self.0.join("new"), self.0.join(name));
        fs::write(&new, pem)?;
        fs::rename(&new, &file)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// Writes a certificate and its key, and returns their paths.
    fn certificate(&self, name: &str, authority: &Authority) -> Result<[String; 2]> {
        let (certificate, key) = issue(authority, vec![SanType::DnsName(SERVER.try_into()?)])?;
        Ok([
            self.put(&format!("{name}.crt"), &certificate.pem())?,
            self.put(&format!("{name}.key"), &key.serialize_pem())?,
        ])
    }
}
