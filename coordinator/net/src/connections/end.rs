//! End of a connection, for answers that last as long.

use std::sync::Arc;

use super::activity::Activity;

/// Tells an answer without an end of its own when its connection is to end. Each request has it
/// among its extensions.
#[derive(Clone, Debug)]
pub struct ConnectionEnd(Arc<Activity>);

// === impl ConnectionEnd ===

impl ConnectionEnd {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        Self(Arc::clone(activity))
    }

    /// Counts the connection among those that were answered: a stream that has begun is an answer,
    /// and its first byte may come late.
    pub fn stream_begins(&self) {
        self.0.answered();
    }

    /// Resolves when the client is to leave.
    pub async fn closing(&self) {
        self.0.closing().await;
    }
}
