//! Read-only view of coordinators and their masters, for laws.

use std::sync::Arc;

use tollgate_core::lease::{ClientId, Epoch};
use tollgate_core::lease_server::LeaseServer;
use tollgate_core::units::Instant;

use super::Simulation;
use crate::coordinator::Coordinator;
use crate::limits::LimitTable;

/// Coordinator, as laws look at it.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorView<'a> {
    coordinator: &'a Coordinator,
    limits: &'a LimitTable,
    now: Instant,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the coordinators, in the order of the scenario.
    pub fn coordinators(&self) -> impl Iterator<Item = CoordinatorView<'_>> {
        let now = self.now();
        self.coordinators
            .iter()
            .map(move |coordinator| CoordinatorView {
                coordinator,
                limits: &self.limits,
                now,
            })
    }

    /// Returns the coordinator at a place.
    pub fn coordinator(&self, index: usize) -> Option<CoordinatorView<'_>> {
        self.coordinators().nth(index)
    }
}

// === impl CoordinatorView ===

impl<'a> CoordinatorView<'a> {
    /// Returns the id under which it is a client of its parent.
    pub fn id(self) -> &'a ClientId {
        self.coordinator.id()
    }

    /// Returns the place of its parent.
    pub fn parent(self) -> Option<usize> {
        self.coordinator.parent
    }

    /// Returns the number of coordinators above it.
    pub fn level(self) -> u32 {
        self.coordinator.level
    }

    /// Returns the time by its clock.
    pub fn clock(self) -> Instant {
        self.coordinator.clock(self.now)
    }

    /// Returns the lease server of the master of a scope's shard: the past one's until another is
    /// elected.
    pub fn master(self, scope: &Arc<str>) -> Option<&'a LeaseServer> {
        self.coordinator.master(scope, self.limits)
    }

    /// Returns the term of the shard's last master that was elected.
    pub fn epoch(self, scope: &Arc<str>) -> Epoch {
        self.coordinator.epoch(scope, self.limits)
    }
}
