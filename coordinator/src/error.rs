//! Errors that keep a coordinator from starting, or end it.

use std::io;
use std::net::SocketAddr;

use tollgate_cluster::election::{ElectionError, RunEpochError};
use tollgate_config::catalog::store::StoreError;
use tollgate_leases::parent::ParentError;
use tollgate_net::tls::{CertificateOwner, TlsError};

/// Error that ended the coordinator.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// TLS files cannot be used.
    #[error("{}: {cause}", owner.section())]
    Tls {
        /// The owner of the files.
        owner: CertificateOwner,
        /// The fault of its files.
        cause: TlsError,
    },
    /// The parent cannot be asked.
    #[error(transparent)]
    Parent(#[from] ParentError),
    /// The stored configuration cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run has no usable epoch.
    #[error(transparent)]
    Epoch(#[from] RunEpochError),
    /// This node cannot take part in its cluster.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A part ended before the shutdown.
    #[error("the {0} ended by itself")]
    Ended(&'static str),
    /// A part panicked.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
