//! Reasons for which a driver grants no lease.

use tollgate_core::cluster::ShardId;
use tollgate_core::resource::RefreshError;
use tollgate_proto::response::ScopeError;
use tonic::Code;

use crate::metrics::RefreshFault;

/// Reason for which the driver did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue stayed full for a second, or too many bulk calls wait for it.
    #[error("the coordinator is overloaded: its queue is full")]
    Busy,
    /// The driver has ended.
    #[error("the coordinator is shutting down")]
    Stopped,
}

/// Reason for which one unit of a scope got no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The lease table refused it.
    #[error(transparent)]
    Refresh(#[from] RefreshError),
    /// The scope belongs to another shard: the nodes do not know the same configuration yet.
    #[error("the scope belongs to shard {} here, and this node is master of shard {}", shard.0, ours.0)]
    Elsewhere {
        /// The scope's shard by this node's configuration.
        shard: ShardId,
        /// The shard of this master.
        ours: ShardId,
    },
    /// The scope's bucket could not be stored.
    #[error("the scope's bucket cannot be stored, and another node may be master by now")]
    NotStored,
}

// === impl LeaseError ===

impl LeaseError {
    /// Label under which the error is counted.
    pub(super) fn fault(self) -> RefreshFault {
        match self {
            Self::Refresh(RefreshError::Stale { .. } | RefreshError::EarlierTerm { .. }) => {
                RefreshFault::Stale
            }
            Self::Refresh(RefreshError::TooManyClients { .. }) => RefreshFault::TooManyClients,
            Self::Refresh(RefreshError::TooManyResources { .. }) => RefreshFault::TooManyResources,
            Self::Refresh(RefreshError::TooManyLeases { .. }) => RefreshFault::TooManyLeases,
            Self::Elsewhere { .. } => RefreshFault::Elsewhere,
            Self::NotStored => RefreshFault::NotStored,
        }
    }
}

impl From<LeaseError> for ScopeError {
    /// The error as a scope's part of an answer.
    fn from(error: LeaseError) -> Self {
        let code = match error.fault() {
            RefreshFault::Stale => Code::Aborted,
            RefreshFault::Elsewhere | RefreshFault::NotStored => Code::Unavailable,
            _ => Code::ResourceExhausted,
        };
        Self {
            code: code as u32,
            message: error.to_string(),
        }
    }
}
