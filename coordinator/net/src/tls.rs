//! TLS: certificates and keys from files, which may change while the coordinator runs.
//!
//! [`ServerFiles`] are the certificate of a listener; every handshake uses the newest one, and open
//! connections stay as they are. [`Credentials`] are for connections to other servers. A `Renewal`
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
mod peer_names;
mod renewal;

pub use credentials::{ClientFiles, Credentials};
pub use error::{TlsError, TlsFault};
pub use files::TlsContents;
pub(crate) use metrics::Labels;
pub use metrics::{HandshakeFault, TlsMetrics};
pub use owner::CertificateOwner;
pub use peer_names::PeerNames;
use renewal::Renewal;
pub use renewal::{Newest, TlsSource};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// gRPC: HTTP/2 alone.
    Grpc,
    /// For people and Prometheus: HTTP/1.1.
    Http,
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
        let source = self.source(listener);
        source.make(&source.read()?)
    }

    /// Reads the files of `listener` for its next handshakes, now and whenever they change.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(
        &self,
        listener: Listener,
        metrics: &TlsMetrics,
    ) -> Result<Newest<ServerConfig>, TlsError> {
        Renewal::start(listener.into(), self.source(listener), metrics)
    }

    fn source(&self, listener: Listener) -> ListenerFiles {
        let files = self.clone();
        ListenerFiles { listener, files }
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

    /// The label of what is its own.
    pub(crate) const fn label(self) -> (&'static str, &'static str) {
        ("listener", self.name())
    }

    /// The protocol in ALPN.
    const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http => b"http/1.1",
        }
    }
}
