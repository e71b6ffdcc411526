//! What one process holds of one resource: its bucket, its lease, what it wants, when it asks.
//!
//! What it borrows and when it asks is the same for every unit, see [`borrower`](super::borrower).
//! What passes comes from a [`TokenBucket`] that the lease sizes, so the unit is one that is counted
//! per second.

use core::time::Duration;

use super::demand_estimator::{DemandEstimator, deviation};
use super::policy::{Mode, Policy};
use super::process_lease::{LeaseState, Phase, ProcessLease};
use crate::bucket::{BucketState, TakeError, TokenBucket};
use crate::lease::{Answer, Origin, Unit};
use crate::lease_client::LeaseMessage;
use crate::units::{Capacity, Instant, Rate, Tokens};

/// The part of a second's tokens that a worker draws at once: enough that a busy worker rarely
/// touches shared memory, little enough that what it leaves unspent does not matter.
const CACHE_TIME: Duration = Duration::from_millis(5);
/// Requests in a slab of a resource without a limit.
const UNLIMITED_CACHE: u64 = 1000;
/// Bytes that usually come together. They arrive in bodies and in parts of bodies, so that their
/// number sways more than that of as many independent things.
const BYTES_GRAIN: u64 = 4 * 1024;
/// A record that nobody has used for this long belongs to no one, whatever it says.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Attempts at an idle holder after a pause as long as this are measured from now on.
const RETURN_AFTER: Duration = Duration::from_secs(1);

/// A process's state for one resource; plain data, see [`ScopeState::encode`](super::ScopeState::encode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimiter {
    pub(super) bucket: TokenBucket,
    /// Whether no lease has ever sized the bucket.
    pub(super) fresh: bool,
    pub(super) lease: ProcessLease,
    pub(super) demand: DemandEstimator,
    pub(super) last_attempt: Instant,
    pub(super) unit: Unit,
}

/// What a worker that wants tokens gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawResult {
    /// Whole tokens to spend, at least what was needed.
    Tokens(Tokens),
    /// The first answer is awaited: hold the request until `until` at most, then draw again.
    Pending {
        /// When waiting is over, answer or not.
        until: Instant,
    },
    /// Not enough tokens.
    Denied {
        /// The first instant at which the same draw passes if nobody draws before; none if only a
        /// change of the lease can help.
        retry_at: Option<Instant>,
    },
    /// More than a full bucket was asked for at once, which no waiting helps.
    ExceedsBurst {
        /// What a full bucket holds now.
        burst: Tokens,
    },
}

/// How full a holder's bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLevel {
    /// What there is to draw.
    pub left: Tokens,
    /// After what time the bucket is full if nobody draws; none if it never will be.
    pub full_in: Option<Duration>,
}

// === impl RateLimiter ===

impl RateLimiter {
    /// An idle holder for requests with a full bucket of the capacity that `policy` gives without a
    /// lease.
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
            unit,
        };
        let (rate, burst) = limiter.flow(now, policy);
        limiter.bucket = TokenBucket::new(now, rate, burst);
        limiter
    }

    /// Takes `need` tokens, and more for later if there are: a slab for one of `workers` workers.
    ///
    /// The slab is what the rate earns in 5 ms, but no more than a quarter of the burst over all
    /// workers, and at least `need`. Count the attempt first: a holder that sees no demand does not ask.
    pub fn draw(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        self.lease.rouse(now, policy);
        if let Phase::Pending { until } = self.lease.phase {
            return DrawResult::Pending { until };
        }
        self.draw_at_once(now, policy, need, workers)
    }

    /// Like [`RateLimiter::draw`] for a request that cannot be held: while the first answer is awaited it
    /// draws from what passes without a lease, and others may go on waiting.
    pub fn draw_at_once(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> DrawResult {
        self.lease.rouse(now, policy);
        self.settle_bucket(now, policy);
        self.set_flow(now, policy);
        self.take(now, need, workers)
    }

    fn take(&mut self, now: Instant, need: Tokens, workers: u32) -> DrawResult {
        let want = self.cache_size(workers).max(need);
        match self.bucket.take_up_to(now, need, want) {
            Ok(tokens) => DrawResult::Tokens(tokens),
            // Of a bucket that holds nothing at all, nothing is too much.
            Err(TakeError::ExceedsBurst { burst, .. }) if burst >= Tokens::ONE => {
                DrawResult::ExceedsBurst { burst }
            }
            Err(denied) => DrawResult::Denied {
                retry_at: denied.retry_at(),
            },
        }
    }

    /// Counts and pays for what has passed already: `attempts` were made, and `owed` is what no slab
    /// has paid of it. What the bucket does not have becomes a debt that later draws wait for, of at
    /// most [`Policy::max_debt`] at the present rate: what is owed beyond that is forgiven.
    pub fn pay(&mut self, now: Instant, policy: &Policy, attempts: u64, owed: Tokens) {
        self.count(now, attempts);
        if attempts == 0 && owed == Tokens::ZERO {
            return;
        }
        self.lease.rouse(now, policy);
        self.settle_bucket(now, policy);
        self.bucket.charge(now, owed);
        let most = micros(self.bucket.rate().tokens_in(policy.max_debt));
        let parts = self.bucket.to_parts();
        self.bucket = TokenBucket::from_parts(BucketState {
            balance: parts.balance.max(most.saturating_neg()),
            ..parts
        });
    }

    /// Like [`RateLimiter::draw`] for what a request will use only later, if at all: at least one token,
    /// so that none passes while there is a debt. Nobody is held for the first answer, and a
    /// holder that is idle stays so.
    pub fn advance(&mut self, now: Instant, policy: &Policy, workers: u32) -> DrawResult {
        if self.lease.phase != Phase::Idle {
            self.lease.rouse(now, policy);
        }
        self.settle_bucket(now, policy);
        self.take(now, Tokens::ONE, workers)
    }

    /// How much a worker may owe before it should pay: about a slab.
    pub fn owed_max(&self, workers: u32) -> Tokens {
        self.cache_size(workers)
    }

    /// Returns unspent tokens of a slab.
    pub fn give_back(&mut self, now: Instant, policy: &Policy, tokens: Tokens) {
        self.settle_bucket(now, policy);
        self.bucket.give_back(now, tokens);
    }

    /// Counts `attempts` made until `now`. True if they changed what is wanted so much that
    /// [`RateLimiter::due`] moved forward.
    pub fn count(&mut self, now: Instant, attempts: u64) -> bool {
        if attempts > 0 {
            // A window that has been open all through a pause would hide who returns.
            let pause = now.saturating_since(self.last_attempt);
            if self.lease.phase == Phase::Idle && pause >= RETURN_AFTER {
                self.demand = DemandEstimator::new(now);
            }
            self.last_attempt = now.max(self.last_attempt);
        }
        self.demand.count(now, attempts, grain(self.unit));
        let news_at = self.news_at(now).filter(|_| self.lease.may_hurry());
        news_at.is_some_and(|at| self.lease.hurry(at))
    }

    /// From when on there is something else to say than was said, if what is wanted has changed.
    fn news_at(&self, now: Instant) -> Option<Instant> {
        let reported = self.lease.reported;
        if differs(reported, self.to_say(now), self.unit) {
            return Some(now);
        }
        if !differs(reported, self.demand.wants(), self.unit) {
            return None;
        }
        let paid = self.bucket.time_until(now, Tokens::ZERO)?;
        match paid.is_zero() {
            true => self.refills_until(now),
            false => Some(now.saturating_add(paid)),
        }
    }

    /// When [`RateLimiter::ask`] has something to say; none while idle.
    pub fn due(&self) -> Option<Instant> {
        self.lease.client.due
    }

    /// What there is to say now. Whoever gets an answer other than [`LeaseMessage::Nothing`] must say it:
    /// nobody else will.
    pub fn ask(&mut self, now: Instant, policy: &Policy) -> LeaseMessage {
        self.ask_early(now, policy, Duration::ZERO)
    }

    /// Like [`RateLimiter::ask`], also if it would be due within `early`, as when others are asked for.
    pub(super) fn ask_early(
        &mut self,
        now: Instant,
        policy: &Policy,
        early: Duration,
    ) -> LeaseMessage {
        if !self.lease.client.is_due(now, early) {
            return LeaseMessage::Nothing;
        }
        self.demand.count(now, 0, grain(self.unit));
        self.settle_bucket(now, policy);
        let more = self.wants_more();
        let (has, wants) = (self.has(now), self.wants_at(now, policy));
        let message = self.lease.ask(now, policy, has, wants);
        if more {
            self.lease.expect_more();
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
        self.lease.apply(now, origin, answer);
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
        self.lease.handle_failure(now, sequence, seed);
    }

    /// Where the holder stands at `now`.
    pub fn state(&self, now: Instant) -> LeaseState {
        self.lease.state(now)
    }

    /// What passes at `now`: rate and burst.
    pub fn flow(&self, now: Instant, policy: &Policy) -> (Rate, Tokens) {
        if let Some(lease) = self.lease.client.valid_lease(now) {
            let rate = lease.capacity.as_rate();
            return (
                rate,
                if rate == Rate::ZERO {
                    Tokens::ZERO
                } else {
                    lease.burst
                },
            );
        }
        let safe = self
            .lease
            .client
            .safe
            .unwrap_or_else(|| policy.safe_of(self.unit));
        let rate = match policy.no_lease {
            Mode::Safe => safe,
            Mode::Optimistic => safe.max(self.demand.wants()),
            Mode::Pessimistic => Capacity::ZERO,
        }
        .as_rate();
        (rate, second_of(rate))
    }

    /// The most that may pass soon, if it is more than now and a lease is about to grow: others have to
    /// give back what the client is entitled to, or the coordinator does not know yet that more is wanted.
    /// With what passes now nobody can say then who waits in vain. None with a lease of all that there is.
    pub fn expected_rate(&self, now: Instant) -> Option<Rate> {
        let lease = self.lease.client.valid_lease(now)?;
        let whole = self.lease.client.capacity?;
        let grows = self.lease.is_growing(now) || self.wants_more();
        (grows && lease.capacity < whole).then(|| whole.as_rate())
    }

    /// Whether more is wanted than the coordinator has heard of, and it will hear soon.
    fn wants_more(&self) -> bool {
        let (reported, wants) = (self.lease.reported, self.demand.wants());
        let lacks = self
            .lease
            .client
            .lease
            .is_some_and(|lease| lease.capacity < wants);
        lacks
            && wants > reported
            && self.lease.client.failures == 0
            && differs(reported, wants, self.unit)
    }

    /// What the client wants at `now`: what is attempted, or, when attempts have ended, what it
    /// last wanted until its bucket is full again. What a bucket earns is part of the capacity as
    /// much as what is spent of it: earned beside the leases it would come on top.
    fn wants_at(&self, now: Instant, policy: &Policy) -> Capacity {
        let silence = now.saturating_since(self.last_attempt);
        let wants = self.to_say(now);
        if wants > Capacity::ZERO && silence < policy.idle_after {
            return wants;
        }
        if self.refills_until(now).is_some() && silence < ABANDONED_AFTER {
            return self.lease.reported;
        }
        Capacity::ZERO
    }

    /// What there is to say of what is attempted, if it has not been silent for long.
    fn to_say(&self, now: Instant) -> Capacity {
        let (wants, reported) = (self.demand.wants(), self.lease.reported);
        if self.bucket.balance(now) < 0 {
            // Whoever is told when the debt is paid counts on the rate that it is paid at.
            return wants.max(reported);
        }
        match wants == Capacity::ZERO && self.refills_until(now).is_some() {
            true => reported,
            false => wants,
        }
    }

    /// When the bucket of a leased holder is full again; none if it is, or never will be.
    fn refills_until(&self, now: Instant) -> Option<Instant> {
        self.lease.client.valid_lease(now)?;
        let missing = self.bucket.time_until(now, self.bucket.burst())?;
        (!missing.is_zero()).then(|| now.saturating_add(missing))
    }

    /// How full the bucket is at `now`, for whoever spends from it.
    pub fn level(&self, now: Instant) -> BucketLevel {
        let left = u64::try_from(self.bucket.balance(now)).unwrap_or(0);
        BucketLevel {
            left: Tokens::from_micros(left),
            full_in: self.bucket.time_until(now, self.bucket.burst()),
        }
    }

    /// What the client holds at `now`; the largest number for a lease without a limit.
    pub fn has(&self, now: Instant) -> Capacity {
        let lease = self.lease.client.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| lease.capacity.min(Capacity::MAX))
    }

    /// What the client wants; nothing while idle.
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

    /// When the lease ends, or ended, if there is one.
    pub fn lease_expiry(&self) -> Option<Instant> {
        self.lease.client.lease.map(|lease| lease.expiry)
    }

    /// Whether nothing would be lost with this holder: it is idle or abandoned, holds no lease,
    /// and its bucket is as full as that of a new one.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let abandoned = now.saturating_since(self.last_attempt) >= ABANDONED_AFTER;
        let burst = micros(self.bucket.burst());
        (self.lease.phase == Phase::Idle || abandoned)
            && self.lease.client.valid_lease(now).is_none()
            && (self.bucket.rate().is_unlimited() || self.bucket.balance(now) >= burst)
    }

    /// Brings the bucket to what passes now; a lease that has expired counts until its expiry. The
    /// bucket of an idle or cold holder stays as it was when its lease was released, which is full:
    /// if it were cut to the safe capacity until the answer, who returns would have no burst.
    fn settle_bucket(&mut self, now: Instant, policy: &Policy) {
        if let Some(expiry) = self.lease.lapse(now) {
            self.set_flow(expiry, policy);
        }
        if !matches!(self.lease.phase, Phase::Idle | Phase::Pending { .. }) {
            self.set_flow(now, policy);
        }
    }

    /// Sets rate and burst. A balance shrinks in proportion to the burst but grows only by earning:
    /// if it grew in proportion too, a lease that goes up and down would mint tokens. Only a new
    /// bucket grows with its burst, until its first lease: then it holds all but what was spent.
    fn set_flow(&mut self, now: Instant, policy: &Policy) {
        let (rate, burst) = self.flow(now, policy);
        let old = self.bucket.burst();
        if (rate, burst) == (self.bucket.rate(), old) {
            return;
        }
        let before = self.bucket.balance(now);
        let raised = micros(burst).saturating_sub(micros(old));
        // What a bucket loses that is not full may have been spent before.
        self.fresh &= raised >= 0 || before >= micros(old);
        self.bucket.set(now, rate, burst);
        let parts = self.bucket.to_parts();
        let balance = match self.fresh && raised > 0 {
            true => before.saturating_add(raised),
            false => parts.balance.min(before),
        };
        self.bucket = TokenBucket::from_parts(BucketState { balance, ..parts });
    }

    fn cache_size(&self, workers: u32) -> Tokens {
        let rate = self.bucket.rate();
        if rate.is_unlimited() {
            return Tokens::from_whole(UNLIMITED_CACHE.saturating_mul(grain(self.unit)));
        }
        let parts = u64::from(workers).saturating_mul(4).max(1);
        let most = self.bucket.burst().whole().checked_div(parts).unwrap_or(0);
        Tokens::from_whole(rate.tokens_in(CACHE_TIME).whole().min(most))
    }
}

// === free functions ===

/// Whether wants have changed enough to tell before the next regular refresh: by a tenth
/// (PIP-82) and by two standard deviations of one second's arrivals, or to or from zero.
fn differs(reported: Capacity, wants: Capacity, unit: Unit) -> bool {
    let (old, new) = (reported.as_micros(), wants.as_micros());
    let noise = deviation(old, grain(unit)).saturating_mul(2);
    old.abs_diff(new) > noise.max(old / 10) || (old == 0) != (new == 0)
}

/// How many of a unit usually come at once.
fn grain(unit: Unit) -> u64 {
    match unit {
        Unit::RequestBytes | Unit::ResponseBytes => BYTES_GRAIN,
        Unit::Requests | Unit::Concurrency => 1,
    }
}

/// `tokens` as a balance counts them.
fn micros(tokens: Tokens) -> i64 {
    i64::try_from(tokens.as_micros()).unwrap_or(i64::MAX)
}

/// One second of `rate`, at least one token; nothing if nothing passes.
fn second_of(rate: Rate) -> Tokens {
    match rate {
        Rate::ZERO => Tokens::ZERO,
        rate => rate.tokens_in(Duration::from_secs(1)).max(Tokens::ONE),
    }
}

#[cfg(test)]
mod tests;
