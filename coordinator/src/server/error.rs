//! Why a coordinator does not start, or ends.

use std::io;
use std::net::SocketAddr;

use crate::catalog::store::StoreError;
use crate::cluster::election::{ElectionError, RunEpochError};
use crate::leases::parent::ParentError;
use crate::net::tls::{Holder, TlsError};

/// Why the coordinator ended without being asked to.
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
    /// TLS cannot be spoken.
    #[error("{}: {cause}", holder.section())]
    Tls {
        /// By whom.
        holder: Holder,
        /// What is wrong with its files.
        cause: TlsError,
    },
    /// The parent cannot be asked.
    #[error(transparent)]
    Parent(#[from] ParentError),
    /// What was written through the API cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no epoch to start with.
    #[error(transparent)]
    Epoch(#[from] RunEpochError),
    /// This node cannot take part in its cluster.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A part ended that never should.
    #[error("the {0} ended by itself")]
    Ended(&'static str),
    /// A part panicked.
    #[error("a task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
