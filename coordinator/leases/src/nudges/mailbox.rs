//! Nudges that a watcher has not taken yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_proto::request::SCOPES_MAX;

/// The most nudges that wait in all mailboxes together: as many as there are leases by default.
const PENDING_MAX: usize = 1_000_000;

/// Number of the nudges that wait in all mailboxes together; clones share it.
#[derive(Clone, Debug)]
pub(super) struct PendingNudges {
    max: usize,
    count: Arc<AtomicUsize>,
}

/// Bounded mailbox of one watch, in which each nudge is at most once.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// The most nudges.
    max: usize,
    all: PendingNudges,
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

// === impl PendingNudges ===

impl PendingNudges {
    /// None, and at most `max`.
    fn new(max: usize) -> Self {
        let count = Arc::default();
        Self { max, count }
    }

    /// Adds a nudge; `false` if there are too many.
    fn add(&self) -> bool {
        let add = |before| (before < self.max).then_some(before + 1);
        let order = Ordering::Relaxed;
        self.count.fetch_update(order, order, add).is_ok()
    }

    fn remove(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Default for PendingNudges {
    fn default() -> Self {
        Self::new(PENDING_MAX)
    }
}

// === impl Mailbox ===

impl Mailbox {
    /// An empty mailbox for `max` nudges, which count among `all`.
    pub(super) fn new(max: usize, all: &PendingNudges) -> Self {
        Self {
            max,
            all: all.clone(),
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
        if state.len >= self.max || !self.all.add() {
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
        self.all.remove(taken.len());
        Some((client, taken.into_iter().collect()))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let left = self.state().len;
        self.all.remove(left);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::lease::Unit;

    use super::*;

    #[test]
    fn mailboxes_share_a_bound_and_give_back_what_they_had() {
        let all = PendingNudges::new(3);
        let client = ClientId::new("a").unwrap();
        let put = |mailbox: &Mailbox, scope: &str| {
            let resource = ResourceId::new(scope, Unit::Requests).unwrap();
            mailbox.put(&client, &resource)
        };
        let (first, second) = (Mailbox::new(2, &all), Mailbox::new(9, &all));
        assert!(put(&first, "x") && put(&first, "y"));
        assert!(!put(&first, "z"), "its own bound");
        assert!(put(&second, "x"));
        assert!(!put(&second, "y"), "the bound of both");
        assert!(put(&second, "x"), "it is there already");
        first.take().unwrap();
        assert!(put(&second, "y") && put(&second, "z"));
        drop(second);
        assert_eq!(all.count.load(Ordering::Relaxed), 0);
    }
}
