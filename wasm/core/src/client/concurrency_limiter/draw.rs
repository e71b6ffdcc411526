//! Concurrency limiter of a small limit: each permit is drawn, and given back when its request has ended.
//!
//! Its lease is what is in flight and no more, so that a permit is wherever it is needed. A request that
//! finds none is held while the coordinator is asked, and what has ended is told soon. Where requests begin
//! faster than that, permits that were in use a moment ago are kept for the next ones.

use core::time::Duration;

use super::{AwaitAction, ConcurrencyLimiter, PermitResult, whole};
use crate::client::Policy;
use crate::client::process_lease::Phase;
use crate::lease::Answer;
use crate::units::{Capacity, Instant, Tokens};

/// Interval after which ends are told, and permits are drawn again of which there were too few.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Answers in a row without the permits that were asked for, each of which doubles that interval.
const VAIN_MAX: u8 = 2;

/// The same for a client that has all permits, of which nobody else can give any back.
const VAIN_MAX_OF_ALL: u8 = 5;

/// Calls that fail in a row from which the coordinator counts as away. Until then requests are held.
const AWAY_FROM: u8 = 2;

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
    /// Answers in a row that brought fewer than were asked for, bounded.
    pub(in crate::client) vain_answers: u8,
    /// Whether more was wanted when the coordinator was last asked.
    pub(in crate::client) wanted_more: bool,
    /// Whether others have to give back permits that are this client's by its share.
    pub(in crate::client) lacks: bool,
    /// Whether the coordinator does not know yet what others have.
    pub(in crate::client) learns: bool,
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

    /// Whether it draws, and the coordinator does not answer, or does not know yet what it may lend.
    pub(super) fn is_cut_off(&self) -> bool {
        let is_away = self.lease.client.failures >= AWAY_FROM;
        self.draws.offered && (is_away || self.draws.learns)
    }

    /// Has a permit asked for of which there are too few here, unless it is known that there is none.
    pub(super) fn draw_of_fleet(
        &mut self,
        now: Instant,
        policy: &Policy,
        worker: u64,
        action: AwaitAction,
    ) -> PermitResult {
        let is_cut_off = self.is_cut_off();
        let client = &mut self.lease.client;
        let has_lease = client.valid_lease(now).is_some();
        let none = self.draws.none_until.is_some_and(|until| now < until);
        let in_vain = none && !self.draws.lacks;
        if !self.draws.offered || is_cut_off || !has_lease || in_vain {
            return PermitResult::Denied;
        }
        if !self.draws.lacks && client.may_hurry() {
            client.make_due(now);
        }
        let held = self.draws.held_until.filter(|until| now < *until);
        let until = held.unwrap_or_else(|| now.saturating_add(policy.first_lease_wait));
        let action = match action {
            AwaitAction::Hold if until <= now => AwaitAction::Refuse,
            other => other,
        };
        self.await_permit(worker, until, action)
    }

    /// Counts a request of `worker` that needs a permit for which the coordinator is asked, until `until` at
    /// most. One that cannot wait is gone, and stands for those that come after it.
    pub(super) fn await_permit(
        &mut self,
        worker: u64,
        until: Instant,
        action: AwaitAction,
    ) -> PermitResult {
        let Some(share) = self.share(worker) else {
            return PermitResult::Denied;
        };
        match action {
            AwaitAction::Hold => {
                share.waiting = share.waiting.saturating_add(1);
                self.draws.held_until = Some(until);
                PermitResult::Pending { until }
            }
            AwaitAction::Refuse => {
                share.waiting = share.waiting.max(1);
                PermitResult::Denied
            }
            AwaitAction::Admit => {
                share.held = share.held.saturating_add(1);
                let held = share.held;
                PermitResult::Held { held, spare: 0 }
            }
        }
    }

    /// Notes that so many requests have begun, and the permits that are held.
    pub(super) fn note_use(&mut self, begun: u32) {
        self.draws.begun = self.draws.begun.saturating_add(begun);
        self.draws.most = self.draws.most.max(self.held());
    }

    /// Has permits that are not needed any more told of soon.
    pub(super) fn note_ends(&mut self, now: Instant) {
        let (held, lease) = (self.held(), self.lease.client.valid_lease(now));
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
        let keeps = if self.draws.begun >= BUSY_FROM {
            self.draws.most.max(held)
        } else {
            held
        };
        (self.draws.begun, self.draws.most) = (0, held);
        // Those that are kept go back after the next interval without new requests.
        self.draws.ended = keeps > held;
        let least = Capacity::from_whole(keeps.into());
        if least < self.gets {
            self.draws.none_until = None;
            self.draws.vain_answers = 0;
        }
        if !self.is_cut_off() {
            self.gets = self.gets.min(least);
            if let Some(lease) = &mut self.lease.client.lease {
                lease.capacity = lease.capacity.min(least);
            }
        }
        let waiting = self.shares.iter().map(|share| share.waiting);
        let wants = waiting.fold(keeps, u32::saturating_add);
        let lease = self.lease.client.lease;
        self.draws.wanted_more = lease.is_none_or(|lease| wants > whole(lease.capacity));
        wants
    }

    /// Takes what an answer says of draws.
    pub(super) fn apply_draw(&mut self, now: Instant, answer: &Answer) {
        self.draws.offered = answer.draw.is_some();
        self.draws.lacks = answer.draw.is_some_and(|draw| draw.next.is_some());
        self.draws.learns = answer.draw.is_some_and(|draw| draw.left > Tokens::ZERO);
        if let Some(draw) = &answer.draw {
            // More may be in flight, and be leased, than new requests may begin.
            self.gets = self
                .gets
                .min(Capacity::from_micros(draw.granted.as_micros()));
        }
        let is_short = self.draws.wanted_more && self.gets < self.lease.reported;
        let most = if self.gets >= answer.capacity {
            VAIN_MAX_OF_ALL
        } else {
            VAIN_MAX
        };
        let vain = self.draws.vain_answers.min(most);
        let interval = ASK_AGAIN_AFTER.saturating_mul(1 << vain);
        self.draws.none_until = is_short.then(|| now.saturating_add(interval));
        self.draws.vain_answers = if is_short { vain.saturating_add(1) } else { 0 };
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
