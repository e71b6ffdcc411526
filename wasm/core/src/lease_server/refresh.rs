//! Refreshes: requests of clients for a lease, and their answers.

use core::time::Duration;

use super::slot::ResourceSlot;
use super::{Bounds, LeaseServer, Start, Terms, recount, requeue};
use crate::lease::{
    Answer, ClientRun, Demand, LeaseRequest, LeaseTerms, NO_FINGERPRINT, ResourceId,
};
use crate::limit::Limit;
use crate::resource::{RefreshError, Resource};
use crate::units::{Capacity, Instant};

/// Part of a bound above which leases of newcomers are short. Those that came before have whole leases
/// and end with them, beside the short ones of those that come meanwhile.
const FILLING_PART: usize = 8;

/// A request of a client, with its resource and the configuration of that.
#[derive(Clone, Copy, Debug)]
struct ResourceRefresh<'a> {
    client: &'a ClientRun,
    id: &'a ResourceId,
    request: &'a LeaseRequest,
    terms: &'a Terms<'a>,
}

// === impl LeaseServer ===

impl LeaseServer {
    /// Answers `request` of `client` for `resource`, for which `terms` hold now.
    ///
    /// Under a limit of [`Capacity::UNLIMITED`] the lease is unlimited and is counted all the same:
    /// the lease table shows what is wanted, and if a limit comes back no client gets anything of it
    /// before the unlimited leases have been acknowledged or expired.
    /// [`LeaseServer::handle_unlimited`] answers without counting.
    ///
    /// # Errors
    /// If a later request of the client's run has been answered, or one of a later term, or a bound is
    /// reached.
    pub fn handle_refresh(
        &mut self,
        now: Instant,
        client: &ClientRun,
        resource: &ResourceId,
        request: &LeaseRequest,
        terms: &Terms<'_>,
    ) -> Result<Answer, RefreshError> {
        let call = ResourceRefresh {
            client,
            id: resource,
            request,
            terms,
        };
        if self.drains.until(now, &client.id).is_none() {
            return self.refresh(now, call);
        }
        let nothing = LeaseRequest {
            demand: Demand::of(Capacity::ZERO),
            draw: None,
            ..request.clone()
        };
        let request = &nothing;
        let answer = self.refresh(now, ResourceRefresh { request, ..call })?;
        // Not even in learning mode does it fall back to what passes without a lease.
        let none = LeaseTerms {
            capacity: Capacity::ZERO,
            burst: terms.limit.burst_for(Capacity::ZERO),
            duration: terms.limit.lease,
            fingerprint: NO_FINGERPRINT,
        };
        Ok(Answer {
            lease: Some(answer.lease.unwrap_or(none)),
            ..answer
        })
    }

    /// Answers `client` for a `resource` without any limit: `limit` says how long the lease lasts.
    /// Nothing is counted, and the client's lease under an earlier limit is forgotten. If a limit
    /// comes back, unlimited leases are in use until they expire, as after a lowered capacity.
    pub fn handle_unlimited(
        &mut self,
        client: &ClientRun,
        resource: &ResourceId,
        limit: &Limit,
    ) -> Answer {
        self.handle_release(client, resource, u64::MAX);
        Answer {
            lease: Some(LeaseTerms {
                capacity: Capacity::UNLIMITED,
                burst: limit.burst,
                duration: limit.lease,
                fingerprint: NO_FINGERPRINT,
            }),
            refresh_interval: limit.refresh,
            safe: None,
            capacity: Capacity::UNLIMITED,
            period: None,
            burst: None,
            draw: None,
        }
    }

    fn refresh(&mut self, now: Instant, call: ResourceRefresh<'_>) -> Result<Answer, RefreshError> {
        if self.is_full() {
            self.handle_timeout(now);
        }
        let known = self.refresh_known(now, call);
        let answer = known.unwrap_or_else(|| self.refresh_new(now, call));
        self.note(now, call.id, call.request);
        if let Some(slot) = self.resources.get_mut(call.id) {
            self.buckets
                .note(now, call.id, call.request, slot, &mut self.pools);
        }
        self.note_quotas(call.id);
        self.bounds.named(answer)
    }

    /// Answers for a resource that has clients; none if it has not.
    fn refresh_known(
        &mut self,
        now: Instant,
        call: ResourceRefresh<'_>,
    ) -> Option<Result<Answer, RefreshError>> {
        let learning_until = self.learning_until(call.terms);
        let (free, is_filling) = (self.free_leases(), self.is_filling());
        let slot = self.resources.get_mut(call.id)?;
        let known = slot.resource.client_count();
        let most = known.saturating_add(free);
        let clients_max = self.bounds.max_clients_per_resource.min(most);
        slot.set_lendable(now, call.id, call.terms.limit, self.parent_leases.as_ref());
        slot.resource.allocation.is_filling = is_filling;
        slot.resource.allocation.collect_from = self.started_at;
        slot.resource.allocation.collect_until = learning_until;
        let stored = |pool: &ResourceId| self.buckets.restore(now, pool);
        self.pools.begin(now, self.wall_clock, call.terms, stored);
        let left = slot.follow(now, &mut self.pools, call.id, call.terms, learning_until);
        slot.resource.allocation.set_limit(now, call.terms.limit);
        slot.resource
            .allocation
            .advance_quotas(now, self.wall_clock);
        let (resource, mut pool) = slot.linked(&mut self.pools);
        let before = resource.drawn();
        let answer =
            resource.handle_refresh(now, call.client, call.request, clients_max, &mut pool);
        let granted = resource.drawn().saturating_sub(before);
        self.drawn = self.drawn.saturating_add(granted);
        recount(&mut self.leases, known, slot);
        requeue(&mut self.timeouts, call.id, slot);
        let repeats = slot.resource.take_repeats();
        let stirred = slot.is_stirred(&self.pools);
        if repeats {
            self.nudge_again(&call.client.id, call.id);
        }
        if stirred {
            self.look_for_nudges(now, call.id);
        }
        if let Some((id, pool)) = left {
            self.forget_pool(&id, &pool);
        }
        Some(answer)
    }

    fn refresh_new(
        &mut self,
        now: Instant,
        call: ResourceRefresh<'_>,
    ) -> Result<Answer, RefreshError> {
        let max = self.bounds.max_resources;
        if self.resources.len() >= max {
            return Err(RefreshError::TooManyResources { max });
        }
        // A master that has learned counts every lease until it is over. So this one was lent by
        // another, from which the resource has moved here; there may be more of them.
        let terms = call.terms;
        let learned_at = self.learning_until(terms);
        let learning_until = if claims(call.request) {
            learned_at.max(now.saturating_add(time_to_learn(terms)))
        } else {
            learned_at
        };
        let stored = |pool: &ResourceId| self.buckets.restore(now, pool);
        self.pools.begin(now, self.wall_clock, terms, stored);
        let mut resource = Resource::new(call.id.unit, terms.limit.clone(), learning_until);
        resource.allocation.is_filling = self.is_filling();
        resource.allocation.collect_from = self.started_at;
        resource.allocation.collect_until = learned_at;
        if let Some(stored) = self.buckets.restore(now, call.id) {
            resource.allocation.restore_bucket(now, &stored);
        }
        resource.allocation.advance_quotas(now, self.wall_clock);
        let mut slot = ResourceSlot::new(resource, now);
        slot.set_lendable(now, call.id, terms.limit, self.parent_leases.as_ref());
        slot.receive(now, call.id, self.parent_leases.as_mut());
        slot.follow(now, &mut self.pools, call.id, terms, learning_until);
        let clients_max = self.bounds.max_clients_per_resource.min(self.free_leases());
        let (resource, mut pool) = slot.linked(&mut self.pools);
        let answer =
            resource.handle_refresh(now, call.client, call.request, clients_max, &mut pool);
        self.drawn = self.drawn.saturating_add(resource.drawn());
        match resource.poll_timeout() {
            Some(queued_at) => {
                self.insert(call.id, slot, queued_at);
                self.look_for_nudges(now, call.id);
            }
            None => {
                self.leave_tokens(now, call.id, &mut slot);
                self.leave(&mut slot);
            }
        }
        answer
    }

    /// Number of leases that can be counted besides those that are.
    fn free_leases(&self) -> usize {
        let leases = self.leases.saturating_add(self.leases_elsewhere);
        self.bounds.max_leases.saturating_sub(leases)
    }

    /// Whether a bound is reached, so that a newcomer may be refused.
    fn is_full(&self) -> bool {
        self.resources.len() >= self.bounds.max_resources || self.free_leases() == 0
    }

    /// Whether so much of a bound is used that newcomers should not stay for long.
    fn is_filling(&self) -> bool {
        let leases = self.leases.saturating_add(self.leases_elsewhere);
        self.resources.len() > self.bounds.max_resources / FILLING_PART
            || leases > self.bounds.max_leases / FILLING_PART
    }

    /// The end of learning mode. A pool has learned when no lease that any of its members lent before
    /// can be in use.
    pub(super) fn learning_until(&self, terms: &Terms<'_>) -> Instant {
        match self.start {
            Start::Learning | Start::Vacant { .. } => {
                let learned_at = self.learns_from.saturating_add(time_to_learn(terms));
                learned_at.max(self.started_at)
            }
            Start::Fresh => self.started_at,
        }
    }
}

// === impl Bounds ===

impl Bounds {
    /// Returns `answer`, with the bound that a new client has met.
    fn named(&self, answer: Result<Answer, RefreshError>) -> Result<Answer, RefreshError> {
        match answer {
            Err(RefreshError::TooManyClients { max }) if max < self.max_clients_per_resource => {
                Err(RefreshError::TooManyLeases {
                    max: self.max_leases,
                })
            }
            answer => answer,
        }
    }
}

// === free functions ===

/// The time until no lease is in use that another master lent before.
fn time_to_learn(terms: &Terms<'_>) -> Duration {
    let pool = terms.bounding_pool().map(|pool| pool.limit.learning);
    terms.limit.learning.max(pool.unwrap_or_default())
}

/// Whether `request` claims a lease that was lent of a limit and is not over. An unlimited one says
/// nothing of other leases: there is no sum that it was a part of.
fn claims(request: &LeaseRequest) -> bool {
    let over = request.remaining.is_some_and(|left| left.is_zero());
    request.has > Capacity::ZERO && request.has < Capacity::MAX && !over
}
