//! Streams on which a coordinator names resources to its clients.

use tollgate_core::lease::{ClientId, ResourceId};
use tollgate_core::units::Instant;

use super::{Coordinator, Shard};
use crate::limits::LimitTable;
use crate::topology::Node;

/// Call or stream of a worker, by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerCall {
    pub(crate) envoy: usize,
    pub(crate) incarnation: u32,
    pub(crate) worker: u32,
    pub(crate) token: u32,
}

/// Lower end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    /// Worker of a process.
    Envoy(WorkerCall),
    /// Coordinator below.
    Coordinator(usize),
}

// === impl Watcher ===

impl Watcher {
    pub(crate) fn node(self) -> Node {
        match self {
            Self::Envoy(call) => Node::Envoy(call.envoy),
            Self::Coordinator(index) => Node::Coordinator(index),
        }
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// Returns the id under which it is a client of its parent.
    pub(crate) fn id(&self) -> &ClientId {
        &self.id
    }

    /// Names the resources of `client` on a stream, which takes the place of an earlier one.
    pub(crate) fn watch(&mut self, client: ClientId, watcher: Watcher) {
        self.watches.insert(client, watcher);
    }

    /// Forgets the stream of `client`, which has ended.
    pub(crate) fn forget_watch(&mut self, client: &ClientId) {
        self.watches.remove(client);
    }

    /// Forgets all streams, and returns their lower ends.
    pub(crate) fn take_watches(&mut self) -> Vec<Watcher> {
        std::mem::take(&mut self.watches).into_values().collect()
    }

    /// Returns what its masters have named since the last time, with the streams of those that are
    /// meant; a client without one is not told.
    pub(crate) fn take_nudges(&mut self) -> Vec<(Watcher, ResourceId)> {
        let watches = &self.watches;
        let servers = self.shards.iter_mut().flat_map(Shard::nodes_mut);
        let nudges = servers.flat_map(|server| std::iter::from_fn(|| server.poll_nudge()));
        let told = nudges.filter_map(|nudge| {
            let watcher = watches.get(&nudge.client)?;
            Some((*watcher, nudge.resource))
        });
        told.collect()
    }

    /// Asks the parent for a resource soon, because the parent has named it.
    pub(crate) fn parent_nudged(
        &mut self,
        now: Instant,
        resource: &ResourceId,
        limits: &LimitTable,
    ) {
        let local = self.clock.at(now);
        let home = &limits.of_source(self.limits, &resource.scope).home;
        let index = self.shard_of(home);
        if let Some(server) = &mut self.shards[index].server {
            server.handle_parent_nudge(local, resource);
        }
    }
}
