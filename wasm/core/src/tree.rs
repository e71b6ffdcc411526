//! Leases of a parent: the capacity that a coordinator borrows, and lends on.
//!
//! To its parent such a coordinator is one client, which speaks for many: it asks for the wants of
//! its own clients together, by priority, and divides what it gets between them. Three things make
//! law 1 hold over all levels:
//!
//! - **What it has** is the most that its clients may be using, not what it was last lent. When the
//!   parent lowers a lease, the difference stays in use until the clients have given it back, and
//!   until then it is said to the parent, which goes on counting it. So the acknowledgement that a
//!   lowered lease needs (see [`resource`](crate::resource)) comes from the leaves.
//! - **How long**: nothing is lent for longer than it is borrowed. So when the parent counts a lease
//!   as expired, no client below uses any of it.
//! - **What it does not know** it does not free: one that has started without a lease table says
//!   that it may have more than it says ([`Claim::AtLeast`](crate::lease::Claim)).
//!
//! The parent counts the runs of such a coordinator as one client, because a new run goes on with
//! the leases of the one before: of a node that was master before, or before a restart. Its terms
//! order the runs (see [`Run::Term`]): the parent refuses a request of a lower term, however late,
//! as it refuses a lower sequence of the same one. A coordinator that is refused does not try a
//! higher term: it has a successor, or is not the only one of its name, and two that overtook each
//! other would both lend what one has borrowed.
//!
//! [`Run::Term`]: crate::lease::Run::Term
//!
//! A parent that is away changes nothing until the borrowed lease ends. Then the safe capacity is
//! lent, for each client what the parent last sent, else what the limit says; if neither says
//! anything, nothing is lent, and clients follow their mode.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

mod parent_lease;
mod parent_tokens;

use self::parent_lease::ParentLease;
pub use self::parent_lease::ParentLeaseView;
use crate::deadlines::Deadlines;
use crate::lease::{Answer, Demand, EpochError, Origin, ResourceId};
use crate::lease_client::LeaseMessage;
use crate::lendable::LendableCapacity;
use crate::limit::Limit;
use crate::pool::ResourceTotals;
use crate::units::{Capacity, Instant, Tokens};

/// Time for which the parent's answer for a resource is remembered without clients: as long as a
/// lease by default, so that a resource whose leases have all ended with the parent's is no
/// newcomer.
const LINGER: Duration = Duration::from_secs(10);

/// Requests that become due so soon after the first are sent with it.
const TOGETHER: Duration = Duration::from_millis(20);

/// Leases of a parent, by resource.
#[derive(Debug)]
pub struct ParentLeases {
    parent_leases: BTreeMap<ResourceId, ParentLease>,
    /// For each lease one instant, not after its next request.
    due: Deadlines<ResourceId>,
    /// Sequence of the last request, for any resource.
    sequence: u64,
    /// Number of coordinators above, at least one.
    pub(crate) level: u32,
    call_timeout: Duration,
    /// The most leases that are remembered for resources without clients.
    idle_max: usize,
    idle: usize,
}

/// State of a resource at the time of a request to the parent.
#[derive(Debug)]
pub(crate) struct ParentRequest {
    /// Wants of its clients.
    pub(crate) demand: Demand,
    /// The most that they may be using.
    pub(crate) has: Capacity,
    /// Tokens that came with the lease and go back to the parent.
    pub(crate) returns: Tokens,
    /// Tokens for which its bucket has room.
    pub(crate) lacks: Tokens,
    /// Whether that is by the word of others: they may be using more than is known, or less than a
    /// snapshot said that was taken over, for it does not age on its way.
    pub(crate) hearsay: bool,
}

/// A resource that has no clients any more.
const NOBODY: ParentRequest = ParentRequest {
    demand: Demand::of(Capacity::ZERO),
    has: Capacity::ZERO,
    returns: Tokens::ZERO,
    lacks: Tokens::ZERO,
    hearsay: false,
};

// === impl ParentLeases ===

impl ParentLeases {
    /// No leases. Requests are counted from `sequence` on; one without an answer after
    /// `call_timeout` is lost.
    pub fn new(sequence: u64, call_timeout: Duration, idle_max: usize) -> Self {
        Self {
            parent_leases: BTreeMap::new(),
            due: Deadlines::default(),
            sequence,
            level: 1,
            call_timeout,
            idle_max,
            idle: 0,
        }
    }

    /// Returns the capacity that may be lent now of the resource `id` under `limit`, its own.
    pub(crate) fn lendable(
        &self,
        now: Instant,
        id: &ResourceId,
        limit: &Limit,
    ) -> LendableCapacity {
        match self.parent_leases.get(id) {
            Some(parent_lease) => parent_lease.lendable(now, limit, self.level),
            None => LendableCapacity::pending(self.level),
        }
    }

    /// Takes the totals of a resource; capacity that was lent of it before it was known here ends
    /// at `lent_until`. Asks at once for one that is new here, and before its time if the wants have
    /// changed much: after `min_refresh`, and now and then at once.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        id: &ResourceId,
        lent_until: Instant,
        totals: &ResourceTotals,
        min_refresh: Duration,
    ) {
        if let Some(parent_lease) = self.parent_leases.get_mut(id) {
            if parent_lease.idle {
                self.idle = self.idle.saturating_sub(1);
            }
            if parent_lease.note(now, lent_until, totals, min_refresh) {
                requeue(&mut self.due, id, parent_lease);
            }
            return;
        }
        self.due.insert(now, id.clone());
        self.parent_leases
            .insert(id.clone(), ParentLease::new(now, lent_until));
    }

    /// Time at which [`ParentLeases::ask`] next has a message.
    pub(crate) fn poll_due(&self) -> Option<Instant> {
        self.due.earliest()
    }

    /// Returns the messages to the parent that are due, of at most `max` resources; `look` returns
    /// the state of one, if it has clients.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        max: usize,
        mut look: impl FnMut(&ResourceId) -> Option<ParentRequest>,
    ) -> Vec<(ResourceId, LeaseMessage)> {
        let mut message = Vec::new();
        if self.due.first_due(now).is_none() {
            return message;
        }
        let horizon = now.saturating_add(TOGETHER);
        while message.len() < max {
            let Some(id) = self.due.pop_due(horizon) else {
                break;
            };
            let request = look(&id);
            if let Some(say) = self.ask_one(now, horizon, &id, request) {
                message.push((id, say));
            }
        }
        message
    }

    /// Returns the message of one resource, which has been taken out of the queue.
    fn ask_one(
        &mut self,
        now: Instant,
        horizon: Instant,
        id: &ResourceId,
        request: Option<ParentRequest>,
    ) -> Option<LeaseMessage> {
        let parent_lease = self.parent_leases.get_mut(id)?;
        let waits = parent_lease.client.is_waiting() && parent_lease.due() > now;
        // The request may have been put off after it had been queued.
        let put_off = parent_lease.due() > horizon || waits;
        self.sequence = self.sequence.saturating_add(u64::from(!put_off));
        let message = match request {
            _ if put_off => None,
            Some(request) => Some(parent_lease.ask(now, self.sequence, self.call_timeout, request)),
            None if parent_lease.tokens.are_left() => {
                Some(parent_lease.ask(now, self.sequence, self.call_timeout, NOBODY))
            }
            None if parent_lease.idle => {
                self.idle = self.idle.saturating_sub(1);
                self.parent_leases.remove(id);
                return None;
            }
            None => {
                let released = parent_lease.release(now, self.sequence, LINGER);
                if self.idle >= self.idle_max {
                    self.parent_leases.remove(id);
                    return released;
                }
                self.idle = self.idle.saturating_add(1);
                released
            }
        };
        // One that was put off comes after the horizon, or this round would find it again and again.
        let next = parent_lease.due();
        parent_lease.queued_at = if put_off {
            next.max(horizon.saturating_add(Duration::from_nanos(1)))
        } else {
            next
        };
        self.due.insert(parent_lease.queued_at, id.clone());
        message
    }

    /// Takes the parent's answer to the request of `sequence`. True if it counts.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        id: &ResourceId,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> Result<bool, EpochError> {
        let Some(parent_lease) = self.parent_leases.get_mut(id) else {
            return Ok(false);
        };
        let counts = parent_lease.handle_answer(now, sequence, origin, answer);
        requeue(&mut self.due, id, parent_lease);
        counts
    }

    /// Returns the tokens of the last answer for the resource `id` that no answer before has told of.
    pub(crate) fn take_tokens(&mut self, id: &ResourceId) -> Tokens {
        let parent_lease = self.parent_leases.get_mut(id);
        parent_lease.map_or(Tokens::ZERO, |parent_lease| parent_lease.tokens.take())
    }

    /// Takes the tokens of a resource that has no clients any more: they go back to the parent.
    pub(crate) fn leave_tokens(&mut self, id: &ResourceId, tokens: Tokens) {
        if let Some(parent_lease) = self.parent_leases.get_mut(id) {
            parent_lease.tokens.leave(tokens);
        }
    }

    /// Makes the request for the resource `id` due, because the parent has named it.
    pub(crate) fn handle_nudge(&mut self, now: Instant, id: &ResourceId) {
        if let Some(parent_lease) = self.parent_leases.get_mut(id) {
            parent_lease.handle_nudge(now);
            requeue(&mut self.due, id, parent_lease);
        }
    }

    /// Notes that the request of `sequence` failed.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: &ResourceId, sequence: u64) {
        if let Some(parent_lease) = self.parent_leases.get_mut(id) {
            parent_lease.handle_failure(now, sequence);
            requeue(&mut self.due, id, parent_lease);
        }
    }

    /// The lease of the resource `id`, if it was ever asked for.
    pub fn view(&self, now: Instant, id: &ResourceId) -> Option<ParentLeaseView> {
        self.parent_leases
            .get(id)
            .map(|parent_lease| parent_lease.view(now))
    }
}

// === free functions ===

/// Lets the coordinator look at `parent_lease` in time for its next request.
fn requeue(due: &mut Deadlines<ResourceId>, id: &ResourceId, parent_lease: &mut ParentLease) {
    let next = parent_lease.due();
    due.advance(&mut parent_lease.queued_at, next, id);
}

#[cfg(test)]
mod tests;
