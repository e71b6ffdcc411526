//! Certificates made for a test, and clients that trust them.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

/// Issues certificates.
pub(crate) struct Issuer {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// Folder with a listener's certificates and keys.
pub(crate) struct Folder {
    folder: TempDir,
}

/// Connects with TLS.
#[derive(Clone)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    address: SocketAddr,
    /// Name that the certificate of the other side must have.
    name: &'static str,
}

// === impl Issuer ===

impl Issuer {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
        Self {
            issuer: issuer.unwrap(),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for `localhost`, good for servers and clients.
    pub(crate) fn issue(&self) -> Pair {
        self.valid(2020, 2120)
    }

    /// The same, valid from the start of one year to the start of another.
    pub(crate) fn valid(&self, from: i32, until: i32) -> Pair {
        self.named("localhost", from, until)
    }

    /// The same for `name`.
    pub(crate) fn named(&self, name: &str, from: i32, until: i32) -> Pair {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

// === impl Pair ===

impl Pair {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }
}

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only its owner can read, and says where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes `pair` and says it as a value of `tls` in the configuration.
    pub(crate) fn door(&self, pair: &Pair) -> String {
        let cert = self.write("tls.crt", &pair.cert);
        let key = self.write("tls.key", &pair.key);
        format!("cert: '{cert}', key: '{key}'")
    }
}

// === impl Client ===

impl Client {
    /// One that trusts `issuer` and shows `identity`, if it has one.
    pub(crate) fn new(
        address: SocketAddr,
        protocol: &str,
        issuer: &Issuer,
        identity: Option<&Pair>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(issuer.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![pair.der()], key)
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let config = Arc::new(config);
        Self {
            config,
            address,
            name: "localhost",
        }
    }

    /// One that connects to `name`.
    pub(crate) fn of(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(self.name).unwrap();
        let connector = TlsConnector::from(self.config.clone());
        connector.connect(name, stream).await
    }

    /// Returns the certificate that the listener shows now.
    pub(crate) async fn shown(&self) -> CertificateDer<'static> {
        let stream = self.connect().await.unwrap();
        let (_, session) = stream.get_ref();
        session.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// A gRPC channel over one connection.
    pub(crate) async fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(self.clone()).await
    }
}

impl Service<Uri> for Client {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.connect().await.map(TokioIo::new) })
    }
}
