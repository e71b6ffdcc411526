//! A lease server that lends the capacity that it borrows of a parent.

use alloc::vec::Vec;
use core::time::Duration;

use super::LeaseServer;
use crate::lease::{Answer, Demand, EpochError, LeaseRequest, Origin, ResourceId};
use crate::lease_client::LeaseMessage;
use crate::tree::{ParentLeases, ParentRequest};
use crate::units::{Capacity, Instant};

// === impl LeaseServer ===

impl LeaseServer {
    /// Lends nothing any more but capacity that it borrows of a parent, as whose client it counts
    /// its requests from `sequence` on. To the parent its run is its
    /// [term](crate::lease::Run::Term). A request without an answer after `call_timeout` counts as
    /// lost.
    pub fn borrow_from_parent(&mut self, now: Instant, sequence: u64, call_timeout: Duration) {
        let mut parent_leases =
            ParentLeases::new(sequence, call_timeout, self.bounds.max_resources);
        for (id, slot) in &mut self.resources {
            slot.resource.decide_anew();
            let totals = slot.totals(&self.pools);
            let expiries = slot.resource.clients().map(|client| client.expiry);
            let lent_until = expiries.max().unwrap_or(now);
            let min_refresh = slot.resource.min_refresh(now);
            parent_leases.note(now, id, lent_until, &totals, min_refresh);
        }
        self.parent_leases = Some(parent_leases);
    }

    /// Leases of the parent, if there is one.
    pub fn parent_leases(&self) -> Option<&ParentLeases> {
        self.parent_leases.as_ref()
    }

    /// Wants of the clients of the resource `id`, by priority, as a parent is told; none if it has
    /// no clients.
    pub fn demand(&self, id: &ResourceId) -> Option<Demand> {
        let slot = self.resources.get(id)?;
        Some(slot.demand(&self.pools))
    }

    /// Time at which [`LeaseServer::ask_parent`] next has a message.
    pub fn poll_parent(&self) -> Option<Instant> {
        self.parent_leases.as_ref()?.poll_due()
    }

    /// Returns the messages to the parent that are due, of at most `max` resources.
    pub fn ask_parent(&mut self, now: Instant, max: usize) -> Vec<(ResourceId, LeaseMessage)> {
        let (resources, pools) = (&mut self.resources, &self.pools);
        let taken_over_at = self.taken_over_at;
        let Some(parent_leases) = &mut self.parent_leases else {
            return Vec::new();
        };
        parent_leases.ask(now, max, |id| {
            let slot = resources.get_mut(id)?;
            slot.resource.note_silences(now);
            let returns = slot.resource.allocation.take_surplus();
            let lacks = slot.resource.allocation.lacks(now);
            let resource = &slot.resource;
            Some(ParentRequest {
                demand: slot.demand(pools),
                has: resource.allocation.lent(),
                returns,
                lacks,
                hearsay: now < resource.learning_until()
                    || taken_over_at.is_some_and(|at| resource.is_from_before(at)),
            })
        })
    }

    /// Takes the parent's answer to the request of `sequence` for the resource `id`, from a parent
    /// with `level` coordinators above. True if it counts: it was the latest request.
    ///
    /// # Errors
    /// If the answer must not be applied, see
    /// [`LeaseClient::check_origin`](crate::lease_client::LeaseClient::check_origin); it is taken for a
    /// failure.
    pub fn handle_parent_answer(
        &mut self,
        now: Instant,
        id: &ResourceId,
        (sequence, origin, level): (u64, Origin, u32),
        answer: &Answer,
    ) -> Result<bool, EpochError> {
        let Some(parent_leases) = &mut self.parent_leases else {
            return Ok(false);
        };
        parent_leases.level = level.max(1);
        let counts = parent_leases.handle_answer(now, id, sequence, origin, answer);
        if counts == Ok(true) {
            self.follow_parent(now, id);
        }
        counts
    }

    /// Asks the parent for the resource `id` at once, because the parent has named it; as soon as the
    /// answer that is awaited has come, if one is.
    pub fn handle_parent_nudge(&mut self, now: Instant, id: &ResourceId) {
        if let Some(parent_leases) = &mut self.parent_leases {
            parent_leases.handle_nudge(now, id);
        }
    }

    /// Looks at the clients of the resource `id` after an answer of the parent.
    fn follow_parent(&mut self, now: Instant, id: &ResourceId) {
        if let Some(slot) = self.resources.get_mut(id) {
            let limit = slot.resource.limit().clone();
            slot.set_lendable(now, id, &limit, self.parent_leases.as_ref());
            slot.receive(now, id, self.parent_leases.as_mut());
            self.look_for_nudges(now, id);
        } else if let Some(parent_leases) = &mut self.parent_leases {
            let tokens = parent_leases.take_tokens(id);
            parent_leases.leave_tokens(id, tokens);
        }
    }

    /// Notes that the request of `sequence` for the resource `id` failed.
    pub fn handle_parent_failure(&mut self, now: Instant, id: &ResourceId, sequence: u64) {
        if let Some(parent_leases) = &mut self.parent_leases {
            parent_leases.handle_failure(now, id, sequence);
        }
    }

    /// Takes the totals of the resource `id` after `request` to the lease of the parent.
    pub(super) fn note(&mut self, now: Instant, id: &ResourceId, request: &LeaseRequest) {
        if let Some(parent_leases) = &mut self.parent_leases
            && let Some(slot) = self.resources.get(id)
        {
            let totals = slot.totals(&self.pools);
            // While learning, claims of clients were lent by an earlier run.
            let lent_until = if now < slot.resource.learning_until() && request.has > Capacity::ZERO
            {
                let longest = slot.resource.limit().learning;
                now.saturating_add(request.remaining.map_or(longest, |left| left.min(longest)))
            } else {
                Instant::ZERO
            };
            let min_refresh = slot.resource.min_refresh(now);
            parent_leases.note(now, id, lent_until, &totals, min_refresh);
        }
    }
}
