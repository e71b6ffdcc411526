//! Faults of the files of TLS.

use std::io;
use std::path::{Path, PathBuf};

use super::files::FILE_LEN_MAX;

/// A file that cannot be used: `/etc/tollgate/tls.key: is not the key of /etc/tollgate/tls.crt`.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// Its fault.
    pub reason: TlsFault,
}

/// Reason for which a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// It cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// It or one of those that are read with it hangs.
    #[error("it, or a file that goes with it, hangs: {0}")]
    Hangs(io::Error),
    /// It is no file of this kind.
    #[error("has more than {FILE_LEN_MAX} bytes")]
    TooLarge,
    /// It is not PEM.
    #[error("is not PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// PEM without what is needed.
    #[error("has no {0}")]
    Nothing(&'static str),
    /// A certificate whose time is over.
    #[error("the certificate expired on {0}")]
    Expired(humantime::Rfc3339Timestamp),
    /// A certificate whose time has not come; usually the clock of this machine is wrong.
    #[error("the certificate is not valid before {0}")]
    NotYetValid(humantime::Rfc3339Timestamp),
    /// A key of another certificate.
    #[error("is not the key of {}", .0.display())]
    KeyOfAnother(PathBuf),
    /// A certificate that cannot be read.
    #[error("has a certificate that cannot be read: {0}")]
    Certificate(x509_cert::der::Error),
    /// Anything else that rustls does not accept.
    #[error("{0}")]
    Unusable(rustls::Error),
    /// Certificates of issuers that cannot be used to check others.
    #[error("cannot be used to check certificates: {0}")]
    Ca(String),
}

// === impl TlsError ===

impl TlsError {
    pub(super) fn new(file: &Path, reason: TlsFault) -> Self {
        Self {
            file: file.to_owned(),
            reason,
        }
    }
}
