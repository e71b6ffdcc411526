//! Nudges: names of clients that should ask again now.
//!
//! After each event the server looks at the clients whose leases it may have changed, a few at a
//! time, so that an event costs O(log n) however many clients a resource has. A nudge grants
//! nothing, and no answer depends on it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{LeaseServer, requeue};
use crate::lease::{ClientId, ResourceId};
use crate::units::Instant;

/// Clients of the resource of an event that are looked at after it.
const LOOKS: usize = 16;

/// Other members of the resource's pool that are looked at then.
const MEMBERS: usize = 4;

/// Clients of each of those that are looked at.
const LOOKS_OF_MEMBER: usize = 4;

/// The most nudges that wait to be sent.
const QUEUE_MAX: usize = 1024;

/// A client that should ask for a resource now: its share has changed by more than noise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nudge {
    /// The client, in any run.
    pub client: ClientId,
    /// The resource.
    pub resource: ResourceId,
}

/// Nudges that wait to be sent, at most [`QUEUE_MAX`].
#[derive(Debug, Default)]
pub(super) struct NudgeQueue {
    queue: VecDeque<Nudge>,
}

// === impl NudgeQueue ===

impl NudgeQueue {
    fn push(&mut self, client: ClientId, resource: &ResourceId) {
        self.queue.push_back(Nudge {
            client,
            resource: resource.clone(),
        });
    }

    /// Number of nudges for which there is room.
    fn room(&self) -> usize {
        QUEUE_MAX.saturating_sub(self.queue.len())
    }
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Returns the next client that should ask again, until there is none. After each call that
    /// takes an event there may be some; while nobody takes them, at most 1024 are kept.
    pub fn poll_nudge(&mut self) -> Option<Nudge> {
        self.nudges.queue.pop_front()
    }

    /// Looks at the next clients whose leases an event of the resource `id` may have changed.
    pub(super) fn look_for_nudges(&mut self, now: Instant, id: &ResourceId) {
        self.look_at_clients(now, id, LOOKS);
        for scope in self.stirred_members(id) {
            let unit = id.unit;
            let member = ResourceId { scope, unit };
            if let Some(slot) = self.resources.get_mut(&member) {
                slot.resource.stir();
            }
            self.look_at_clients(now, &member, LOOKS_OF_MEMBER);
        }
    }

    /// Notes that `client`, which has just asked for the resource `id`, should do so again.
    pub(super) fn nudge_again(&mut self, client: &ClientId, id: &ResourceId) {
        if self.nudges.room() > 0 {
            self.nudges.push(client.clone(), id);
        }
    }

    /// Looks at the next clients of the resource `id`, at most `most`.
    fn look_at_clients(&mut self, now: Instant, id: &ResourceId, most: usize) {
        let most = most.min(self.nudges.room());
        let Some(slot) = self.resources.get_mut(id) else {
            return;
        };
        if most == 0 || !slot.resource.is_stirred() {
            return;
        }
        let (resource, mut pool) = slot.linked(&mut self.pools);
        for client in resource.nudges(now, most, &mut pool) {
            self.nudges.push(client, id);
        }
        requeue(&mut self.timeouts, id, slot);
    }

    /// The next members of the pool of the resource `id` that are to be looked at, if it is in one.
    fn stirred_members(&mut self, id: &ResourceId) -> Vec<Arc<str>> {
        let slot = self.resources.get(id);
        let pool = slot.and_then(|slot| slot.pool());
        let pool = pool.and_then(|pool| self.pools.get_mut(pool));
        pool.map_or_else(Vec::new, |pool| pool.stirred_members(MEMBERS))
    }
}
