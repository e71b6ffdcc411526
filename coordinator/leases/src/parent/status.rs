//! State of the calls to the parent, for people to read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_net::clock::boot_time;

/// Record of the last calls; clones share it.
#[derive(Clone, Debug)]
pub(super) struct CallRecord(Arc<Mutex<LastCalls>>);

#[derive(Debug)]
struct LastCalls {
    address: String,
    /// Time since the machine's boot.
    answered_at: Option<Duration>,
    error: Option<String>,
}

/// State of the calls to a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentCallStatus {
    /// Address of the last call.
    pub address: String,
    /// Time since the last answer; `None` if there was none.
    pub answered_ago: Option<Duration>,
    /// Reason for which the last call failed, if it did.
    pub error: Option<String>,
}

// === impl CallRecord ===

impl CallRecord {
    /// Record without calls; `address` is the first to be used.
    pub(super) fn new(address: &str) -> Self {
        Self(Arc::new(Mutex::new(LastCalls {
            address: address.to_owned(),
            answered_at: None,
            error: None,
        })))
    }

    /// Records an answer from `address`.
    pub(super) fn answered(&self, address: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.address != address {
            last.address = address.to_owned();
        }
        last.answered_at = Some(boot_time());
        last.error = None;
    }

    /// Records a failed call to `address`.
    pub(super) fn failed(&self, address: &str, error: &impl ToString) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.address = address.to_owned();
        last.error = Some(error.to_string());
    }

    pub(super) fn look(&self) -> ParentCallStatus {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ago = |at| boot_time().saturating_sub(at);
        ParentCallStatus {
            address: last.address.clone(),
            answered_ago: last.answered_at.map(ago),
            error: last.error.clone(),
        }
    }
}
