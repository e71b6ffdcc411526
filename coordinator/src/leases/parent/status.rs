//! How the calls to the parent go, for people to read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::boot_time;

/// How the last calls went; clones share it.
#[derive(Clone, Debug)]
pub(super) struct CallRecord(Arc<Mutex<LastCalls>>);

#[derive(Debug)]
struct LastCalls {
    address: String,
    /// Since the machine's boot.
    answered_at: Option<Duration>,
    error: Option<String>,
}

/// How a parent was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// Where it was asked.
    pub address: String,
    /// How long ago it answered; none if never.
    pub answered_ago: Option<Duration>,
    /// Why the last call failed, if it did.
    pub error: Option<String>,
}

// === impl CallRecord ===

impl CallRecord {
    /// Of one that is to be asked at `address` first.
    pub(super) fn new(address: &str) -> Self {
        Self(Arc::new(Mutex::new(LastCalls {
            address: address.to_owned(),
            answered_at: None,
            error: None,
        })))
    }

    /// It has answered at `address`.
    pub(super) fn answered(&self, address: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.address != address {
            last.address = address.to_owned();
        }
        last.answered_at = Some(boot_time());
        last.error = None;
    }

    /// It could not be asked at `address`, or has given an answer of no use.
    pub(super) fn failed(&self, address: &str, error: &impl ToString) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.address = address.to_owned();
        last.error = Some(error.to_string());
    }

    pub(super) fn look(&self) -> ParentStatus {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ago = |at| boot_time().saturating_sub(at);
        ParentStatus {
            address: last.address.clone(),
            answered_ago: last.answered_at.map(ago),
            error: last.error.clone(),
        }
    }
}
