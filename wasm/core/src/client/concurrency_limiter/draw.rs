//! Concurrency limiter of a small limit: each permit is drawn, and given back when its request has ended.
//!
//! Its lease is what is in flight and no more, so that a permit is wherever it is needed. A request that
//! finds none is held while the coordinator is asked, and what has ended is told soon. Where requests begin
//! faster than that, permits that were in use a moment ago are kept for the next ones.

use core::time::Duration;

use super::{ConcurrencyLimiter, IfAwaited, PermitResult, whole};
use crate::client::Policy;
use crate::client::process_lease::Phase;
use crate::lease::Answer;
use crate::units::{Capacity, Instant};

/// Interval at which ends are told, and at which permits are drawn of which there were too few.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Requests that begin between two requests to the coordinator from which unused permits are kept.
const BUSY_FROM: u32 = 2;

/// Permits as they are drawn; plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::client) struct PermitDraws {
    /// Whether the last answer let it draw.
    pub(in crate::client) offered: bool,
    /// Requests that have begun since the last request to the coordinator.
    pub(in crate::client) begun: u32,
    /// The most permits that were held at once since then.
    pub(in crate::client) most: u32,
    /// Whether requests have ended since then.
    pub(in crate::client) ended: bool,
    /// Time until which requests may be held; none if no draw is under way.
    pub(in crate::client) held_until: Option<Instant>,
    /// Time until which all permits are in use, by the last answer.
    pub(in crate::client) none_until: Option<Instant>,
}

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    /// Whether each permit is drawn.
    pub fn is_drawn(&self) -> bool {
        self.draws.offered
    }

    /// Whether requests may wait at `now` for an answer.
    pub fn is_awaited(&self, now: Instant) -> bool {
        let held = self.draws.held_until.is_some_and(|until| now < until);
        let pending = matches!(self.lease.phase, Phase::Pending { until } if now < until);
        held || pending
    }

    /// Has a permit asked for of which there are too few here, unless it is known that there is none.
    pub(super) fn draw_of_fleet(
        &mut self,
        now: Instant,
        policy: &Policy,
        worker: u64,
        if_awaited: IfAwaited,
    ) -> PermitResult {
        let client = &self.lease.client;
        let answers = client.failures == 0 && client.valid_lease(now).is_some();
        let is_growing = self.lease.is_growing(now);
        let none = self.draws.none_until.is_some_and(|until| now < until);
        if !self.draws.offered || !answers || (none && !is_growing) {
            return PermitResult::Denied;
        }
        if !is_growing && !self.lease.client.is_waiting() {
            self.lease.client.make_due(now);
        }
        let held = self.draws.held_until.filter(|until| now < *until);
        let until = held.unwrap_or_else(|| now.saturating_add(policy.first_lease_wait));
        let if_awaited = match if_awaited {
            IfAwaited::Hold if until <= now => IfAwaited::Refuse,
            other => other,
        };
        self.await_permit(worker, until, if_awaited)
    }

    /// Counts a request of `worker` that needs a permit for which the coordinator is asked, until `until` at
    /// most. One that cannot wait is gone, and stands for those that come after it.
    pub(super) fn await_permit(
        &mut self,
        worker: u64,
        until: Instant,
        if_awaited: IfAwaited,
    ) -> PermitResult {
        let Some(share) = self.share(worker) else {
            return PermitResult::Denied;
        };
        match if_awaited {
            IfAwaited::Hold => {
                share.waiting = share.waiting.saturating_add(1);
                self.draws.held_until = Some(until);
                PermitResult::Pending { until }
            }
            IfAwaited::Refuse => {
                share.waiting = share.waiting.max(1);
                PermitResult::Denied
            }
            IfAwaited::Admit => {
                share.held = share.held.saturating_add(1);
                let held = share.held;
                PermitResult::Held { held, spare: 0 }
            }
        }
    }

    /// Notes the permits that are held, and has those told of soon that are not needed any more.
    pub(super) fn note_use(&mut self, now: Instant, begun: u32) {
        if !self.draws.offered {
            return;
        }
        let held = self.held();
        self.draws.begun = self.draws.begun.saturating_add(begun);
        self.draws.most = self.draws.most.max(held);
        let lease = self.lease.client.valid_lease(now);
        if lease.is_some_and(|lease| held < whole(lease.capacity)) {
            self.draws.ended = true;
            self.tell_soon();
        }
    }

    /// Makes the next request to the coordinator due soon, if requests have ended since the last one.
    fn tell_soon(&mut self) {
        let client = &mut self.lease.client;
        if self.draws.ended && client.may_hurry() {
            let asked_at = Instant::from_nanos(client.sequence);
            client.make_due(asked_at.saturating_add(ASK_AGAIN_AFTER));
        }
    }

    /// Gives back all permits but those in use, and those that were in use a moment ago if requests begin
    /// all the time. Returns the number that is wanted now.
    pub(super) fn give_unused_back(&mut self) -> u32 {
        let held = self.held();
        let keeps = match self.draws.begun >= BUSY_FROM {
            true => self.draws.most.max(held),
            false => held,
        };
        (self.draws.begun, self.draws.most) = (0, held);
        self.draws.ended = false;
        let kept = Capacity::from_whole(keeps.into());
        self.gets = self.gets.min(kept);
        if let Some(lease) = &mut self.lease.client.lease {
            lease.capacity = lease.capacity.min(kept);
        }
        let waiting = self.shares.iter().map(|share| share.waiting);
        waiting.fold(keeps, u32::saturating_add)
    }

    /// Takes what an answer says of draws.
    pub(super) fn apply_draw(&mut self, now: Instant, answer: &Answer) {
        self.draws.offered = answer.draw.is_some();
        let is_short = self.gets < self.lease.reported;
        self.draws.none_until = is_short.then(|| now.saturating_add(ASK_AGAIN_AFTER));
        self.end_waits();
        self.tell_soon();
    }

    /// Forgets the requests that wait: each is decided on again, and may wait on if the next answer is likely
    /// to bring more.
    pub(super) fn end_waits(&mut self) {
        for share in &mut self.shares {
            share.waiting = 0;
        }
        self.draws.held_until = None;
    }
}
