//! Wait queue of one worker for one scope's tokens: when each request can go, and when to look
//! again.
//!
//! Tokens are taken when a request goes, not when it begins to wait: one that leaves has cost
//! nothing. So a queue holds no tokens, only the order ([`FairOrder`]) and the last word of the
//! bucket ([`Shortage`]): with a steady rate that is enough to say when a request that comes now
//! will go.
//!
//! Several workers of a process may have queues for the same bucket. None knows of another's. Two
//! things keep them fair to each other: a worker that has let a request go leaves the next moments
//! to the others, and it estimates with the part of the rate that its queue has got lately.

use core::time::Duration;

use super::fair_order::{FairOrder, Waiter};
use crate::units::{Instant, MICRO, Rate, Tokens, mul_div};

/// Time for which one more worker has the bucket to itself after another had a turn. Hosts' timers
/// do not tell shorter times apart.
const YIELD: Duration = Duration::from_millis(1);
/// The most other workers that are waited for.
const YIELDS_MAX: u32 = 4;
/// Window in which a queue's part of the rate is measured, and its need.
const WINDOW: Duration = Duration::from_millis(100);
/// Waiting requests want to go within this many windows: a second.
const WINDOWS_TO_GO: u64 = 10;
/// Part of a queue that gets the whole rate, in thousandths.
const WHOLE: u64 = 1000;

/// State of a bucket that has too few tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Tokens that were asked for.
    pub need: Tokens,
    /// Time at which they are there if no others are taken before; none if only a change of the
    /// lease can help.
    pub retry_at: Option<Instant>,
    /// Rate at which tokens come in.
    pub rate: Rate,
}

/// Requests that wait for the tokens of one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitQueue {
    order: FairOrder,
    shortage: Shortage,
    /// Time to ask the bucket again.
    look_at: Instant,
    /// Number of other workers that come first.
    yields: u32,
    /// The part of the rate that this queue gets, in thousandths.
    part: u64,
    opened_at: Instant,
    /// Tokens of the requests that joined and that went in this window.
    joined: Tokens,
    gone: Tokens,
}

// === impl WaitQueue ===

impl WaitQueue {
    /// An empty queue, at a bucket that says `shortage`.
    pub fn new(now: Instant, shortage: Shortage) -> Self {
        let mut queue = Self {
            order: FairOrder::default(),
            shortage,
            look_at: now,
            yields: 0,
            part: WHOLE,
            opened_at: now,
            joined: Tokens::ZERO,
            gone: Tokens::ZERO,
        };
        queue.look_at = queue.next_look(now);
        queue
    }

    /// The order of the requests.
    pub fn turns(&self) -> &FairOrder {
        &self.order
    }

    /// Time at which a request of `member` that comes now would go, if all go on waiting; none if
    /// that is not known. It is in the past if the request goes first and finds enough tokens.
    ///
    /// With a steady rate and one worker it never goes earlier, and later only by the cost of
    /// requests that join after it and have their turn before: those of members that will have had
    /// fewer tokens by then.
    pub fn estimate(&self, member: u64, cost: Tokens) -> Option<Instant> {
        let all = self.order.ahead_of(member, cost).saturating_add(cost);
        self.shortage.when(all, self.part)
    }

    /// Adds a request and returns whether it goes before all others. Then the bucket should be asked
    /// again: it may need fewer tokens than the one that was first.
    pub fn join(&mut self, now: Instant, turn: Waiter) -> bool {
        self.order.insert(turn);
        self.joined = self.joined.saturating_add(turn.cost);
        let first = self.order.first().map(|first| first.arrival);
        let overtakes = self.order.len() > 1 && first == Some(turn.arrival);
        if overtakes {
            self.hurry(now);
        }
        overtakes
    }

    /// Takes out a request that has not gone. The bucket should then be asked again if another is
    /// first now.
    pub fn leave(&mut self, now: Instant, member: u64, arrival: u64) {
        let first = self.order.first();
        if self.order.remove(member, arrival) && self.order.first() != first {
            self.hurry(now);
        }
    }

    /// Lets the next request go.
    pub fn let_go(&mut self) -> Option<Waiter> {
        let turn = self.order.pop_first()?;
        self.gone = self.gone.saturating_add(turn.cost);
        Some(turn)
    }

    /// Lets the next request wait elsewhere, which is no turn that its member has had.
    pub fn give_up_turn(&mut self) -> Option<Waiter> {
        let turn = self.order.first()?;
        self.order.remove(turn.member, turn.arrival);
        Some(turn)
    }

    /// Takes the bucket's `shortage` for the next request, after `gone` others went.
    pub fn fall_short(&mut self, now: Instant, gone: usize, workers: u32, shortage: Shortage) {
        let was_due = self.shortage.retry_at.is_some_and(|at| at <= now);
        self.yields = match (gone > 0, was_due) {
            (true, _) => workers.saturating_sub(1).min(YIELDS_MAX),
            // Another worker was faster.
            (false, true) => self.yields.saturating_sub(1),
            (false, false) => self.yields,
        };
        self.shortage = shortage;
        self.look_at = self.next_look(now);
    }

    /// Lets the bucket be asked now, because something has changed.
    pub fn hurry(&mut self, now: Instant) {
        self.look_at = self.look_at.min(now);
    }

    /// Time to ask the bucket again.
    pub fn look_at(&self) -> Instant {
        self.look_at
    }

    /// Attempts to count for the waiting requests, beside those when they came; to be asked now and
    /// then. A request that waits is still wanted: each tenth of a second counts as many as went,
    /// or as would let all go within a second, if fewer came.
    pub fn attempts(&mut self, now: Instant, workers: u32) -> u64 {
        let elapsed = now.saturating_since(self.opened_at);
        if elapsed < WINDOW {
            return 0;
        }
        let came = self.shortage.rate.tokens_in(elapsed);
        let part = mul_div(
            self.gone.as_micros(),
            WHOLE,
            u128::from(came.as_micros().max(1)),
        );
        let least = WHOLE.checked_div(workers.into()).unwrap_or(WHOLE);
        self.part = self.part.saturating_add(part) / 2;
        self.part = self.part.clamp(least.clamp(1, WHOLE), WHOLE);
        let waiting = self.order.cost().as_micros() / WINDOWS_TO_GO;
        let wanted = Tokens::from_micros(waiting).max(self.gone);
        let attempts = wanted.saturating_sub(self.joined);
        self.opened_at = now;
        (self.joined, self.gone) = (Tokens::ZERO, Tokens::ZERO);
        attempts.as_micros().div_ceil(MICRO)
    }

    fn next_look(&self, now: Instant) -> Instant {
        let at = self.shortage.retry_at.unwrap_or(now);
        at.saturating_add(YIELD.saturating_mul(self.yields))
    }
}

// === impl Shortage ===

impl Shortage {
    /// Time at which `all` tokens have been there, if this queue gets `part` thousandths of them; a
    /// moment early rather than late.
    fn when(&self, all: Tokens, part: u64) -> Option<Instant> {
        let at = self.retry_at?;
        let rate = if self.rate.is_unlimited() {
            self.rate
        } else {
            Rate::from_micros(mul_div(self.rate.as_micros(), part, WHOLE.into()))
        };
        if all < self.need {
            let sooner = rate.time_for(self.need.saturating_sub(all))?;
            let nanos = at.saturating_since(Instant::ZERO).saturating_sub(sooner);
            return Some(Instant::ZERO.saturating_add(nanos));
        }
        let later = rate.time_for(all.saturating_sub(self.need))?;
        Some(at.saturating_add(later.saturating_sub(Duration::from_nanos(1))))
    }
}

#[cfg(test)]
mod tests;
