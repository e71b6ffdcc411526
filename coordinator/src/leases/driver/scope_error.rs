//! Error of one scope in an answer.

use tollgate_core::resource::RefreshError;
use tollgate_proto::response::ScopeError;
use tonic::Code;

use super::LeaseError;

// === impl ScopeError ===

impl From<LeaseError> for ScopeError {
    fn from(error: LeaseError) -> Self {
        let code = match error {
            LeaseError::Refresh(RefreshError::Stale { .. } | RefreshError::EarlierTerm { .. }) => {
                Code::Aborted
            }
            LeaseError::Refresh(
                RefreshError::TooManyClients { .. }
                | RefreshError::TooManyResources { .. }
                | RefreshError::TooManyLeases { .. },
            ) => Code::ResourceExhausted,
            LeaseError::Elsewhere { .. } => Code::Unavailable,
        };
        Self {
            code: code as u32,
            message: error.to_string(),
        }
    }
}
