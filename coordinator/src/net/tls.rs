//! TLS: certificates and keys from files, which may change while the coordinator runs.
//!
//! [`Identity`] is what a door shows to those who connect; every handshake uses the newest one, and
//! connections that are open stay as they are. [`Credentials`] are what the coordinator trusts and
//! shows where it connects to others. [`Renewal`] looks at the files of both. What cannot be used
//! (a key that does not belong to the certificate, a certificate that has expired) is refused as a
//! whole, at the start with an error and later by going on with what was there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;

mod check;
mod credentials;
mod error;
mod files;
mod holder;
mod metrics;
mod renewal;

pub use credentials::{ClientFiles, Credentials};
pub use error::{Reason, TlsError};
pub use files::Contents;
pub use holder::Holder;
pub use metrics::{HandshakeFault, TlsMetrics};
pub use renewal::{Newest, Renewal, Source};

use crate::clock::unix_time;

/// Where the certificate of a door and what goes with it are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, then those of its issuers.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Whose certificates a client must have; none asks for no certificate.
    pub client_ca: Option<PathBuf>,
}

/// What a door speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// gRPC: HTTP/2 alone.
    Grpc,
    /// For people and Prometheus: HTTP/1.1.
    Http,
}

/// What a door shows in its next handshake.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Newest<ServerConfig>,
}

/// The files of a door.
#[derive(Clone, Debug)]
struct DoorFiles {
    door: Door,
    files: Files,
}

/// What files say.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// What rustls takes.
    pub made: Arc<T>,
    /// When the certificate expires, since 1970; none if there is none.
    pub expires: Option<Duration>,
}

// === impl Files ===

impl Files {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of the file.
    pub fn load(&self, door: Door) -> Result<Loaded<ServerConfig>, TlsError> {
        let files = self.clone();
        let source = DoorFiles { door, files };
        source.make(&source.read()?)
    }
}

// === impl DoorFiles ===

impl Source for DoorFiles {
    type Made = ServerConfig;

    fn read(&self) -> Result<Contents, TlsError> {
        let Files {
            cert,
            key,
            client_ca,
        } = &self.files;
        Contents::of(Some((cert, key)), client_ca.as_deref())
    }

    fn name(&self) -> &Path {
        &self.files.cert
    }

    fn make(&self, contents: &Contents) -> Result<Loaded<ServerConfig>, TlsError> {
        check::door(&self.files, contents, self.door, unix_time())
    }
}

// === impl Door ===

impl Door {
    /// The name in the configuration, in logs and in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }

    /// What the door offers in ALPN.
    const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"h2",
            Self::Http => b"http/1.1",
        }
    }
}

// === impl Identity ===

impl Identity {
    /// What `files` say of `door`, kept so from now on.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(door: Door, files: Files, metrics: TlsMetrics) -> Result<Self, TlsError> {
        let (renewal, config) = Renewal::start(door.into(), DoorFiles { door, files }, metrics)?;
        tokio::spawn(renewal.run());
        Ok(Self { config })
    }

    /// What the next handshake uses.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.borrow().clone()
    }
}
