//! Nudges: names of resources that a client should ask for now, because its share has changed.
//!
//! The drivers of this node put nudges into the mailboxes of open watches and never wait. A mailbox
//! is bounded, holds each nudge once, and drops what it has no place for. A nudge is no grant: a
//! client that misses one asks after its refresh interval.
//!
//! In a cluster the stream of a client ends at any node, and the masters of its resources may be
//! others. So a node on which clients watch keeps a watch at each other master
//! ([`follow_masters`]), to which that master sends the nudges of clients that do not watch there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tollgate_core::lease::{ClientId, ClientRun, ResourceId};
use tollgate_proto::nudge::Nudged;

mod follow;
mod mailbox;
mod metrics;
mod open;
mod source;

pub use self::follow::follow_masters;
use self::mailbox::Mailbox;
pub use self::mailbox::Replaced;
pub use self::metrics::NudgeMetrics;
use self::open::OpenWatches;
pub(crate) use self::source::NudgeSource;

/// The most open watches of a node: twice the connections that it accepts by default.
pub const WATCHES_MAX: usize = 16_384;

/// The most open watches of other nodes, which each get the nudges of all clients that do not watch
/// here.
pub const NODES_MAX: usize = 256;

/// Watches open at a time for runs of one client. More than one are left from runs whose end nobody
/// has noticed, or several processes share an id by mistake.
pub const RUNS_MAX: usize = 4;

/// Metadata by which a node of the cluster names itself when it opens a watch.
pub const NODE: &str = "tollgate-node";

/// Side for which a watch is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// Client that is told its own nudges.
    Client(ClientRun),
    /// Node of this name, which is told those of clients that do not watch here themselves.
    Node(String),
}

/// Open watches of a node; clones share them.
#[derive(Clone, Debug)]
pub struct Nudges(Arc<Hub>);

#[derive(Debug)]
struct Hub {
    /// Locked for a look-up and one step at each mailbox; nothing is awaited meanwhile.
    open: Mutex<OpenWatches>,
    /// Whether a client watches here.
    has_clients: watch::Sender<bool>,
    metrics: NudgeMetrics,
}

/// An open watch, which is closed when this is dropped.
#[derive(Debug)]
pub struct NudgeWatch {
    nudges: Nudges,
    watcher: Watcher,
    number: u64,
    mailbox: Arc<Mailbox>,
}

/// Reason for which a watch cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// There are as many as there may be.
    #[error("{0} streams for nudges are open, and there may be no more: refresh without one")]
    TooMany(usize),
    /// Other nodes have as many as they may.
    #[error("{0} nodes watch this one, and there may be no more")]
    TooManyNodes(usize),
}

// === impl Nudges ===

impl Nudges {
    /// No watches yet.
    pub fn new(metrics: NudgeMetrics) -> Self {
        Self(Arc::new(Hub {
            open: Mutex::default(),
            has_clients: watch::Sender::new(false),
            metrics,
        }))
    }

    /// Opens a watch for `watcher`, in place of an earlier one for the same run or node.
    ///
    /// # Errors
    /// If there are too many.
    pub fn open(&self, watcher: Watcher) -> Result<NudgeWatch, WatchError> {
        let mut open = self.watches();
        let (number, mailbox) = match &watcher {
            Watcher::Client(client) => open.open_client(client)?,
            Watcher::Node(name) => open.open_node(name)?,
        };
        self.publish(&open);
        drop(open);
        Ok(NudgeWatch {
            nudges: self.clone(),
            watcher,
            number,
            mailbox,
        })
    }

    /// Nudges `client` to ask for `resource`: through its own watch here if that takes the nudge, else
    /// through those of other nodes.
    pub fn nudge(&self, client: &ClientId, resource: &ResourceId) {
        let dropped = self.watches().nudge(client, resource);
        self.0.metrics.dropped.inc_by(dropped);
    }

    /// Hands the nudges of another master to the client that they are for, if it watches here.
    pub fn deliver(&self, nudged: &Nudged) {
        let Some(client) = &nudged.client else { return };
        let mut dropped = 0;
        let open = self.watches();
        for resource in &nudged.resources {
            dropped += open.nudge_client(client, resource).unwrap_or(0);
        }
        drop(open);
        self.0.metrics.dropped.inc_by(dropped);
    }

    /// Whether a client watches here, kept up to date.
    pub(super) fn has_clients(&self) -> watch::Receiver<bool> {
        self.0.has_clients.subscribe()
    }

    fn watches(&self) -> MutexGuard<'_, OpenWatches> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, open: &OpenWatches) {
        self.0.metrics.watches.set(open.len() as u64);
        self.0.has_clients.send_if_modified(|has_clients| {
            let before = std::mem::replace(has_clients, open.has_clients());
            before != *has_clients
        });
    }
}

impl Default for Nudges {
    /// No watches, with metrics that are not registered.
    fn default() -> Self {
        Self::new(NudgeMetrics::default())
    }
}

// === impl NudgeWatch ===

impl NudgeWatch {
    /// Resolves when there is a nudge to take.
    ///
    /// # Errors
    /// If another watch took the place of this one.
    pub async fn filled(&self) -> Result<(), Replaced> {
        self.mailbox.filled().await
    }

    /// Takes the next message, which is for one client.
    pub fn take(&self) -> Option<Nudged> {
        let (client, resources) = self.mailbox.take()?;
        let client = match self.watcher {
            Watcher::Node(_) => Some(client),
            Watcher::Client(_) => {
                self.nudges.0.metrics.nudges.inc_by(resources.len() as u64);
                None
            }
        };
        Some(Nudged { client, resources })
    }
}

impl Drop for NudgeWatch {
    fn drop(&mut self) {
        let mut open = self.nudges.watches();
        open.close(&self.watcher, self.number);
        self.nudges.publish(&open);
    }
}

#[cfg(test)]
mod tests;
