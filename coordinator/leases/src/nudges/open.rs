//! Open watches, and which of them a nudge is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::lease::{ClientId, ClientRun, ResourceId, Run};

use super::mailbox::{Mailbox, PendingNudges};
use super::{NODES_MAX, RUNS_MAX, WATCHES_MAX, WatchError, Watcher};

/// The most nudges that wait for a client. Beyond that it has to ask for most of what it has anyhow.
pub(super) const CLIENT_NUDGES_MAX: usize = 1000;

/// The most nudges that wait for the clients of another node.
pub(super) const NODE_NUDGES_MAX: usize = 10_000;

/// Open watches of clients and of other nodes.
#[derive(Debug, Default)]
pub(super) struct OpenWatches {
    /// Number of the newest.
    last: u64,
    /// By client, the oldest first; at most [`RUNS_MAX`] each.
    clients: BTreeMap<ClientId, Vec<ClientWatch>>,
    /// Equals the sum of the watches of all clients.
    client_watches: usize,
    /// Those of other nodes, by name.
    nodes: BTreeMap<String, NodeWatch>,
    /// Equals the sum of the nudges in all mailboxes.
    pending: PendingNudges,
}

/// Watch of another node.
#[derive(Debug)]
struct NodeWatch {
    number: u64,
    mailbox: Arc<Mailbox>,
}

/// Watch of one run of a client.
#[derive(Debug)]
struct ClientWatch {
    number: u64,
    run: Run,
    mailbox: Arc<Mailbox>,
}

// === impl OpenWatches ===

impl OpenWatches {
    /// Number of open watches.
    pub(super) fn len(&self) -> usize {
        self.client_watches + self.nodes.len()
    }

    /// Whether a client watches.
    pub(super) fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Opens a watch for a run of a client, in place of an earlier one for it. Beyond
    /// [`RUNS_MAX`] runs of one client the oldest is replaced.
    ///
    /// # Errors
    /// If there are too many watches.
    pub(super) fn open_client(
        &mut self,
        client: &ClientRun,
    ) -> Result<(u64, Arc<Mailbox>), WatchError> {
        let known = self.clients.get_mut(&client.id);
        let replaced = known.and_then(|runs| {
            let same = runs.iter().position(|open| open.run == client.run);
            let place = same.or_else(|| (runs.len() >= RUNS_MAX).then_some(0))?;
            Some(runs.remove(place))
        });
        match replaced {
            Some(open) => {
                self.client_watches -= 1;
                open.mailbox.replace();
            }
            None if self.len() >= WATCHES_MAX => return Err(WatchError::TooMany(WATCHES_MAX)),
            None => {}
        }
        self.last += 1;
        let mailbox = Arc::new(Mailbox::new(CLIENT_NUDGES_MAX, &self.pending));
        let runs = self.clients.entry(client.id.clone()).or_default();
        runs.push(ClientWatch {
            number: self.last,
            run: client.run,
            mailbox: Arc::clone(&mailbox),
        });
        self.client_watches += 1;
        Ok((self.last, mailbox))
    }

    /// Opens the watch of the node `name`, in place of an earlier one of it.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn open_node(&mut self, name: &str) -> Result<(u64, Arc<Mailbox>), WatchError> {
        match self.nodes.get(name) {
            Some(earlier) => earlier.mailbox.replace(),
            None if self.nodes.len() >= NODES_MAX => {
                return Err(WatchError::TooManyNodes(NODES_MAX));
            }
            None => {}
        }
        self.last += 1;
        let mailbox = Arc::new(Mailbox::new(NODE_NUDGES_MAX, &self.pending));
        let watch = NodeWatch {
            number: self.last,
            mailbox: Arc::clone(&mailbox),
        };
        self.nodes.insert(name.to_owned(), watch);
        Ok((self.last, mailbox))
    }

    /// Closes the watch of this number, if it was not replaced.
    pub(super) fn close(&mut self, watcher: &Watcher, number: u64) {
        let client = match watcher {
            Watcher::Client(client) => client,
            Watcher::Node(name) => {
                if self
                    .nodes
                    .get(name)
                    .is_some_and(|open| open.number == number)
                {
                    self.nodes.remove(name);
                }
                return;
            }
        };
        if let Some(runs) = self.clients.get_mut(&client.id) {
            let before = runs.len();
            runs.retain(|open| open.number != number);
            self.client_watches -= before - runs.len();
            if runs.is_empty() {
                self.clients.remove(&client.id);
            }
        }
    }

    /// Puts a nudge into the mailboxes that it is for; returns the number of those without a place.
    /// If a mailbox of the client here has none, it may have a watch at another node that has.
    pub(super) fn nudge(&self, client: &ClientId, resource: &ResourceId) -> u64 {
        match self.nudge_client(client, resource) {
            Some(0) => 0,
            dropped => {
                let nodes = self.nodes.values().map(|open| &open.mailbox);
                dropped.unwrap_or(0) + put_all(nodes, client, resource)
            }
        }
    }

    /// The same for a client that watches here; `None` if it does not.
    pub(super) fn nudge_client(&self, client: &ClientId, resource: &ResourceId) -> Option<u64> {
        let runs = self.clients.get(client)?.iter();
        Some(put_all(runs.map(|open| &open.mailbox), client, resource))
    }
}

// === free functions ===

fn put_all<'a>(
    mailboxes: impl Iterator<Item = &'a Arc<Mailbox>>,
    client: &ClientId,
    resource: &ResourceId,
) -> u64 {
    mailboxes
        .map(|mailbox| u64::from(!mailbox.put(client, resource)))
        .sum()
}
