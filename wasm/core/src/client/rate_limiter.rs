//! Rate limiter: bucket, demand and lease of one rate unit in one process.
//!
//! The lease and its renewal are the same for every unit, see
//! [`process_lease`](super::process_lease). Tokens come from a [`TokenBucket`] that the lease
//! sizes, so the unit is one that is counted per second.

use core::time::Duration;

use self::draw::LeaseBefore;
use super::demand_estimator::DemandEstimator;
use super::draws::{Draws, micros};
use super::policy::Policy;
use super::process_lease::{LeaseState, Phase, ProcessLease};
use crate::bucket::{BucketState, TakeError, TokenBucket};
use crate::lease::{Answer, Origin, Unit};
use crate::lease_client::{KnownLimit, LeaseMessage};
use crate::units::{Capacity, Instant, Rate, RatePeriod, Tokens};

mod bytes;
mod draw;
mod standby;
mod wants;

/// Part of a second's tokens that a worker draws at once: enough that a busy worker rarely touches
/// shared memory, little enough that what it leaves unspent does not matter.
const CACHE_TIME: Duration = Duration::from_millis(5);
/// Requests in a token cache of a resource without a limit.
const UNLIMITED_CACHE: u64 = 1000;
/// Bytes that usually come together. They arrive in bodies and in parts of bodies, so that their
/// number sways more than that of as many independent things.
const BYTES_GRAIN: u64 = 4 * 1024;
/// A record that was not used for this long is free, whatever it says.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Time for which a limiter stays awake for requests that go on, after it was told of them.
const SETTLES_FOR: Duration = Duration::from_secs(15);
/// Attempts at an idle limiter after a pause as long as this are measured from now on.
const RETURN_AFTER: Duration = Duration::from_secs(1);

/// Rate limiter of one resource; plain data, see [`ScopeState::encode`](super::ScopeState::encode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimiter {
    pub(super) bucket: TokenBucket,
    /// Whether no lease has ever sized the bucket.
    pub(super) fresh: bool,
    pub(super) lease: ProcessLease,
    pub(super) demand: DemandEstimator,
    pub(super) last_attempt: Instant,
    pub(super) draws: Draws,
    pub(super) unit: Unit,
}

/// Result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawResult {
    /// Whole tokens to spend, at least what was needed.
    Tokens(Tokens),
    /// The first answer is awaited: hold the request until `until` at most, then draw again.
    Pending {
        /// End of the wait, answer or not.
        until: Instant,
    },
    /// Not enough tokens.
    Denied {
        /// The first instant at which the same draw passes if there is no other before; none if
        /// only a change of the lease can help.
        retry_at: Option<Instant>,
    },
    /// More than a full bucket was asked for at once, which no wait helps.
    ExceedsBurst {
        /// Tokens in a full bucket now.
        burst: Tokens,
    },
}

/// Level of a limiter's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLevel {
    /// Tokens that can be drawn.
    pub left: Tokens,
    /// Time after which one token can be drawn; none if only a change of the lease can help.
    pub next_in: Option<Duration>,
    /// Time after which the bucket is full without further draws; none if it never will be.
    pub full_in: Option<Duration>,
}

// === impl RateLimiter ===

impl RateLimiter {
    /// An idle limiter for requests with a full bucket of the capacity that `policy` gives without
    /// a lease.
    pub fn new(now: Instant, policy: &Policy) -> Self {
        Self::of(Unit::Requests, now, policy)
    }

    /// The same for another unit that is counted per second.
    pub fn of(unit: Unit, now: Instant, policy: &Policy) -> Self {
        let mut limiter = Self {
            bucket: TokenBucket::empty(now, Rate::ZERO, Tokens::ZERO),
            fresh: true,
            lease: ProcessLease::new(),
            demand: DemandEstimator::new(now),
            last_attempt: now,
            draws: Draws::default(),
            unit,
        };
        let (rate, burst) = limiter.flow(now, policy);
        limiter.bucket = TokenBucket::new(now, rate, burst);
        limiter
    }

    fn take(&mut self, now: Instant, need: Tokens, workers: u32) -> DrawResult {
        self.take_up_to(now, need, self.cache_size(workers).max(need))
    }

    /// Whether its own bucket has safe capacity, which counts against a quota later.
    fn takes_safe(&self, now: Instant) -> bool {
        self.draws.quota.is_some() && (self.is_cut_off() || self.has(now) == Capacity::ZERO)
    }

    fn take_up_to(&mut self, now: Instant, need: Tokens, want: Tokens) -> DrawResult {
        match self.bucket.take_up_to(now, need, want) {
            Ok(tokens) => {
                if self.takes_safe(now) {
                    self.draws.note_safe(tokens);
                }
                DrawResult::Tokens(tokens)
            }
            // A bucket that holds nothing at all does not refuse a size.
            Err(TakeError::ExceedsBurst { burst, .. }) if burst >= Tokens::ONE => {
                DrawResult::ExceedsBurst { burst }
            }
            Err(denied) => DrawResult::Denied {
                retry_at: denied.retry_at(),
            },
        }
    }

    /// Counts and pays for traffic that has passed already: `attempts` were made, and `owed` is the
    /// part of them that no token cache has paid. Tokens that the bucket does not have become a
    /// debt that later draws wait for, of at most [`Policy::max_debt`] at the present rate: debt
    /// beyond that is forgiven.
    pub fn pay(&mut self, now: Instant, policy: &Policy, attempts: u64, owed: Tokens) {
        self.count(now, attempts);
        if attempts == 0 && owed == Tokens::ZERO {
            return;
        }
        self.lease.rouse(now, policy);
        self.settle_bucket(now, policy);
        if self.can_draw(now) {
            self.owe_fleet(now, policy, owed);
            return;
        }
        self.bucket.charge(now, owed);
        let most = micros(self.bucket.rate().tokens_in(policy.max_debt));
        let parts = self.bucket.to_parts();
        self.bucket = TokenBucket::from_parts(BucketState {
            balance: parts.balance.max(most.saturating_neg()),
            ..parts
        });
    }

    /// The most that a worker may owe before it should pay: about a token cache.
    pub fn owed_max(&self, workers: u32) -> Tokens {
        self.cache_size(workers)
    }

    /// Takes back unspent tokens of a token cache.
    pub fn give_back(&mut self, now: Instant, policy: &Policy, tokens: Tokens) {
        self.settle_bucket(now, policy);
        if self.draws.offered {
            self.draws.give_back(now, tokens, self.whole_burst())
        } else {
            self.draws.note_safe_back(tokens);
            self.bucket.give_back(now, tokens)
        }
    }

    /// Takes back `tokens` that a request was charged at `taken_at`, and that it did not cost. Those beyond the burst are
    /// lost, as are those of a window of a quota that has ended since.
    pub fn refund(&mut self, now: Instant, policy: &Policy, taken_at: Instant, tokens: Tokens) {
        self.settle_bucket(now, policy);
        if self.draws.offered || self.draws.quota.is_some() {
            // Of a quota the whole amount may come back, whatever the bucket of the rate has room for.
            let amount = self.draws.quota.map(|quota| quota.amount);
            let most = amount.unwrap_or_else(|| self.whole_burst());
            self.draws.refund(now, taken_at, tokens, most);
        } else {
            self.bucket.give_back(now, tokens);
        }
    }

    /// Notes that requests go on which may bring tokens back. While some do, it stays awake: a coordinator takes nothing
    /// back from a client that it has forgotten.
    pub fn await_refunds(&mut self, now: Instant) {
        self.draws.settles_until = now.saturating_add(SETTLES_FOR);
    }

    /// Counts `attempts` made until `now`. True if they changed the wants so much that
    /// [`RateLimiter::due`] moved forward.
    pub fn count(&mut self, now: Instant, attempts: u64) -> bool {
        self.lease.client.count(attempts, 0);
        self.count_again(now, attempts)
    }

    /// The same for attempts that were counted before, and wait: they are wanted again.
    pub fn count_again(&mut self, now: Instant, attempts: u64) -> bool {
        if attempts > 0 {
            // A window that has been open all through a pause would hide the return.
            let pause = now.saturating_since(self.last_attempt);
            if self.lease.phase == Phase::Idle && pause >= RETURN_AFTER {
                self.demand = DemandEstimator::new(now);
            }
            self.last_attempt = now.max(self.last_attempt);
        }
        self.demand.count(now, attempts, self.grain());
        let news_at = self.news_at(now).filter(|_| self.lease.may_hurry());
        news_at.is_some_and(|at| self.lease.hurry(at))
    }

    /// Counts tokens that were refused to attempts that are counted, too.
    pub fn count_refused(&mut self, refused: u64) {
        self.lease.client.count(0, refused);
    }

    /// Time at which [`RateLimiter::ask`] has a message; none while idle.
    pub fn due(&self) -> Option<Instant> {
        self.lease.client.due
    }

    /// Returns the message that is due. Any other than [`LeaseMessage::Nothing`] must be sent: no
    /// other worker will.
    pub fn ask(&mut self, now: Instant, policy: &Policy) -> LeaseMessage {
        self.ask_early(now, policy, Duration::ZERO)
    }

    /// Like [`RateLimiter::ask`], also if it would be due within `early`, as when other units are
    /// asked for.
    pub(super) fn ask_early(
        &mut self,
        now: Instant,
        policy: &Policy,
        early: Duration,
    ) -> LeaseMessage {
        if !self.lease.client.is_due(now, early) {
            return LeaseMessage::Nothing;
        }
        self.demand.count(now, 0, self.grain());
        self.settle_bucket(now, policy);
        let more = self.wants_more();
        let (has, wants) = (self.has(now), self.wants_at(now, policy));
        let mut message = self.lease.ask(now, policy, has, wants);
        if more {
            self.lease.expect_more();
        }
        match &mut message {
            LeaseMessage::Refresh(request) => {
                let (keeps, debt_max) = (self.keeps(), self.longest_debt(policy));
                request.draw = Some(
                    self.draws
                        .request(now, keeps, debt_max, policy.call_timeout),
                );
                if self.unit.is_bytes() {
                    self.draws.next_for = self.draws.next_for.min(Tokens::ONE);
                }
            }
            LeaseMessage::Release { .. } if self.draws.offered => self.begin_anew(now, policy),
            LeaseMessage::Release { .. } => {}
            LeaseMessage::Nothing => {}
        }
        message
    }

    /// Applies the answer to the request of `sequence`. False if it was dropped: it is not the
    /// answer to the latest request, or comes from an earlier master of the same shard.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        policy: &Policy,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        if !self.lease.accepts(now, sequence, origin) {
            return false;
        }
        self.settle_bucket(now, policy);
        let before = LeaseBefore {
            balance: self.balance_of_fleet(now),
            is_valid: self.lease.client.valid_lease(now).is_some(),
        };
        let standby = self.standby_lease(now, answer);
        self.lease.apply(now, origin, answer);
        if standby.is_some() {
            self.lease.client.lease = standby;
            self.draws.note_unanswered();
            return true;
        }
        self.apply_draw(now, policy, answer.draw.as_ref(), before);
        self.settle_bucket(now, policy);
        self.fresh &= self.lease.client.lease.is_none();
        if self.demand.wants() == Capacity::ZERO
            && let Some(full_at) = self.refills_until(now)
        {
            self.lease.client.due = self.lease.client.due.min(Some(full_at));
        }
        true
    }

    /// Notes that the request of `sequence` failed; the next one waits longer. `seed` spreads
    /// clients that fail together.
    pub fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) {
        self.draws.fail();
        self.lease.handle_failure(now, sequence, seed);
    }

    /// State of the lease at `now`.
    pub fn state(&self, now: Instant) -> LeaseState {
        match self.lease.state(now) {
            LeaseState::Leased if self.is_cut_off() => LeaseState::NoLease,
            state => state,
        }
    }

    /// Rate and burst at `now`.
    pub fn flow(&self, now: Instant, policy: &Policy) -> (Rate, Tokens) {
        let lease = self.lease.client.valid_lease(now);
        match (lease, self.standby(now, policy)) {
            (_, Some(standby)) => self.standby_flow(standby),
            (Some(lease), None) if !self.is_cut_off() => match lease.capacity.as_rate() {
                Rate::ZERO => (Rate::ZERO, Tokens::ZERO),
                rate => (rate, lease.burst),
            },
            _ => self.flow_without_lease(policy),
        }
    }

    /// Limit of the resource as far as it is known.
    fn known_limit(&self, policy: &Policy) -> Option<KnownLimit> {
        let usual = policy.usual.filter(|_| self.unit == Unit::Requests);
        self.lease.client.known_limit().or(usual)
    }

    /// Rate at which the bucket earns, and so pays what it owes. That of [`RateLimiter::flow`], but
    /// while the first answer is awaited the one of the lease before.
    pub fn earns(&self) -> Rate {
        self.bucket.rate()
    }

    /// Rate that may pass soon, if it is more than now and a lease is about to grow: others have to
    /// give back the client's share, or the coordinator does not know yet that more is wanted. By
    /// the present rate it cannot be said then which request waits in vain. None with a lease of
    /// the whole capacity.
    pub fn expected_rate(&self, now: Instant) -> Option<Rate> {
        let lease = self.lease.client.valid_lease(now)?;
        let whole = self.lease.client.capacity?;
        if self.draws.offered {
            return Some(whole.as_rate());
        }
        let grows = self.lease.is_growing(now) || self.wants_more();
        (grows && lease.capacity < whole).then(|| whole.as_rate())
    }

    /// Time at which the bucket of a leased limiter is full again, or what one that draws owes is paid;
    /// none if it is, or never will be.
    fn refills_until(&self, now: Instant) -> Option<Instant> {
        self.lease.client.valid_lease(now)?;
        let missing = if self.draws.offered {
            self.whole_rate().time_for(self.draws.owed)?
        } else {
            self.bucket.time_until(now, self.bucket.burst())?
        };
        (!missing.is_zero()).then(|| now.saturating_add(missing))
    }

    /// Level of the bucket at `now`.
    pub fn level(&self, now: Instant) -> BucketLevel {
        if self.draws.offered {
            return self.level_of_fleet(now);
        }
        let left = u64::try_from(self.bucket.balance(now)).unwrap_or(0);
        BucketLevel {
            left: Tokens::from_micros(left),
            next_in: self.bucket.time_until(now, Tokens::ONE),
            full_in: self.bucket.time_until(now, self.bucket.burst()),
        }
    }

    /// Capacity of the lease at `now`; the largest number for a lease without a limit.
    pub fn has(&self, now: Instant) -> Capacity {
        let lease = self.lease.client.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| lease.capacity.min(Capacity::MAX))
    }

    /// Wants of the client; zero while idle.
    pub fn wants(&self) -> Capacity {
        match self.lease.phase {
            Phase::Idle => Capacity::ZERO,
            _ => self.demand.wants(),
        }
    }

    /// The capacity of the whole resource, as the coordinator last said.
    pub fn capacity(&self) -> Option<Capacity> {
        self.lease.client.capacity
    }

    /// Period for which that was written, if the coordinator said it.
    pub fn period(&self) -> Option<RatePeriod> {
        self.lease.client.period
    }

    /// Expiry of the lease, if there is one.
    pub fn lease_expiry(&self) -> Option<Instant> {
        let lease = self.lease.client.lease.filter(|_| !self.is_cut_off());
        lease.map(|lease| lease.expiry)
    }

    /// Whether nothing would be lost with this limiter: it has no lease, and is either idle while calls
    /// are answered and has earned back what it has taken, or abandoned with a full bucket.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let abandoned = now.saturating_since(self.last_attempt) >= ABANDONED_AFTER;
        let idle = self.lease.is_at_rest() && self.is_as_new(now);
        self.lease.client.valid_lease(now).is_none() && (idle || abandoned && self.is_full(now))
    }

    /// Sizes the bucket for the present rate; a lease that has expired counts until its expiry. The
    /// bucket of an idle or pending limiter stays as it was when its lease was released, which is
    /// full: if it were cut to the safe capacity until the answer, a client that returns would have
    /// no burst.
    fn settle_bucket(&mut self, now: Instant, policy: &Policy) {
        if let Some(expiry) = self.lease.lapse(now) {
            let was_drawing = self.draws.offered;
            let owed = self.draws.lapse();
            self.set_flow(expiry, policy);
            if was_drawing {
                // Safe capacity that it has spent is owed; tokens that it has spent beyond that are forgiven.
                self.bucket.give_back(expiry, self.bucket.burst());
            }
            let most = self.bucket.burst();
            self.bucket.charge(expiry, owed.min(most));
        }
        if !matches!(self.lease.phase, Phase::Idle | Phase::Pending { .. }) {
            self.set_flow(now, policy);
        }
    }

    /// Sets rate and burst. A balance grows only by earning: if it grew with the burst, a lease that
    /// goes up and down would mint tokens. Only that of a new bucket does, until its first lease:
    /// then it holds all but what was spent.
    fn set_flow(&mut self, now: Instant, policy: &Policy) {
        let (rate, burst) = self.flow(now, policy);
        let old = self.bucket.burst();
        if (rate, burst) == (self.bucket.rate(), old) {
            return;
        }
        // Tokens that do not fit in a bucket that is not full may have been spent before.
        self.fresh &= burst >= old || self.bucket.balance(now) >= micros(old);
        self.bucket.set(now, rate, burst);
        if self.fresh {
            let parts = self.bucket.to_parts();
            let raised = micros(burst.saturating_sub(old));
            self.bucket = TokenBucket::from_parts(BucketState {
                balance: parts.balance.saturating_add(raised),
                ..parts
            });
        }
    }

    /// Number of the unit that usually come at once.
    fn grain(&self) -> u64 {
        let least = if self.unit.is_bytes() { BYTES_GRAIN } else { 1 };
        self.draws.cost.whole().max(least)
    }

    fn cache_size(&self, workers: u32) -> Tokens {
        let rate = self.bucket.rate();
        if rate.is_unlimited() {
            return Tokens::from_whole(UNLIMITED_CACHE.saturating_mul(self.grain()));
        }
        let parts = u64::from(workers).saturating_mul(4).max(1);
        let most = self.bucket.burst().whole().checked_div(parts).unwrap_or(0);
        Tokens::from_whole(rate.tokens_in(CACHE_TIME).whole().min(most))
    }
}

#[cfg(test)]
mod tests;
