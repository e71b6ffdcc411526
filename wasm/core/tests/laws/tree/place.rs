//! Members of a tree: coordinators with parents, and clients.

use core::num::NonZeroU64;
use core::time::Duration;

use tollgate_core::lease::{
    Answer, ClientId, ClientRun, Demand, Epoch, LeaseRequest, Origin, ResourceId, Run,
};
use tollgate_core::lease_client::{LeaseClient, LeaseMessage};
use tollgate_core::lease_server::{Bounds, LeaseServer, Start};
use tollgate_core::limit::Limit;
use tollgate_core::units::{Capacity, Instant};

pub(super) const BOUNDS: Bounds = Bounds {
    max_resources: 10,
    max_clients_per_resource: 100,
    max_leases: 1_000_000,
};

/// When a request to a parent counts as lost.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_millis(300);

/// A coordinator.
pub(super) struct Place {
    pub(super) id: ClientId,
    pub(super) parent: Option<usize>,
    pub(super) level: u32,
    pub(super) node: LeaseServer,
    /// Its own limit.
    pub(super) limit: Limit,
    epoch: Epoch,
    /// Until when nobody reaches it, and it nobody.
    pub(super) away_until: Instant,
    /// Until when it learns, if it has started again.
    pub(super) learning_until: Instant,
}

/// Client of a coordinator.
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) at: usize,
    pub(super) wants: Capacity,
    incarnation: NonZeroU64,
    sequence: u64,
    lease: LeaseClient,
}

// === impl Place ===

impl Place {
    pub(super) fn new(index: usize, parent: Option<usize>, level: u32, limit: Limit) -> Self {
        let mut place = Self {
            id: ClientId::new(&format!("place-{index}/0")).expect("a good id"),
            parent,
            level,
            node: LeaseServer::new(Instant::ZERO, Epoch(1), BOUNDS, Start::Fresh),
            limit,
            epoch: Epoch(1),
            away_until: Instant::ZERO,
            learning_until: Instant::ZERO,
        };
        place.join(Instant::ZERO);
        place
    }

    /// Starts again without a lease table.
    pub(super) fn restart(&mut self, now: Instant) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.node = LeaseServer::new(now, self.epoch, BOUNDS, Start::Learning);
        self.learning_until = now.saturating_add(self.limit.learning);
        self.join(now);
    }

    /// The run of it that asks its parent.
    pub(super) fn run(&self) -> Run {
        Run::Term(self.epoch)
    }

    fn join(&mut self, now: Instant) {
        if self.parent.is_some() {
            // Each run counts from below the one before, as on a machine whose clock is behind: only
            // the terms tell which is the later one.
            let sequence = (1 << 62) - (self.epoch.0 << 42);
            self.node.borrow_from_parent(now, sequence, CALL_TIMEOUT);
        }
    }

    pub(super) fn message(&mut self, now: Instant) -> Vec<(ResourceId, LeaseMessage)> {
        self.node.handle_timeout(now);
        self.node.ask_parent(now, 100)
    }
}

// === impl Client ===

impl Client {
    pub(super) fn new(index: usize, at: usize) -> Self {
        Self {
            id: ClientId::new(&format!("client-{index}/0")).expect("a good id"),
            at,
            wants: Capacity::ZERO,
            incarnation: NonZeroU64::MIN,
            sequence: 0,
            lease: LeaseClient::new(Some(Instant::ZERO)),
        }
    }

    /// Starts again under its id, and counts its requests from the beginning.
    pub(super) fn restart(&mut self, index: usize, now: Instant) {
        let next = Self::new(index, self.at);
        *self = Self {
            wants: self.wants,
            incarnation: self.incarnation.saturating_add(1),
            lease: LeaseClient::new(Some(now)),
            ..next
        };
    }

    pub(super) fn run(&self) -> ClientRun {
        ClientRun {
            id: self.id.clone(),
            run: Run::Incarnation(self.incarnation),
        }
    }

    pub(super) fn has(&self, now: Instant) -> Capacity {
        let lease = self.lease.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| lease.capacity)
    }

    pub(super) fn ask_at(&self) -> Instant {
        self.lease.due().expect("a client always asks again")
    }

    pub(super) fn ask(&mut self, now: Instant) -> LeaseRequest {
        self.sequence += 1;
        let demand = Demand::of(self.wants);
        self.lease.request(now, self.sequence, CALL_TIMEOUT, demand)
    }

    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        (sequence, epoch): (u64, Epoch),
        answer: &Answer,
    ) {
        let origin = Origin::alone(epoch);
        // An earlier term's answer counts as a failure.
        let _ = self.lease.handle_answer(now, sequence, origin, answer);
    }
}
