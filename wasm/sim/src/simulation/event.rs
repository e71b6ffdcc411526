//! Events of a simulation.

use std::hash::{DefaultHasher, Hash as _};

use tollgate_core::lease::{ClientId, Epoch, ResourceId};
use tollgate_core::message::{Refresh, Refreshed, Release};
use tollgate_core::units::Instant;

use super::actions::Action;
use super::exchanges::AnsweredCall;
use crate::coordinator::{Watcher, WorkerCall};
use crate::topology::Node;

/// Event of a simulation.
#[derive(Debug)]
pub(super) enum Event {
    /// A process starts.
    Start { envoy: u32, incarnation: u32 },
    /// A process has something to do.
    Wake { envoy: u32, incarnation: u32 },
    /// Requests come for Envoys to be chosen.
    Requests { demand: u32 },
    /// A shard of a coordinator has something to do.
    Coordinator { coordinator: u32, shard: u16 },
    /// A coordinator opens a stream to its parent.
    WatchParent { coordinator: u32 },
    /// A message arrives.
    Message(Box<Message>),
    /// Something happens to the fleet.
    Action(Box<Action>),
    /// Something happens to the fleet at random.
    Mishap,
    /// It is time for a sample.
    Sample,
}

/// Requests of a coordinator to its parent of which the transport reports that they have failed.
#[derive(Clone, Debug)]
pub(super) struct FailedCall {
    pub(super) shard: usize,
    pub(super) epoch: Epoch,
    pub(super) requests: Vec<(ResourceId, u64)>,
}

/// Message on its way.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) body: Body,
}

/// Content of a message.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Refresh(CalledRefresh),
    Release(Release),
    Answer {
        caller: Caller,
        answer: Result<Refreshed, String>,
        /// The call, if a coordinator has answered it.
        call: Option<AnsweredCall>,
    },
    /// Failure of a coordinator's call to its parent.
    Failure(FailedCall),
    /// Opening of a stream of nudges.
    Watch {
        watcher: Watcher,
        client: ClientId,
    },
    /// End of a stream of nudges.
    WatchEnd(Watcher),
    /// Name of a resource that is to be asked for now.
    Nudge {
        watcher: Watcher,
        resource: ResourceId,
    },
}

/// Refresh with its caller.
#[derive(Clone, Debug)]
pub(super) struct CalledRefresh {
    pub(super) caller: Caller,
    pub(super) refresh: Refresh,
    pub(super) sent_at: Instant,
    /// The term of the master in whose socket it has waited.
    pub(super) waited_for: Option<Epoch>,
}

/// Caller of a refresh.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Envoy(WorkerCall),
    Coordinator {
        coordinator: usize,
        shard: usize,
        epoch: Epoch,
    },
}

// === impl Event ===

impl Event {
    /// Adds to the digest what tells the event from others; its time is there already.
    pub(super) fn digest(&self, hasher: &mut DefaultHasher) {
        std::mem::discriminant(self).hash(hasher);
        match self {
            Self::Start { envoy, incarnation } | Self::Wake { envoy, incarnation } => {
                (envoy, incarnation).hash(hasher);
            }
            Self::Requests { demand } => demand.hash(hasher),
            Self::Coordinator { coordinator, shard } => (coordinator, shard).hash(hasher),
            Self::WatchParent { coordinator } => coordinator.hash(hasher),
            Self::Message(message) => message.digest(hasher),
            Self::Action(_) | Self::Mishap | Self::Sample => {}
        }
    }
}

// === impl CalledRefresh ===

impl CalledRefresh {
    /// Returns a refresh that was sent at `sent_at`.
    pub(super) fn new(sent_at: Instant, caller: Caller, refresh: Refresh) -> Self {
        Self {
            caller,
            refresh,
            sent_at,
            waited_for: None,
        }
    }
}

// === impl Message ===

impl Message {
    fn digest(&self, hasher: &mut DefaultHasher) {
        for node in [self.from, self.to] {
            match node {
                Node::Envoy(index) => (0, index).hash(hasher),
                Node::Coordinator(index) => (1, index).hash(hasher),
            }
        }
        match &self.body {
            Body::Refresh(CalledRefresh { refresh, .. }) => {
                for asks in refresh.scopes.iter().map(|scope| &scope.asks) {
                    for (_, ask) in asks {
                        let wants = ask.demand.wants().as_micros();
                        (ask.sequence, ask.has.as_micros(), wants).hash(hasher);
                    }
                }
            }
            Body::Release(release) => release.resources.len().hash(hasher),
            Body::Watch { .. } | Body::WatchEnd(_) => {}
            Body::Failure(failed) => failed.epoch.0.hash(hasher),
            Body::Nudge { resource, .. } => resource.scope.hash(hasher),
            Body::Answer { answer, .. } => {
                let scopes = answer
                    .iter()
                    .flat_map(|answer| answer.scopes.iter().flatten());
                let units = scopes
                    .filter_map(|scope| scope.outcome.as_ref().ok())
                    .flatten();
                for unit in units {
                    let gets = unit.answer.lease.map(|lease| lease.capacity.as_micros());
                    (unit.sequence, gets).hash(hasher);
                }
            }
        }
    }
}
