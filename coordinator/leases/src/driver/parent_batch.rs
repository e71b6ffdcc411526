//! Requests of a driver for its parent, and the answers to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_proto::request::ScopeRefresh;
use tollgate_proto::response::ScopeAnswer;

/// Requests that are due for the parent.
#[derive(Debug, Default)]
pub struct ParentBatch {
    /// Refreshes.
    pub scopes: Vec<ScopeRefresh>,
    /// Releases, each with its sequence.
    pub releases: Vec<(ResourceId, u64)>,
}

/// Result of a batch's refreshes.
#[derive(Debug, Default)]
pub struct ParentReply {
    /// All that was requested: scope, unit and sequence.
    pub requests: Vec<(Arc<str>, Unit, u64)>,
    /// Number of coordinators above.
    pub level: u32,
    /// The answers that came.
    pub answers: Vec<ScopeAnswer>,
}

// === impl ParentBatch ===

impl ParentBatch {
    /// Returns the requests in `todo`, by scope.
    pub(super) fn new(todo: Vec<(ResourceId, LeaseMessage)>) -> Self {
        let mut releases = Vec::new();
        let mut scopes: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for (id, todo) in todo {
            match todo {
                LeaseMessage::Refresh(ask) => {
                    scopes.entry(id.scope).or_default().push((id.unit, ask))
                }
                LeaseMessage::Release { sequence } => releases.push((id, sequence)),
                LeaseMessage::Nothing => {}
            }
        }
        let scopes = scopes.into_iter();
        Self {
            scopes: scopes
                .map(|(scope, asks)| ScopeRefresh { scope, asks })
                .collect(),
            releases,
        }
    }
}
