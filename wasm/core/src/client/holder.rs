//! What one process holds of one resource: its bucket, its lease, what it wants, when it asks.
//!
//! The holder keeps two promises that the coordinator's books rely on (see
//! [`resource`](crate::resource)): a lease counts from when its request was *sent*, and only the
//! answer to the *latest* request is applied.
//!
//! Its life: idle until the first attempt; cold until the first answer, while requests may be
//! held; then leased, or without a lease in the configured [`Mode`]. When nothing is wanted any more
//! and the bucket is full again, the lease is released and the holder is idle.

use core::time::Duration;

use super::backoff::backoff;
use super::demand::Demand;
use super::policy::{Mode, Policy};
use crate::bucket::{Parts, TokenBucket};
use crate::lease::{Answer, Ask, Epoch};
use crate::units::{Capacity, Instant, MICRO, Rate, Tokens};

/// The soonest a change of demand makes a holder ask again. The coordinator has its own minimum.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The soonest an answer is followed by the next request, whatever it says.
const INTERVAL_FLOOR: Duration = Duration::from_millis(10);
/// The part of a second's tokens that a worker draws at once: enough that a busy worker rarely
/// touches shared memory, little enough that what it leaves unspent does not matter.
const SLAB_TIME: Duration = Duration::from_millis(5);
/// Tokens in a slab of a resource without a limit.
const UNLIMITED_SLAB: Tokens = Tokens::from_whole(1000);
/// A record that nobody has used for this long belongs to no one, whatever it says.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Attempts at an idle holder after a pause as long as this are measured from now on.
const RETURN_AFTER: Duration = Duration::from_secs(1);

/// A process's state for one resource; plain data, see [`Holder::encode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub(super) bucket: TokenBucket,
    /// Whether no lease has ever sized the bucket.
    pub(super) fresh: bool,
    pub(super) phase: Phase,
    pub(super) lease: Option<Lease>,
    pub(super) epoch: Epoch,
    /// The safe capacity last sent.
    pub(super) safe: Option<Capacity>,
    /// The capacity of the whole resource, last sent.
    pub(super) capacity: Option<Capacity>,
    pub(super) demand: Demand,
    /// What the last request said of `wants`.
    pub(super) reported: Capacity,
    pub(super) last_attempt: Instant,
    /// Of the last request; its time in nanoseconds unless two fell into one.
    pub(super) sequence: u64,
    /// When the request was sent that waits for an answer.
    pub(super) asked_at: Option<Instant>,
    pub(super) due: Option<Instant>,
    pub(super) failures: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// Awake without an answer so far; requests may be held until then.
    Cold {
        until: Instant,
    },
    Awake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) capacity: Capacity,
    pub(super) burst: Tokens,
    pub(super) expiry: Instant,
    /// See [`LeaseTerms::basis`](crate::lease::LeaseTerms::basis).
    pub(super) basis: u64,
}

/// Where a holder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wanted and nothing is held.
    Idle,
    /// The first answer is awaited.
    Cold,
    /// A lease is valid.
    Leased,
    /// There is no valid lease; the [`Mode`] says what passes.
    NoLease,
}

/// What a worker that wants tokens gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Whole tokens to spend, at least what was needed.
    Slab(Tokens),
    /// The first answer is awaited: hold the request until `until` at most, then draw again.
    Cold {
        /// When waiting is over, answer or not.
        until: Instant,
    },
    /// Not enough tokens.
    Denied {
        /// The first instant at which the same draw passes if nobody draws before; none if only a
        /// change of the lease can help.
        retry_at: Option<Instant>,
    },
}

/// What there is to say to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing now.
    Nothing,
    /// Ask for a lease; the answer goes to [`Holder::handle_answer`] or
    /// [`Holder::handle_failure`] with the same sequence.
    Refresh(Ask),
    /// Tell that the lease is no longer used. No answer is awaited: if the message is lost, the
    /// lease expires.
    Release {
        /// Grows like [`Ask::sequence`].
        sequence: u64,
    },
}

// === impl Holder ===

impl Holder {
    /// An idle holder with a full bucket of the capacity that `policy` gives without a lease.
    pub fn new(now: Instant, policy: &Policy) -> Self {
        let mut holder = Self {
            bucket: TokenBucket::empty(now, Rate::ZERO, Tokens::ZERO),
            fresh: true,
            phase: Phase::Idle,
            lease: None,
            epoch: Epoch::default(),
            safe: None,
            capacity: None,
            demand: Demand::new(now),
            reported: Capacity::ZERO,
            last_attempt: now,
            sequence: 0,
            asked_at: None,
            due: None,
            failures: 0,
        };
        let (rate, burst) = holder.flow(now, policy);
        holder.bucket = TokenBucket::new(now, rate, burst);
        holder
    }

    /// Takes `need` tokens, and more for later if there are: a slab for one of `workers` workers.
    ///
    /// The slab is what the rate earns in 5 ms, but no more than a quarter of the burst over all
    /// workers, and at least `need`. Count the attempt first: a holder that sees no demand does not ask.
    pub fn draw(&mut self, now: Instant, policy: &Policy, need: Tokens, workers: u32) -> Draw {
        self.rouse(now, policy);
        if let Phase::Cold { until } = self.phase {
            return Draw::Cold { until };
        }
        self.draw_at_once(now, policy, need, workers)
    }

    /// Like [`Holder::draw`] for a request that cannot be held: while the first answer is awaited it
    /// draws from what passes without a lease, and others may go on waiting.
    pub fn draw_at_once(
        &mut self,
        now: Instant,
        policy: &Policy,
        need: Tokens,
        workers: u32,
    ) -> Draw {
        self.rouse(now, policy);
        self.settle_bucket(now, policy);
        self.set_flow(now, policy);
        let want = self.slab(workers).max(need);
        match self.bucket.take_up_to(now, need, want) {
            Ok(tokens) => Draw::Slab(tokens),
            Err(denied) => Draw::Denied {
                retry_at: denied.retry_at(),
            },
        }
    }

    /// Returns unspent tokens of a slab.
    pub fn give_back(&mut self, now: Instant, policy: &Policy, tokens: Tokens) {
        self.settle_bucket(now, policy);
        self.bucket.give_back(now, tokens);
    }

    /// Counts `attempts` made until `now`. True if they changed what is wanted so much that
    /// [`Holder::due`] moved forward.
    pub fn count(&mut self, now: Instant, attempts: u64) -> bool {
        if attempts > 0 {
            // A window that has been open all through a pause would hide who returns.
            let pause = now.saturating_since(self.last_attempt);
            if self.phase == Phase::Idle && pause >= RETURN_AFTER {
                self.demand = Demand::new(now);
            }
            self.last_attempt = now.max(self.last_attempt);
        }
        self.demand.count(now, attempts);
        let waiting = self.phase == Phase::Idle || self.asked_at.is_some() || self.failures > 0;
        if waiting || !differs(self.reported, self.demand.wants()) {
            return false;
        }
        let earliest = Instant::from_nanos(self.sequence)
            .saturating_add(MIN_INTERVAL)
            .max(now);
        let sooner = self.due.is_none_or(|due| earliest < due);
        if sooner {
            self.due = Some(earliest);
        }
        sooner
    }

    /// When [`Holder::ask`] has something to say; none while idle.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What there is to say now. Whoever gets an answer other than [`Todo::Nothing`] must say it:
    /// nobody else will.
    pub fn ask(&mut self, now: Instant, policy: &Policy) -> Todo {
        if self.due.is_none_or(|due| due > now) {
            return Todo::Nothing;
        }
        self.demand.count(now, 0);
        self.settle_bucket(now, policy);
        self.sequence = self.sequence.saturating_add(1).max(now.as_nanos());
        let wants = self.wants_at(now, policy);
        if wants == Capacity::ZERO {
            return self.release();
        }
        self.asked_at = Some(now);
        self.due = Some(now.saturating_add(policy.call_timeout));
        self.reported = wants;
        Todo::Refresh(Ask {
            remaining: self.lease.map(|lease| lease.expiry.saturating_since(now)),
            basis: self.lease.map_or(0, |lease| lease.basis),
            ..Ask::new(self.sequence, self.has(now), wants)
        })
    }

    /// Applies the answer to the request of `sequence`. False if it was dropped: it is not the
    /// answer to the latest request, or comes from a master of an earlier term.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        policy: &Policy,
        sequence: u64,
        epoch: Epoch,
        answer: &Answer,
    ) -> bool {
        if epoch < self.epoch {
            self.handle_failure(now, sequence, sequence);
            return false;
        }
        let Some(sent_at) = self.asked_at.filter(|_| sequence == self.sequence) else {
            return false;
        };
        self.settle_bucket(now, policy);
        self.asked_at = None;
        self.failures = 0;
        self.phase = Phase::Awake;
        self.epoch = epoch;
        self.safe = answer.safe;
        self.capacity = Some(answer.capacity);
        self.due = Some(now.saturating_add(answer.refresh_interval.max(INTERVAL_FLOOR)));
        self.lease = answer
            .lease
            .map(|terms| Lease {
                capacity: terms.capacity,
                burst: terms.burst,
                expiry: sent_at.saturating_add(terms.duration),
                basis: terms.basis,
            })
            .filter(|lease| lease.expiry > now);
        self.settle_bucket(now, policy);
        self.fresh &= self.lease.is_none();
        if self.demand.wants() == Capacity::ZERO
            && let Some(full_at) = self.refills_until(now)
        {
            self.due = self.due.min(Some(full_at));
        }
        true
    }

    /// Notes that the request of `sequence` failed; the next one waits longer. `seed` spreads
    /// clients that fail together.
    pub fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) {
        if sequence != self.sequence || self.asked_at.take().is_none() {
            return;
        }
        self.phase = Phase::Awake;
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now.saturating_add(backoff(self.failures, seed)));
    }

    /// Where the holder stands at `now`.
    pub fn state(&self, now: Instant) -> State {
        match self.phase {
            Phase::Idle => State::Idle,
            Phase::Cold { until } if now < until => State::Cold,
            _ if self.valid_lease(now).is_some() => State::Leased,
            _ => State::NoLease,
        }
    }

    /// What passes at `now`: rate and burst.
    pub fn flow(&self, now: Instant, policy: &Policy) -> (Rate, Tokens) {
        if let Some(lease) = self.valid_lease(now) {
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
        let safe = self.safe.unwrap_or(policy.safe);
        let rate = match policy.mode {
            Mode::Safe => safe,
            Mode::Optimistic => safe.max(self.demand.wants()),
            Mode::Pessimistic => Capacity::ZERO,
        }
        .as_rate();
        (rate, second_of(rate))
    }

    /// What the client wants at `now`: what is attempted, or, when attempts have ended, what it
    /// last wanted until its bucket is full again. What a bucket earns is part of the capacity as
    /// much as what is spent of it: earned beside the leases it would come on top.
    fn wants_at(&self, now: Instant, policy: &Policy) -> Capacity {
        let silence = now.saturating_since(self.last_attempt);
        let wants = self.demand.wants();
        if wants > Capacity::ZERO && silence < policy.idle_after {
            return wants;
        }
        if self.refills_until(now).is_some() && silence < ABANDONED_AFTER {
            return self.reported;
        }
        Capacity::ZERO
    }

    /// When the bucket of a leased holder is full again; none if it is, or never will be.
    fn refills_until(&self, now: Instant) -> Option<Instant> {
        self.valid_lease(now)?;
        let missing = self.bucket.time_until(now, self.bucket.burst())?;
        (!missing.is_zero()).then(|| now.saturating_add(missing))
    }

    /// What the client holds at `now`; the largest number for a lease without a limit.
    pub fn has(&self, now: Instant) -> Capacity {
        let lease = self.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| lease.capacity.min(Capacity::MAX))
    }

    /// What the client wants; nothing while idle.
    pub fn wants(&self) -> Capacity {
        match self.phase {
            Phase::Idle => Capacity::ZERO,
            _ => self.demand.wants(),
        }
    }

    /// The capacity of the whole resource, as the coordinator last said.
    pub fn capacity(&self) -> Option<Capacity> {
        self.capacity
    }

    /// When the lease ends, or ended, if there is one.
    pub fn lease_expiry(&self) -> Option<Instant> {
        self.lease.map(|lease| lease.expiry)
    }

    /// Whether nothing would be lost with this holder: it is idle or abandoned, holds no lease,
    /// and its bucket is as full as that of a new one.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let abandoned = now.saturating_since(self.last_attempt) >= ABANDONED_AFTER;
        let burst = micros(self.bucket.burst());
        (self.phase == Phase::Idle || abandoned)
            && self.valid_lease(now).is_none()
            && (self.bucket.rate().is_unlimited() || self.bucket.balance(now) >= burst)
    }

    fn valid_lease(&self, now: Instant) -> Option<Lease> {
        self.lease.filter(|lease| lease.expiry > now)
    }

    /// Wakes an idle holder, and ends the wait of one that has waited long enough.
    fn rouse(&mut self, now: Instant, policy: &Policy) {
        match self.phase {
            Phase::Idle => self.wake(now, policy),
            Phase::Cold { until } if now >= until => self.phase = Phase::Awake,
            Phase::Cold { .. } | Phase::Awake => {}
        }
    }

    fn wake(&mut self, now: Instant, policy: &Policy) {
        self.phase = match policy.cold_start_wait {
            Duration::ZERO => Phase::Awake,
            wait => Phase::Cold {
                until: now.saturating_add(wait),
            },
        };
        self.due = Some(now);
        self.failures = 0;
    }

    fn release(&mut self) -> Todo {
        self.phase = Phase::Idle;
        self.due = None;
        self.asked_at = None;
        self.reported = Capacity::ZERO;
        let known = self.capacity.is_some();
        self.lease = None;
        if known {
            Todo::Release {
                sequence: self.sequence,
            }
        } else {
            Todo::Nothing
        }
    }

    /// Brings the bucket to what passes now; a lease that has expired counts until its expiry. The
    /// bucket of an idle or cold holder stays as it was when its lease was released, which is full:
    /// if it were cut to the safe capacity until the answer, who returns would have no burst.
    fn settle_bucket(&mut self, now: Instant, policy: &Policy) {
        if let Some(lease) = self.lease.filter(|lease| lease.expiry <= now) {
            self.lease = None;
            self.set_flow(lease.expiry, policy);
        }
        if self.phase == Phase::Awake {
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
        self.bucket = TokenBucket::from_parts(Parts { balance, ..parts });
    }

    fn slab(&self, workers: u32) -> Tokens {
        let rate = self.bucket.rate();
        if rate.is_unlimited() {
            return UNLIMITED_SLAB;
        }
        let parts = u64::from(workers).saturating_mul(4).max(1);
        let most = self.bucket.burst().whole().checked_div(parts).unwrap_or(0);
        Tokens::from_whole(rate.tokens_in(SLAB_TIME).whole().min(most))
    }
}

// === free functions ===

/// Whether wants have changed enough to tell before the next regular refresh: by a tenth
/// (PIP-82) and by two standard deviations of one second's arrivals, or to or from zero.
fn differs(reported: Capacity, wants: Capacity) -> bool {
    let (old, new) = (reported.as_micros(), wants.as_micros());
    let noise = old.saturating_mul(MICRO).isqrt().saturating_mul(2);
    old.abs_diff(new) > noise.max(old / 10) || (old == 0) != (new == 0)
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
