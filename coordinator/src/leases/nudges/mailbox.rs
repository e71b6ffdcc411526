//! Nudges that a watcher has not taken yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_proto::request::SCOPES_MAX;

/// Bounded mailbox of one watch, in which each nudge is at most once.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// The most nudges.
    max: usize,
    state: Mutex<MailboxState>,
    /// Woken when there is something to take, or when the watch is replaced.
    filled: Notify,
}

#[derive(Debug, Default)]
struct MailboxState {
    pending: BTreeMap<ClientId, BTreeSet<ResourceId>>,
    /// Equals the sum of the nudges of all clients.
    len: usize,
    is_replaced: bool,
}

/// Another watch took the place of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another stream for this run of the client took the place of this one")]
pub struct Replaced;

// === impl Mailbox ===

impl Mailbox {
    /// An empty mailbox for `max` nudges.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            state: Mutex::default(),
            filled: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a nudge in; `false` if there is no place for it.
    pub(super) fn put(&self, client: &ClientId, resource: &ResourceId) -> bool {
        let mut state = self.state();
        let known = state.pending.get(client);
        if known.is_some_and(|known| known.contains(resource)) {
            return true;
        }
        if state.len >= self.max {
            return false;
        }
        let pending = match state.pending.get_mut(client) {
            Some(pending) => pending,
            None => state.pending.entry(client.clone()).or_default(),
        };
        pending.insert(resource.clone());
        state.len += 1;
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Ends the watch of this mailbox.
    pub(super) fn replace(&self) {
        self.state().is_replaced = true;
        self.filled.notify_one();
    }

    /// Resolves when there is a nudge to take.
    ///
    /// # Errors
    /// If the watch was replaced.
    pub(super) async fn filled(&self) -> Result<(), Replaced> {
        loop {
            {
                let state = self.state();
                if state.is_replaced {
                    return Err(Replaced);
                }
                if state.len > 0 {
                    return Ok(());
                }
            }
            // Names that came since are remembered there: there is one who waits.
            self.filled.notified().await;
        }
    }

    /// Takes the nudges of one client, as many as a message may have.
    pub(super) fn take(&self) -> Option<(ClientId, Vec<ResourceId>)> {
        let mut state = self.state();
        let (client, mut taken) = state.pending.pop_first()?;
        if let Some(rest) = taken.iter().nth(SCOPES_MAX).cloned() {
            let rest = taken.split_off(&rest);
            state.pending.insert(client.clone(), rest);
        }
        state.len -= taken.len();
        Some((client, taken.into_iter().collect()))
    }
}
