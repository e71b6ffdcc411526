//! Actions for the buckets of a proxy.

use std::sync::Arc;

use super::assignment::Assignment;
use super::bucket_name::{BucketName, name_len};

/// Action for one bucket of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) bucket: Arc<BucketName>,
    pub(super) kind: ActionKind,
}

/// Kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionKind {
    Assign(Assignment),
    Abandon,
}

// === impl Action ===

impl Action {
    /// Returns the most bytes that it has in a message: those of its name, of the heads of its fields, and
    /// of the assignment.
    pub(super) fn len_max(&self) -> usize {
        const PAIR_LEN: usize = 10;
        const REST_LEN: usize = 64;
        name_len(&self.bucket) + PAIR_LEN * self.bucket.len() + REST_LEN
    }
}
