//! Coordinator of a tree, and facts about it that it may not know itself.

use std::time::Duration;

use tollgate_core::client::LeaseMessage;
use tollgate_core::lease::{Answer, ClientId, ClientRun, Epoch, Origin, ResourceId, Run};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start};
use tollgate_core::units::{Capacity, Instant};
use tollgate_proto::snapshot;

use super::scenario::CoordinatorSpec;

const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
};

/// Coordinator of a tree. Its clock has an epoch of its own.
pub(crate) struct Coordinator {
    pub(crate) id: ClientId,
    pub(crate) spec: CoordinatorSpec,
    /// Lease server; `None` while the coordinator is away.
    pub(crate) node: Option<LeaseServer>,
    pub(crate) epoch: Epoch,
    /// End of learning mode, if it has started without a snapshot.
    pub(crate) learning_until: Instant,
    pub(crate) deaf_until: Instant,
    pub(crate) mute_until: Instant,
    /// Leases of its parent, by all answers that it applied, that have not expired.
    pub(crate) borrowed: Vec<Borrowed>,
    /// Expiry of the last lease that it ever had.
    pub(crate) borrowed_until: Instant,
    /// The safe capacity that its parent last reported, if it ever answered.
    pub(crate) said_safe: Option<Option<Capacity>>,
    /// The capacity of the whole resource that its parent last reported.
    pub(crate) said_whole: Capacity,
    /// Time since which it has lent the safe capacity, if it does.
    pub(crate) safe_since: Option<Instant>,
    /// Expiry of the last safe capacity that it has lent or was lent.
    pub(crate) safe_until: Instant,
    clock_offset: Duration,
    /// Extra time for which it may be counted, see
    /// [`Scenario::held_up`](super::scenario::Scenario).
    held_up: Duration,
}

/// Lease of the parent, in the world's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    pub(crate) capacity: Capacity,
    pub(crate) until: Instant,
    /// Whether the parent had no lease itself and lent safe capacity.
    pub(crate) safe: bool,
}

// === impl Coordinator ===

impl Coordinator {
    pub(crate) fn new(
        now: Instant,
        index: usize,
        spec: CoordinatorSpec,
        clock_offset: Duration,
        held_up: Duration,
    ) -> Self {
        let mut coordinator = Self {
            id: ClientId::new(&format!("coordinator-{index}/0")).expect("a valid id"),
            spec,
            node: None,
            epoch: Epoch(0),
            learning_until: now,
            deaf_until: now,
            mute_until: now,
            borrowed: Vec::new(),
            borrowed_until: now,
            said_safe: None,
            said_whole: Capacity::UNLIMITED,
            safe_since: None,
            safe_until: now,
            clock_offset,
            held_up,
        };
        coordinator.start(now, None, Start::Fresh);
        coordinator
    }

    /// Starts in a new term, with the snapshot that was left if there is one.
    pub(crate) fn start(&mut self, now: Instant, left: Option<&[u8]>, start: Start) {
        self.epoch = Epoch(self.epoch.0 + 1);
        let clock = self.clock(now);
        let mut node = match left {
            None => LeaseServer::new(clock, self.epoch, BOUNDS, start),
            Some(left) => {
                let left = snapshot::decode(left).expect("what was written can be read");
                LeaseServer::take_over(clock, self.epoch, BOUNDS, &left).expect("a good snapshot")
            }
        };
        if start == Start::Learning && left.is_none() {
            self.learning_until = now.saturating_add(self.spec.limit.learning);
        }
        if self.spec.parent.is_some() {
            self.said_safe = None;
            self.said_whole = Capacity::UNLIMITED;
            node.borrow_from_parent(clock, clock.as_nanos(), self.spec.call_timeout);
        }
        self.node = Some(node);
    }

    /// Ends the term. Returns the snapshot of its leases.
    pub(crate) fn hand_over(&mut self, now: Instant) -> Option<Vec<u8>> {
        let clock = self.clock(now);
        Some(snapshot::encode(&self.node.take()?.hand_over(clock)))
    }

    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.clock_offset)
    }

    /// Returns the client as which its parent counts it.
    pub(crate) fn run(&self) -> ClientRun {
        ClientRun {
            id: self.id.clone(),
            run: Run::Term(self.epoch),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::alone(self.epoch)
    }

    /// Takes back expired leases.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let clock = self.clock(now);
        let now_in_table = now.saturating_sub(self.held_up);
        self.borrowed
            .retain(|borrowed| borrowed.until > now_in_table);
        if let Some(node) = &mut self.node {
            node.handle_timeout(clock);
        }
    }

    /// Returns the messages that are due for the parent.
    pub(crate) fn ask(&mut self, now: Instant) -> Vec<(ResourceId, LeaseMessage)> {
        let clock = self.clock(now);
        let node = self.node.as_mut();
        node.map_or_else(Vec::new, |node| node.ask_parent(clock, 100))
    }

    /// Returns the capacity that it may lend on at `now`; `None` if it has no lease. The root has
    /// all.
    pub(crate) fn borrowed_capacity(&self, now: Instant, id: &ResourceId) -> Option<Capacity> {
        let tree = self.node.as_ref()?.parent_leases();
        let Some(tree) = tree else {
            return Some(self.spec.limit.capacity);
        };
        tree.view(self.clock(now), id)?.capacity
    }

    /// Returns the safe capacity of each of its clients while its parent is away, if any is known.
    pub(crate) fn safe(&self) -> Option<Capacity> {
        use tollgate_core::limit::SafeCapacity;
        match (self.said_safe.flatten(), self.spec.limit.safe) {
            (Some(safe), _) | (None, SafeCapacity::Fixed(safe)) => Some(safe),
            (None, SafeCapacity::Client | SafeCapacity::Dynamic) => None,
        }
    }

    /// Records an answer that was applied, and its lease if it has one.
    pub(crate) fn note(&mut self, lease: Option<Borrowed>, answer: &Answer) {
        // A parent that waits for its own knows of no limit yet.
        let waits = answer.lease.is_none() && answer.capacity.is_unlimited();
        if waits && self.said_safe.is_some() {
            return;
        }
        if (self.said_safe, self.said_whole) != (Some(answer.safe), answer.capacity) {
            self.safe_since = None;
        }
        self.said_safe = Some(answer.safe);
        self.said_whole = answer.capacity;
        if let Some(lease) = lease {
            if lease.safe {
                self.safe_until = self.safe_until.max(lease.until);
            }
            self.borrowed_until = self.borrowed_until.max(lease.until);
            self.borrowed.push(lease);
        }
    }
}
