//! TLS: certificates and keys from files, which may change while the coordinator runs.
//!
//! A [`ServerIdentity`] is the certificate of a listener; every handshake uses the newest one, and open
//! connections stay as they are. [`Credentials`] are for connections to other servers. A [`Renewal`]
//! reads the files of both again. Files that cannot be used (a key of another certificate, an expired
//! certificate) are refused as a whole: with an error at the start, and later by staying with the old.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;

mod check;
mod credentials;
mod error;
mod files;
mod metrics;
mod owner;
mod renewal;

pub use credentials::{ClientFiles, Credentials};
pub use error::{TlsError, TlsFault};
pub use files::TlsContents;
pub use metrics::{HandshakeFault, TlsMetrics};
pub use owner::CertificateOwner;
pub use renewal::{Newest, Renewal, TlsSource};

use crate::clock::unix_time;

/// Files of a listener for TLS, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate, then those of its issuers.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Issuers of clients' certificates; `None` asks for no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Listener of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listener {
    /// gRPC: HTTP/2 alone.
    Grpc,
    /// For people and Prometheus: HTTP/1.1.
    Http,
}

/// Certificate of a listener for its next handshake.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    config: Newest<ServerConfig>,
}

/// Files of a listener.
#[derive(Clone, Debug)]
struct ListenerFiles {
    listener: Listener,
    files: ServerFiles,
}

/// Value that files make.
#[derive(Clone, Debug)]
pub struct LoadedTls<T> {
    /// The value.
    pub value: Arc<T>,
    /// When the certificate expires, since 1970; `None` without a certificate.
    pub expires: Option<Duration>,
}

// === impl ServerFiles ===

impl ServerFiles {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of the file.
    pub fn load(&self, listener: Listener) -> Result<LoadedTls<ServerConfig>, TlsError> {
        let files = self.clone();
        let source = ListenerFiles { listener, files };
        source.make(&source.read()?)
    }
}

// === impl ListenerFiles ===

impl TlsSource for ListenerFiles {
    type Output = ServerConfig;

    fn read(&self) -> Result<TlsContents, TlsError> {
        let ServerFiles {
            cert,
            key,
            client_ca,
        } = &self.files;
        TlsContents::of(Some((cert, key)), client_ca.as_deref())
    }

    fn name(&self) -> &Path {
        &self.files.cert
    }

    fn make(&self, contents: &TlsContents) -> Result<LoadedTls<ServerConfig>, TlsError> {
        check::server(&self.files, contents, self.listener, unix_time())
    }
}

// === impl Listener ===

impl Listener {
    /// The name in the configuration, in logs and in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// The protocol in ALPN.
    const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http => b"http/1.1",
        }
    }
}

// === impl ServerIdentity ===

impl ServerIdentity {
    /// Reads `files` of `listener`, now and whenever they change.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(
        listener: Listener,
        files: ServerFiles,
        metrics: TlsMetrics,
    ) -> Result<Self, TlsError> {
        let (renewal, config) =
            Renewal::start(listener.into(), ListenerFiles { listener, files }, metrics)?;
        tokio::spawn(renewal.run());
        Ok(Self { config })
    }

    /// Configuration of the next handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.borrow().clone()
    }
}
