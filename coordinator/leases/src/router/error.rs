//! Shards and scopes without an answer.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Origin;
use tollgate_proto::request::ScopeRefresh;
use tollgate_proto::response::{ScopeAnswer, ScopeError};
use tonic::Code;

use crate::driver::DriverError;
use crate::shards::MastershipError;

/// Reason for which a shard did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// This node knows of no master.
    #[error("shard {0} has no master now")]
    NoMaster(ShardId),
    /// Another node has taken this one for the master.
    #[error("this node is not the master of shard {0}, or not in that term")]
    NotHere(ShardId),
    /// This node's own driver did not answer.
    #[error(transparent)]
    Mastership(#[from] MastershipError),
    /// The master did not answer in time.
    #[error("{node}, the master of shard {shard}, did not answer within {} ms", waited.as_millis())]
    Late {
        /// The shard.
        shard: ShardId,
        /// Its master.
        node: String,
        /// Its time limit.
        waited: Duration,
    },
    /// The master could not be reached, or refused.
    #[error("{node}, the master of shard {shard}: {cause}")]
    Peer {
        /// The shard.
        shard: ShardId,
        /// Its master.
        node: String,
        /// The master's or the transport's error.
        cause: String,
    },
}

// === impl RouteError ===

impl RouteError {
    /// Returns whether this node has too much to do.
    pub fn is_busy(&self) -> bool {
        *self == Self::Mastership(MastershipError::Driver(DriverError::Busy))
    }
}

// === free functions ===

/// The master's answer for `asks`, if it is for that scope and of `shard`; else an error.
pub(super) fn checked(
    shard: ShardId,
    asks: &ScopeRefresh,
    answer: Result<ScopeAnswer, String>,
) -> ScopeAnswer {
    let wrong = match answer {
        Ok(answer) if answer.scope != asks.scope => "the answer is for another scope".to_owned(),
        Ok(answer) if answer.outcome.is_ok() && answer.origin.shard != Some(shard) => {
            "the answer is of another shard".to_owned()
        }
        Ok(answer) => return answer,
        Err(wrong) => wrong,
    };
    without_answer(&asks.scope, Code::Internal, wrong)
}

/// Error answer for `scope`, whose shard did not answer.
pub(super) fn unanswered(scope: &Arc<str>, error: &RouteError) -> ScopeAnswer {
    without_answer(scope, Code::Unavailable, error.to_string())
}

/// Error answer for a scope whose answer was lost by a bug.
pub(super) fn lost(scope: Option<&Arc<str>>) -> ScopeAnswer {
    let scope = scope.cloned().unwrap_or_default();
    without_answer(&scope, Code::Internal, "the answer was lost".to_owned())
}

fn without_answer(scope: &Arc<str>, code: Code, message: String) -> ScopeAnswer {
    ScopeAnswer {
        scope: scope.clone(),
        canonical: scope.clone(),
        limited: Vec::new(),
        usual: None,
        origin: Origin::default(),
        outcome: Err(ScopeError {
            code: code as u32,
            message,
        }),
    }
}
