//! Trust and certificate of a coordinator as a client of other nodes, its parent, and etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::renewal::{Newest, Renewal, TlsSource};
use super::{CertificateOwner, LoadedTls, TlsContents, TlsError, TlsMetrics, check};
use crate::clock::unix_time;

/// Files of a client for TLS, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// Issuers of the server's certificate.
    pub ca: PathBuf,
    /// The certificate to show, and its key; none shows nothing.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; none is the host in its address.
    pub server_name: Option<String>,
}

/// Content of these files.
#[derive(Clone, Debug)]
pub struct Credentials {
    contents: TlsContents,
    server_name: Option<String>,
}

// === impl ClientFiles ===

impl ClientFiles {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of the file.
    pub fn load(&self) -> Result<Credentials, TlsError> {
        let loaded = self.make(&self.read()?)?;
        Ok((*loaded.value).clone())
    }

    /// Reads the files for `owner`, now and whenever they change.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn start(
        &self,
        owner: CertificateOwner,
        metrics: &TlsMetrics,
    ) -> Result<Newest<Credentials>, TlsError> {
        Renewal::start(owner, self.clone(), metrics)
    }
}

impl TlsSource for ClientFiles {
    type Output = Credentials;

    fn read(&self) -> Result<TlsContents, TlsError> {
        let identity = self.identity.as_ref();
        let identity = identity.map(|(cert, key)| (cert.as_path(), key.as_path()));
        TlsContents::of(identity, Some(&self.ca))
    }

    fn name(&self) -> &Path {
        &self.ca
    }

    fn make(&self, contents: &TlsContents) -> Result<LoadedTls<Credentials>, TlsError> {
        let expires = check::client(self, contents, unix_time())?;
        let credentials = Credentials {
            contents: contents.clone(),
            server_name: self.server_name.clone(),
        };
        Ok(LoadedTls {
            value: Arc::new(credentials),
            expires,
        })
    }
}

// === impl Credentials ===

impl Credentials {
    /// For calls over gRPC, etcd's too.
    pub fn tonic(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.ca()));
        if let Some((cert, key)) = self.identity() {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        match &self.server_name {
            Some(name) => tls.domain_name(name),
            None => tls,
        }
    }

    /// Returns the certificates of the trusted issuers, PEM.
    pub fn ca(&self) -> &[u8] {
        self.contents.ca.as_deref().unwrap_or_default()
    }

    /// Returns the certificate to show and its key, PEM.
    pub fn identity(&self) -> Option<(&[u8], &[u8])> {
        let TlsContents { cert, key, .. } = &self.contents;
        (!cert.is_empty()).then_some((cert, key))
    }
}
