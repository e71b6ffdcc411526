//! One coordinator's books: every resource that its clients have asked for.
//!
//! The node does not know the configuration: whoever calls looks the limit of a resource up and
//! passes it with each refresh, so a changed limit takes effect at the next refresh of each client
//! and there is nothing to invalidate.

use alloc::collections::{BTreeMap, BTreeSet};

use core::num::NonZeroU32;
use core::ops::Bound;

use crate::lease::{Answer, Ask, ClientId, Epoch, ResourceId};
use crate::limit::Limit;
use crate::resource::{RefreshError, Resource};
use crate::units::Instant;

/// The state of a coordinator that is master.
#[derive(Debug)]
pub struct Node {
    epoch: Epoch,
    bounds: Bounds,
    start: Start,
    started_at: Instant,
    resources: BTreeMap<ResourceId, Slot>,
    /// For each resource with clients one instant, not after its next expiry.
    timeouts: BTreeSet<(Instant, ResourceId)>,
}

/// How much a node keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Resources.
    pub max_resources: usize,
    /// Clients of one resource.
    pub max_clients_per_resource: usize,
}

/// What a node that starts knows of the leases that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: it learns what clients have before it lends.
    Learning,
    /// That there are none: the fleet is new.
    Fresh,
}

/// What the configuration says of a resource at the time of a refresh.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Its own limit; [`Capacity::UNLIMITED`](crate::units::Capacity::UNLIMITED) if only its pool's counts.
    pub limit: &'a Limit,
    /// The pool that it is a member of.
    pub pool: Option<Membership<'a>>,
}

/// A resource's place in a pool: a capacity that several resources share, each by its weight.
#[derive(Clone, Copy, Debug)]
pub struct Membership<'a> {
    /// The pool, such as `group/gold` and the unit of its members.
    pub pool: &'a ResourceId,
    /// What the pool has to give.
    pub limit: &'a Limit,
    /// How much this member counts beside the others.
    pub weight: NonZeroU32,
}

#[derive(Debug)]
struct Slot {
    resource: Resource,
    queued_at: Instant,
}

// === impl Terms ===

impl<'a> Terms<'a> {
    /// The terms of a resource that is in no pool.
    pub const fn of(limit: &'a Limit) -> Self {
        Self { limit, pool: None }
    }
}

// === impl Node ===

impl Node {
    /// A master of term `epoch` without any books.
    pub fn new(now: Instant, epoch: Epoch, bounds: Bounds, start: Start) -> Self {
        Self {
            epoch,
            bounds,
            start,
            started_at: now,
            resources: BTreeMap::new(),
            timeouts: BTreeSet::new(),
        }
    }

    /// The term of this master; it goes into every answer.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Answers what `client` asks of `resource`, for which `terms` hold now.
    ///
    /// # Errors
    /// If a later request of the client has been answered, or a bound is reached.
    pub fn handle_refresh(
        &mut self,
        now: Instant,
        client: &ClientId,
        resource: &ResourceId,
        ask: &Ask,
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        let limit = terms.limit;
        let clients_max = self.bounds.max_clients_per_resource;
        if let Some(slot) = self.resources.get_mut(resource) {
            let answer = slot
                .resource
                .handle_refresh(now, client, ask, limit, clients_max);
            requeue(&mut self.timeouts, resource, slot);
            return answer;
        }
        let max = self.bounds.max_resources;
        if self.resources.len() >= max {
            return Err(RefreshError::TooManyResources { max });
        }
        let mut books = Resource::new(limit.clone(), self.learning_until(limit));
        let answer = books.handle_refresh(now, client, ask, limit, clients_max)?;
        if let Some(queued_at) = books.poll_timeout() {
            self.timeouts.insert((queued_at, resource.clone()));
            self.resources.insert(
                resource.clone(),
                Slot {
                    resource: books,
                    queued_at,
                },
            );
        }
        Ok(answer)
    }

    /// Takes back what `client` has of `resource`; ignored if a later request came first.
    pub fn handle_release(&mut self, client: &ClientId, resource: &ResourceId, sequence: u64) {
        if let Some(slot) = self.resources.get_mut(resource) {
            slot.resource.handle_release(client, sequence);
            requeue(&mut self.timeouts, resource, slot);
        }
        self.collect(resource);
    }

    /// Takes back what has expired and forgets resources without clients.
    pub fn handle_timeout(&mut self, now: Instant) {
        while self.timeouts.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.timeouts.pop_first() else {
                return;
            };
            let Some(slot) = self.resources.get_mut(&id) else {
                continue;
            };
            slot.resource.handle_timeout(now);
            if let Some(next) = slot.resource.poll_timeout() {
                slot.queued_at = next;
                self.timeouts.insert((next, id));
            } else {
                self.resources.remove(&id);
            }
        }
    }

    /// When [`Node::handle_timeout`] next has something to look at.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// All resources with clients, by id.
    pub fn resources(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.resources.iter().map(|(id, slot)| (id, &slot.resource))
    }

    /// The resources with clients whose ids come after `id`, by id. O(log n) to the first.
    pub fn resources_after(
        &self,
        id: &ResourceId,
    ) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let resources = self.resources.range(after);
        resources.map(|(id, slot)| (id, &slot.resource))
    }

    /// How many resources have clients.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }

    /// The books of one resource, if it has clients.
    pub fn resource(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id).map(|slot| &slot.resource)
    }

    fn learning_until(&self, limit: &Limit) -> Instant {
        match self.start {
            Start::Learning => self.started_at.saturating_add(limit.learning),
            Start::Fresh => self.started_at,
        }
    }

    fn collect(&mut self, id: &ResourceId) {
        let empty = |slot: &Slot| slot.resource.client_count() == 0;
        if self.resources.get(id).is_some_and(empty)
            && let Some(slot) = self.resources.remove(id)
        {
            self.timeouts.remove(&(slot.queued_at, id.clone()));
        }
    }
}

// === free functions ===

/// Sees to it that the next expiry in `slot` is looked at in time; one that is too early stays.
fn requeue(timeouts: &mut BTreeSet<(Instant, ResourceId)>, id: &ResourceId, slot: &mut Slot) {
    let Some(next) = slot
        .resource
        .poll_timeout()
        .filter(|next| *next < slot.queued_at)
    else {
        return;
    };
    if let Some((_, id)) = timeouts.take(&(slot.queued_at, id.clone())) {
        timeouts.insert((next, id));
        slot.queued_at = next;
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, not(all(target_family = "wasm", target_os = "unknown"))))]
mod laws;
