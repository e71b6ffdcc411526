//! Scope keys from a client's certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rcgen::SanType;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::{COORDINATOR, tollgate};

use crate::certificates::{Authority, authority, issue};
use crate::test_context::{TestContext, run_test};

const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100000}\n";

#[test]
fn a_certificate_names_the_client() {
    run_test("a_certificate_names_the_client", certificates);
}

async fn certificates(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let authority = authority()?;
    let plugin = json!({"coordinator": COORDINATOR, "scopes": [
        {"name": "uri", "key": {"peer_san": "uri"}},
        {"name": "dns", "key": {"peer_san": "dns"}},
    ]});
    let mut spec = EnvoySpec::new(
        "envoy",
        1,
        test.upstream.address(),
        vec![tollgate(&plugin)?],
    );
    spec.transport_socket = Some(mutual_tls(&authority)?);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let names = vec![
        SanType::URI("spiffe://tollgate/api".try_into()?),
        SanType::DnsName("api.tollgate.test".try_into()?),
    ];
    let answer = get(envoy.address(), &authority, names).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for scope in ["uri/spiffe://tollgate/api", "dns/api.tollgate.test"] {
        ensure!(
            coordinator.leases(scope).await?.is_some(),
            "{scope} is unknown"
        );
    }
    Ok(())
}

fn mutual_tls(authority: &Authority) -> Result<Value> {
    let server = vec![SanType::DnsName("tollgate.test".try_into()?)];
    let (certificate, key) = issue(authority, server)?;
    Ok(json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": true,
            "common_tls_context": {
                "tls_certificates": [{
                    "certificate_chain": {"inline_string": certificate.pem()},
                    "private_key": {"inline_string": key.serialize_pem()},
                }],
                "validation_context": {"trusted_ca": {"inline_string": authority.pem()}},
            },
        },
    }))
}

/// Sends a GET with a client certificate for `names`; returns the beginning of the answer.
async fn get(to: SocketAddr, authority: &Authority, names: Vec<SanType>) -> Result<String> {
    let (certificate, key) = issue(authority, names)?;
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .ok()
        .context("a private key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    let stream = TcpStream::connect(to).await?;
    let name = ServerName::try_from("tollgate.test")?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: tollgate.test\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = vec![0; 1024];
    let length = stream.read(&mut answer).await?;
    answer.truncate(length);
    Ok(String::from_utf8(answer)?)
}
