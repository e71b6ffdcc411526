//! Draws of a rate limiter: of its own bucket, which a lease sizes; or of the fleet's, where it has a lease of nothing,
//! and its own bucket earns only while it is cut off.

use super::{BucketLevel, DrawResult, Phase, RateLimiter, micros};
use crate::bucket::TokenBucket;
use crate::client::Policy;
use crate::client::draws::{debt, positive};
use crate::client::process_lease::LeaseState;
use crate::fleet::QuotaLevel;
use crate::lease::DrawAnswer;
use crate::units::{Capacity, Instant, Rate, Tokens};
use core::time::Duration;

/// Rate of a limit from which a request may pass, though the answer to its draw is late: the limit earns what
/// is owed within a moment.
const OWED_FROM: Rate = Rate::from_whole(20);

/// Part of the burst that such requests may owe.
pub(super) const OWED_PARTS: u64 = 64;

/// Time for which a client that draws keeps the tokens that it will want: two refresh intervals, and another one for
/// wants that sway.
const KEPT_FOR: Duration = Duration::from_secs(3);

/// Tokens that may be spent before they have been drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// None.
    None,
    /// A few, of a limit of which most are there, as far as it is known.
    OfMany,
    /// As many as are there, as far as it is known.
    OfAll,
}

/// State of a limiter when an answer comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseBefore {
    /// Tokens of the fleet's that it has, in millionths; less than none if it owes some.
    pub(super) balance: i64,
    /// Whether it has a lease.
    pub(super) is_valid: bool,
}

// === impl RateLimiter ===

impl RateLimiter {
    /// Takes `need` tokens, and more for later if there are: the token cache of one of `workers`
    /// workers.
    ///
    /// The cache is what the rate earns in 5 ms, but no more than a quarter of the burst over all
    /// workers, and at least `need`. Count the attempt first: a limiter that sees no demand does
    /// not ask.
    pub fn draw(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        if let Some(until) = self.hold_for_lease(now, policy, need) {
            return DrawResult::Pending { until };
        }
        let result = self.draw_unheld(now, policy, need, workers, Credit::None);
        self.held(now, result)
    }

    /// Holds a request that needs `need` if the first answer is awaited. Returns until when.
    pub(super) fn hold_for_lease(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
    ) -> Option<Instant> {
        self.lease.rouse(now, policy);
        let Phase::Pending { until } = self.lease.phase else {
            return None;
        };
        Some(self.draws.need(now, need, until))
    }

    /// The result for a request that may be held: if it is denied, and tokens have been asked for, it waits.
    pub(super) fn held(&self, now: Instant, result: DrawResult) -> DrawResult {
        match (result, self.draws.held_until) {
            (DrawResult::Denied { .. }, Some(until)) if now < until => {
                DrawResult::Pending { until }
            }
            _ => result,
        }
    }

    /// Like [`RateLimiter::draw`] for a request that cannot be held: while the first answer is
    /// awaited it draws from the capacity without a lease, and others may go on waiting. Where tokens have to
    /// be asked for it passes and owes them, if there were many.
    pub fn draw_at_once(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        self.draw_unheld(now, policy, need, workers, Credit::OfMany)
    }

    /// Like [`RateLimiter::draw_at_once`] for a request that goes on, whatever is decided: where tokens have
    /// to be asked for it counts as one that was held and got them, and they are owed.
    pub fn draw_on_credit(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        self.draw_unheld(now, policy, need, workers, Credit::OfAll)
    }

    /// Draws for a request that is not held.
    pub(super) fn draw_unheld(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
        credit: Credit,
    ) -> DrawResult {
        self.lease.rouse(now, policy);
        self.settle_bucket(now, policy);
        self.set_flow(now, policy);
        self.draws.cost = need.min(self.whole_burst());
        if self.draws.take(now, need) {
            DrawResult::Tokens(need)
        } else if self.can_draw(now) {
            self.draw_of_fleet(now, policy, need, credit)
        } else if self.is_cut_off() {
            self.draw_cut_off(now, policy, need, workers)
        } else {
            self.take(now, need, workers)
        }
    }

    /// The most that a request can take at once: of the fleet's bucket, or of its own.
    pub fn most(&self, now: Instant) -> Tokens {
        if self.can_draw(now) {
            self.most_of_fleet()
        } else {
            self.bucket.burst()
        }
    }

    fn most_of_fleet(&self) -> Tokens {
        let burst = self.whole_burst();
        let amount = self.draws.quota.map(|quota| quota.amount);
        burst.min(amount.unwrap_or(burst))
    }

    /// Notes that requests of a worker wait for `tokens` beside those that were drawn for.
    pub fn need(&mut self, now: Instant, policy: &Policy, tokens: Tokens) {
        let until = now.saturating_add(policy.first_lease_wait);
        self.draws.need(now, tokens, until);
    }

    /// The quota that is nearest to its end, as the last answer said, if there is any.
    pub fn quota(&self, now: Instant) -> Option<QuotaLevel> {
        self.draws.quota.map(|quota| quota.level(now))
    }

    /// Whether it draws its tokens of the fleet's bucket.
    pub fn is_drawing(&self) -> bool {
        self.draws.offered
    }

    /// Tokens of the fleet's bucket that it was ever granted, drawn or with its lease.
    pub fn granted(&self) -> Tokens {
        self.draws.granted
    }

    /// Whether requests may wait at `now` for an answer.
    pub fn is_awaited(&self, now: Instant) -> bool {
        self.lease.state(now) == LeaseState::Pending || self.draws.is_under_way(now)
    }

    /// Tokens that were spent and have not been drawn.
    pub fn owed(&self) -> Tokens {
        self.draws.owed
    }

    /// Notes that tokens have been spent that may not have been drawn, and has them asked for.
    pub(super) fn owe_fleet(&mut self, now: Instant, policy: &Policy, owed: Tokens) {
        let most = self.longest_debt(policy);
        self.draws
            .owe(now, owed, self.whole_burst().saturating_add(most));
        self.draw_soon(now);
    }

    /// Whether the coordinator lets it draw, and answers.
    pub(super) fn can_draw(&self, now: Instant) -> bool {
        let has_lease = self.lease.client.valid_lease(now).is_some();
        self.draws.offered && has_lease && !self.is_cut_off()
    }

    /// Has the coordinator asked for the tokens of a request, unless it is known that there are none. The
    /// request may wait until [`Draws::held_until`](super::Draws::held_until), or goes on and owes them.
    pub(super) fn draw_of_fleet(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        credit: Credit,
    ) -> DrawResult {
        let (burst, most) = (self.whole_burst(), self.most_of_fleet());
        if need > most {
            return DrawResult::ExceedsBurst { burst: most };
        }
        let owed_for = self.whole_rate().time_for(self.draws.owed);
        let level = self.draws.level(now, self.whole_rate(), burst);
        if let Some(next) = self.draws.next_at(now, need, level) {
            return DrawResult::Denied {
                retry_at: owed_for.map(|time| next.saturating_add(time)),
            };
        }
        if self.may_owe(need, credit, level) {
            self.owe_fleet(now, policy, need);
            return DrawResult::Tokens(need);
        }
        self.need(now, policy, need);
        self.draw_soon(now);
        // A request that cannot wait for the answer passes for certain when the whole limit has earned it.
        DrawResult::Denied {
            retry_at: self.earned_at(now, need),
        }
    }

    /// Time at which the whole limit has earned what is owed and `need`.
    pub(super) fn earned_at(&self, now: Instant, need: Tokens) -> Option<Instant> {
        let needs = need.saturating_add(self.draws.owed);
        let earned_in = self.whole_rate().time_for(needs);
        earned_in.map(|time| now.saturating_add(time))
    }

    /// Whether `need` tokens may be spent and owed, where the fleet has `level`, as far as it is known.
    fn may_owe(&self, need: Tokens, credit: Credit, level: i64) -> bool {
        let burst = self.whole_burst().as_micros();
        let many = Tokens::from_micros(burst / 2).saturating_add(need);
        let most = Tokens::from_micros(burst / OWED_PARTS).max(Tokens::ONE);
        match credit {
            Credit::None => false,
            // A killed client could not tell of it.
            Credit::OfMany if self.draws.quota.is_some() => false,
            Credit::OfMany => {
                self.whole_rate() >= OWED_FROM
                    && level >= micros(many)
                    && self.draws.owed.saturating_add(need) <= most
            }
            Credit::OfAll => level >= micros(need),
        }
    }

    /// Tokens that it has of the fleet's, drawn or earned by its lease, in millionths; less than none if it
    /// owes some. Those of a bucket without a lease are safe capacity, but for a debt.
    pub(super) fn balance_of_fleet(&self, now: Instant) -> i64 {
        match self.lease.client.valid_lease(now) {
            None => self.bucket.balance(now).min(0),
            Some(_) if self.draws.offered => self.draws.balance(),
            Some(_) => self.bucket.balance(now),
        }
    }

    /// Takes what an answer says of tokens. Those of before stay, whether it has drawn until now and gets a
    /// lease, or had a lease and draws from now on.
    ///
    /// With a lease that is not of nothing come the tokens that its bucket begins with, or has more because it
    /// grew. Without them it begins full.
    pub(super) fn apply_draw(
        &mut self,
        now: Instant,
        policy: &Policy,
        answer: Option<&DrawAnswer>,
        before: LeaseBefore,
    ) {
        let is_leased = self.has(now) > Capacity::ZERO;
        let draws = answer.filter(|_| !is_leased);
        let begins = answer.is_some() && is_leased && !before.is_valid;
        let changes = draws.is_some() != self.draws.offered || begins;
        if changes {
            self.fresh = false;
            self.bucket = TokenBucket::empty(now, Rate::ZERO, Tokens::ZERO);
            // Its requests go on waiting.
            let held_until = self.draws.held_until;
            self.draws.lapse();
            self.draws.held_until = held_until;
        }
        if changes && draws.is_some() {
            self.draws.begin(before.balance);
        } else if changes {
            self.lease_from_now_on(now, policy, before.balance);
        }
        self.owe_late_costs(now, policy);
        self.draws.apply(now, self.whole_rate(), draws);
        if let Some(answer) = answer.filter(|_| is_leased) {
            self.set_flow(now, policy);
            self.bucket.give_back(now, self.draws.receive(answer));
        }
        if self.draws.offered && self.lease.client.valid_lease(now).is_none() {
            // The answer came when its lease, and so its tokens, had ended.
            let owed = self.draws.lapse();
            self.bucket.charge(now, owed);
        }
        self.draw_soon(now);
    }

    /// Moves a debt of its bucket, of costs that became known while it was cut off, to what it owes the fleet.
    fn owe_late_costs(&mut self, now: Instant, policy: &Policy) {
        let owed = debt(self.bucket.balance(now));
        if self.draws.offered && owed > Tokens::ZERO {
            let most = self.whole_burst().saturating_add(self.longest_debt(policy));
            self.draws.owe(now, owed, most);
            self.bucket = TokenBucket::empty(now, Rate::ZERO, Tokens::ZERO);
        }
    }

    /// Moves the tokens that it has drawn, or owes, into its bucket, which its lease sizes; without a lease
    /// only a debt.
    fn lease_from_now_on(&mut self, now: Instant, policy: &Policy, balance: i64) {
        self.set_flow(now, policy);
        if self.lease.client.valid_lease(now).is_some() {
            self.bucket.give_back(now, positive(balance));
        }
        self.bucket.charge(now, debt(balance));
    }

    /// Gives all that it has drawn up, with its lease, and is as one that has never asked: the fleet's bucket
    /// remembers what was spent. What is still owed is forgiven.
    pub(super) fn begin_anew(&mut self, now: Instant, policy: &Policy) {
        self.draws.lapse();
        let (rate, burst) = self.flow(now, policy);
        self.fresh = true;
        self.bucket = TokenBucket::new(now, rate, burst);
    }

    /// Tokens that it keeps of those that are left when it asks: what it will want soon; none of it if it wants
    /// nothing and is awake for requests that go on. It gives none back by a call that is likely to be lost.
    pub(super) fn keeps(&self) -> Tokens {
        let wants = self.demand.wants();
        if self.is_cut_off() {
            self.draws.left
        } else if wants == Capacity::ZERO {
            Tokens::ZERO
        } else {
            wants.as_rate().tokens_in(KEPT_FOR).max(Tokens::ONE)
        }
    }

    /// Makes the next request due at once, if there are tokens to ask for and no answer is awaited.
    fn draw_soon(&mut self, now: Instant) {
        let needs = self.draws.owed > Tokens::ZERO || self.draws.needs > Tokens::ZERO;
        if needs && self.draws.offered && !self.lease.client.is_waiting() {
            self.lease.client.make_due(now);
        }
    }

    /// Level of the fleet's bucket, as far as it is known, with what the limiter has drawn.
    pub(super) fn level_of_fleet(&self, now: Instant) -> BucketLevel {
        let (rate, burst) = (self.whole_rate(), self.whole_burst());
        let level = self.draws.level(now, rate, burst);
        let lacks_for = self.draws.grows_from.saturating_since(now);
        let time_until = |tokens: Tokens| {
            let time = rate.time_for(positive(micros(tokens).saturating_sub(level)));
            time.map(|time| time.saturating_add(lacks_for))
        };
        let next = self.draws.next.filter(|_| level < micros(Tokens::ONE));
        let owed_for = rate.time_for(self.draws.owed);
        let next = next.zip(owed_for).map(|(next, owed_for)| {
            let next = next.saturating_since(now);
            next.saturating_add(owed_for)
        });
        BucketLevel {
            left: positive(level),
            next_in: next.or_else(|| time_until(Tokens::ONE)),
            full_in: time_until(burst),
        }
    }

    /// Tokens that may be owed beyond those that the fleet has.
    pub(super) fn longest_debt(&self, policy: &Policy) -> Tokens {
        self.whole_rate().tokens_in(policy.max_debt)
    }

    /// Rate of the whole limit, as far as it is known.
    pub(super) fn whole_rate(&self) -> Rate {
        self.lease
            .client
            .capacity
            .map_or(Rate::ZERO, Capacity::as_rate)
    }

    /// Burst of the whole limit, as far as it is known; by default a second of the rate.
    pub(super) fn whole_burst(&self) -> Tokens {
        let usual = || self.whole_rate().tokens_in(Duration::from_secs(1));
        self.lease.client.burst.unwrap_or_else(usual)
    }
}
