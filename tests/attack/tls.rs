//! A certificate for the coordinator, and a client that trusts it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A self-signed certificate, and trust in it alone.
#[derive(Clone, Debug)]
pub(crate) struct TlsTrust {
    section: String,
    config: Arc<ClientConfig>,
}

// === impl TlsTrust ===

impl TlsTrust {
    /// Creates a certificate with its files in `dir`.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let (cert_file, key_file) = (dir.join("tls.crt"), dir.join("tls.key"));
        fs::write(&cert_file, cert.pem())?;
        fs::write(&key_file, signing_key.serialize_pem())?;
        let section = format!(
            "tls: {{http: {{cert: '{}', key: '{}'}}}}\n",
            cert_file.display(),
            key_file.display()
        );
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(cert))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            section,
            config: Arc::new(config),
        })
    }

    /// The coordinator's section `tls`.
    pub(crate) fn section(&self) -> String {
        self.section.clone()
    }

    /// Completes a TLS handshake on `stream`.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost")?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(connector.connect(name, stream).await?)
    }
}
