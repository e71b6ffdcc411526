//! How one resource's capacity is divided: the decisions behind [`Resource`](super::Resource).

use core::num::NonZeroU32;
use core::time::Duration;

mod entry;

pub(super) use self::entry::Entry;
use self::entry::{Loan, Rank};
use super::RefreshError;
use crate::lease::{Answer, Ask, LeaseTerms, NO_BASIS, ResourceId, Unit};
use crate::limit::{Algorithm, Limit, Safe};
use crate::pool::{Needs, Pool, Seat};
use crate::share::{Bands, Quantum};
use crate::units::{Capacity, Instant, Tokens};

/// The least basis that says something, and the bit that tells a pool's from a capacity.
const CERTAIN: u64 = 2;
const POOLED: u64 = 1 << 63;

/// A limit, what is wanted of it and what is lent of it.
///
/// Where it says `pool`, it is the one that the resource is a member of, if any.
#[derive(Debug)]
pub(super) struct Division {
    unit: Unit,
    limit: Limit,
    learning_until: Instant,
    shares: Bands<Rank>,
    /// Σ [`Entry::has`] over all entries, in micro-units.
    sum_has: u128,
    seat: Option<Seat>,
}

/// What a client gets, and when it should ask again.
#[derive(Clone, Copy, Debug)]
struct Grant {
    loan: Loan,
    basis: u64,
    refresh_interval: Duration,
}

/// What others leave of a capacity.
#[derive(Clone, Copy, Debug)]
struct Free {
    /// For a client to keep what it has, and for one that has nothing.
    keep: Capacity,
    /// For a client to get more: without the reserve.
    grow: Capacity,
}

/// The times that count: of a limit and its pool's the shorter.
#[derive(Clone, Copy, Debug)]
struct Times {
    lease: Duration,
    refresh: Duration,
    min_refresh: Duration,
}

// === impl Division ===

impl Division {
    pub(super) fn new(unit: Unit, limit: Limit, learning_until: Instant) -> Self {
        Self {
            unit,
            limit,
            learning_until,
            shares: Bands::new(Quantum::of(unit)),
            sum_has: 0,
            seat: None,
        }
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(super) fn learning_until(&self) -> Instant {
        self.learning_until
    }

    pub(super) fn sum_has(&self) -> u128 {
        self.sum_has
    }

    pub(super) fn sum_wants(&self) -> u128 {
        self.shares.sum_wants()
    }

    pub(super) fn subclients(&self) -> u64 {
        self.shares.subclients()
    }

    pub(super) fn set_limit(&mut self, limit: &Limit) {
        if self.limit != *limit {
            self.limit = limit.clone();
        }
    }

    /// Learns until then at least.
    pub(super) fn learn_until(&mut self, until: Instant) {
        self.learning_until = self.learning_until.max(until);
    }

    /// Becomes a member of `pool`, or one of another weight.
    pub(super) fn join(&mut self, id: &ResourceId, pool: &mut Pool, weight: NonZeroU32) {
        match &mut self.seat {
            Some(seat) => seat.set_weight(weight),
            None => {
                self.seat = Some(pool.join(id, weight));
                self.report(Some(pool));
            }
        }
    }

    /// Is no longer a member of `pool`.
    pub(super) fn leave(&mut self, pool: &mut Pool) {
        if let Some(seat) = self.seat.take() {
            pool.leave(seat);
        }
    }

    /// Tells the pool what has become of the sums.
    pub(super) fn report(&mut self, pool: Option<&mut Pool>) {
        let Some((pool, seat)) = pool.zip(self.seat.as_mut()) else {
            return;
        };
        let quantum = self.shares.quantum();
        let wants = u64::try_from(self.shares.sum_wants()).unwrap_or(u64::MAX);
        let needs = Needs {
            wants: Capacity::from_micros(wants).min(self.limit.divided(quantum)),
            has: self.sum_has,
            subclients: self.shares.subclients(),
        };
        pool.tell(seat, needs);
    }

    /// A line for a client that the books do not know. What it claims to have counts in learning
    /// mode only: outside of it every lease is in the books, so the claim is void.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        rank: Rank,
        ask: &Ask,
        pool: Option<&Pool>,
    ) -> Entry {
        let lease = self.times(pool).lease;
        let mut granted = Loan {
            capacity: Capacity::ZERO,
            expiry: now.saturating_add(lease),
        };
        if now < self.learning_until && ask.has > Capacity::ZERO {
            let free = self.free(Capacity::ZERO, pool).keep;
            granted.capacity = self.shares.quantum().floor(ask.has.min(free));
            // No lease of an earlier run is longer than the time to learn.
            let longest = lease.max(self.limit.learning);
            let remaining = ask.remaining.map_or(lease, |left| left.min(longest));
            granted.expiry = now.saturating_add(remaining);
        }
        self.replace_sum(Capacity::ZERO, granted.capacity);
        Entry {
            place: self.shares.insert(rank, &ask.demand, each(&self.limit)),
            sequence: ask.sequence,
            granted,
            granted_at: now,
            basis: NO_BASIS,
            prior: None,
            queued_at: granted.expiry,
        }
    }

    /// Answers a client that the books know.
    pub(super) fn refresh(
        &mut self,
        now: Instant,
        rank: Rank,
        entry: &mut Entry,
        ask: &Ask,
        pool: Option<&mut Pool>,
    ) -> Result<Answer, RefreshError> {
        if ask.sequence < entry.sequence {
            return Err(RefreshError::Stale {
                asked: ask.sequence,
                seen: entry.sequence,
            });
        }
        if ask.sequence == entry.sequence {
            // A transport sent it twice. The first answer may be in use already, so what the
            // request says of `has` is no longer news.
            return Ok(self.repeat(now, entry, pool.as_deref()));
        }
        self.acknowledge(rank, entry, ask);
        // While learning, the lease in the books may rest on a request that was sent to the master
        // before and arrived late; others may have what it claimed. Only what the client says now
        // may be confirmed, however early it asks.
        let min_refresh = self.times(pool.as_deref()).min_refresh;
        let early = now < entry.granted_at.saturating_add(min_refresh);
        if early && now >= self.learning_until {
            return Ok(self.repeat(now, entry, pool.as_deref()));
        }
        Ok(self.settle(now, entry, ask, pool))
    }

    /// Decides what the client gets now.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        entry: &mut Entry,
        ask: &Ask,
        mut pool: Option<&mut Pool>,
    ) -> Answer {
        // The pool divides by what is wanted now.
        self.report(pool.as_deref_mut());
        let pool = pool.as_deref();
        let before = entry.has();
        let used = entry.used(ask.has);
        let grant = self.grant(now, entry, used, ask.basis, pool);
        entry.granted = grant.loan;
        entry.granted_at = now;
        entry.basis = grant.basis;
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
        self.answer(now, entry, grant.refresh_interval, pool)
    }

    /// Drops what of `entry` has expired.
    pub(super) fn expire(&mut self, now: Instant, entry: &mut Entry) {
        let before = entry.has();
        entry.prior = entry.prior.filter(|prior| prior.expiry > now);
        if entry.granted.expiry <= now {
            // After the lease was shortened the larger loan may outlive the smaller one. What is
            // left must expire later than now, or the queue would look at it for ever.
            entry.granted = Loan {
                capacity: Capacity::ZERO,
                expiry: entry.last_expiry(),
            };
        }
        self.replace_sum(before, entry.has());
    }

    pub(super) fn forget(&mut self, entry: Entry) {
        self.replace_sum(entry.has(), Capacity::ZERO);
        self.shares.remove(entry.place);
    }

    /// What a client falls back to, if it is for the coordinator to say.
    pub(super) fn safe(&self, pool: Option<&Pool>) -> Option<Capacity> {
        let capacity = self.limit.capacity;
        let safe = match self.limit.safe {
            Safe::Fixed(safe) => Some(safe),
            Safe::Dynamic if self.limit.algorithm == Algorithm::Static => Some(capacity),
            Safe::Dynamic if !capacity.is_unlimited() => {
                Some(capacity.divided_by(self.shares.subclients()))
            }
            Safe::Dynamic | Safe::Client => pool.and_then(Pool::safe),
        };
        safe.map(|safe| self.shares.quantum().floor(safe.min(self.capacity(pool))))
    }

    /// Takes the news of a request: what the client wants, and that it uses no more than it has.
    /// What the last answer granted stays reserved until a new grant replaces it.
    fn acknowledge(&mut self, rank: Rank, entry: &mut Entry, ask: &Ask) {
        entry.sequence = ask.sequence;
        let each = each(&self.limit);
        self.shares
            .update(rank, &mut entry.place, &ask.demand, each);
        let before = entry.has();
        let used = entry.used(ask.has);
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
    }

    /// The current lease again, with what is left of its time.
    fn repeat(&self, now: Instant, entry: &Entry, pool: Option<&Pool>) -> Answer {
        let next = entry
            .granted_at
            .saturating_add(self.times(pool).min_refresh);
        let refresh_interval = next.saturating_since(now).max(Duration::from_millis(1));
        self.answer(now, entry, refresh_interval, pool)
    }

    fn grant(
        &self,
        now: Instant,
        entry: &Entry,
        used: Loan,
        basis: u64,
        pool: Option<&Pool>,
    ) -> Grant {
        let times = self.times(pool);
        let expiry = now.saturating_add(times.lease);
        if self.limit.capacity.is_unlimited() && pool.is_none() {
            let capacity = Capacity::UNLIMITED;
            return Grant {
                loan: Loan { capacity, expiry },
                basis: NO_BASIS,
                refresh_interval: times.refresh,
            };
        }
        let free = self.free(entry.has(), pool);
        if now < self.learning_until {
            return self.confirm(now, entry, used, basis, free, pool);
        }
        let entitled = self.entitled(entry, pool);
        let wanted = entitled.saturating_add(self.headroom(entry, pool));
        // Who has nothing is let into the reserve; the others keep what they have of their share.
        let sure = if entry.has() == Capacity::ZERO {
            entitled
        } else {
            entitled.min(used.capacity)
        };
        let gets = wanted.min(free.grow).max(sure.min(free.keep));
        let kept = Loan {
            capacity: entitled.min(used.capacity),
            expiry: used.expiry.min(expiry),
        };
        if kept.capacity > gets && kept.expiry > now.saturating_add(times.refresh) {
            // The capacity was lowered, and others have not given back yet. Nobody need fall below
            // its share for that: it keeps what it has of it, but only until that expires anyway.
            return Grant {
                loan: kept,
                basis: NO_BASIS,
                refresh_interval: times.min_refresh,
            };
        }
        let settled = suffices(gets, entitled) && suffices(gets, used.capacity);
        Grant {
            loan: Loan {
                capacity: gets,
                expiry,
            },
            basis: self.basis(pool),
            refresh_interval: if settled {
                times.refresh
            } else {
                times.min_refresh
            },
        }
    }

    /// In learning mode: what the client has, as far as it still wants it. The rest may be lent to
    /// others who have not said so yet.
    ///
    /// A claim that was lent under other limits than today's may be part of more than there is, and
    /// is not prolonged: so the excess ends when it would have ended without a restart. The others
    /// sum to at most the capacity, as many times as they are confirmed: the latest of them
    /// was granted from what all others left (see `docs/design.md`, "Learning mode").
    fn confirm(
        &self,
        now: Instant,
        entry: &Entry,
        used: Loan,
        basis: u64,
        free: Free,
        pool: Option<&Pool>,
    ) -> Grant {
        let times = self.times(pool);
        let gets = used.capacity.min(entry.wants()).min(free.keep);
        let mut expiry = now.saturating_add(times.lease);
        if gets > Capacity::ZERO && !self.certifies(basis, pool) {
            expiry = expiry.min(used.expiry);
        }
        let left = self.learning_until.saturating_since(now);
        let settled =
            suffices(gets, used.capacity.min(entry.wants())) && suffices(gets, used.capacity);
        Grant {
            loan: Loan {
                capacity: gets,
                expiry,
            },
            basis: if basis == 0 { NO_BASIS } else { basis },
            refresh_interval: if settled {
                times.refresh.min(left).max(times.min_refresh)
            } else {
                times.min_refresh
            },
        }
    }

    /// What the client may have of what is divided, as far as it wants it.
    fn entitled(&self, entry: &Entry, pool: Option<&Pool>) -> Capacity {
        let Limit {
            algorithm,
            guaranteed,
            ..
        } = &self.limit;
        let mut capacity = self.divided();
        if let Some((pool, seat)) = pool.zip(self.seat.as_ref()) {
            capacity = capacity.min(pool.allotted(seat));
        }
        self.shares
            .share(&entry.place, capacity, *algorithm, guaranteed)
    }

    /// This client's part of what nobody wants.
    fn headroom(&self, entry: &Entry, pool: Option<&Pool>) -> Capacity {
        if !self.limit.algorithm.shares() {
            return Capacity::ZERO;
        }
        let left = self.divided().left_of(self.sum_wants());
        // Without a limit of its own all the pool's spare is spread.
        let mut spare = if left.is_unlimited() {
            left
        } else {
            self.limit.headroom.of(left)
        };
        if let Some((pool, seat)) = pool.zip(self.seat.as_ref()) {
            spare = spare.min(pool.spare(seat));
        }
        self.shares.spare(&entry.place, spare)
    }

    fn divided(&self) -> Capacity {
        self.limit.divided(self.shares.quantum())
    }

    /// What all leave, here and in the pool, but for the `held` of one client.
    fn free(&self, held: Capacity, pool: Option<&Pool>) -> Free {
        let held = u128::from(held.as_micros());
        let bound = if self.limit.algorithm.shares() {
            self.limit.capacity
        } else {
            Capacity::UNLIMITED
        };
        let mut free = Free::of(bound, self.divided(), self.sum_has, held);
        if let Some(pool) = pool {
            let theirs = Free::of(pool.limit().capacity, pool.divided(), pool.sum_has(), held);
            free.keep = free.keep.min(theirs.keep);
            free.grow = free.grow.min(theirs.grow);
        }
        let quantum = self.shares.quantum();
        Free {
            keep: quantum.floor(free.keep),
            grow: quantum.floor(free.grow),
        }
    }

    /// What a lease rests on that is lent now. With it the client proves later that all leases
    /// together were within the limits of that time.
    fn basis(&self, pool: Option<&Pool>) -> u64 {
        let capacity = self.limit.capacity.as_micros();
        match pool {
            None if self.limit.algorithm.shares() => capacity.saturating_add(CERTAIN),
            None => NO_BASIS,
            Some(pool) => {
                let own = capacity.wrapping_add(self.limit.algorithm as u64);
                own.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ pool.basis() | POOLED
            }
        }
    }

    /// Whether all leases of `basis` together are within the limits of today.
    fn certifies(&self, basis: u64, pool: Option<&Pool>) -> bool {
        match pool {
            // Not said, as by Doorman's clients: then it is prolonged.
            _ if basis == 0 => true,
            // Nothing bounds the sum.
            None if !self.limit.algorithm.shares() => true,
            None => (CERTAIN..=self.basis(None)).contains(&basis),
            Some(_) => basis == self.basis(pool),
        }
    }

    fn times(&self, pool: Option<&Pool>) -> Times {
        let own = Times::of(&self.limit);
        let Some(pool) = pool else {
            return own;
        };
        let theirs = Times::of(pool.limit());
        Times {
            lease: own.lease.min(theirs.lease),
            refresh: own.refresh.min(theirs.refresh),
            min_refresh: own.min_refresh.min(theirs.min_refresh),
        }
    }

    /// What the fleet may use of this resource, were it alone in its pool.
    fn capacity(&self, pool: Option<&Pool>) -> Capacity {
        let own = self.limit.capacity;
        pool.map_or(own, |pool| own.min(pool.limit().capacity))
    }

    fn answer(
        &self,
        now: Instant,
        entry: &Entry,
        refresh_interval: Duration,
        pool: Option<&Pool>,
    ) -> Answer {
        let Loan { capacity, expiry } = entry.granted;
        let duration = expiry.saturating_since(now);
        // In learning mode zero does not mean "nothing for you" but "not known yet".
        let known = capacity > Capacity::ZERO || now >= self.learning_until;
        Answer {
            lease: (known && !duration.is_zero()).then(|| LeaseTerms {
                capacity,
                burst: self.burst(capacity, pool),
                duration,
                basis: entry.basis,
            }),
            refresh_interval,
            safe: self.safe(pool),
            capacity: self.capacity(pool),
        }
    }

    /// The part of the burst that goes with `gets`. A gauge has none beyond it.
    fn burst(&self, gets: Capacity, pool: Option<&Pool>) -> Tokens {
        if self.unit.is_gauge() {
            return Tokens::from_micros(gets.as_micros());
        }
        let own = self.limit.burst_for(gets);
        match pool.map(|pool| pool.limit().burst_for(gets)) {
            Some(theirs) if self.limit.capacity.is_unlimited() => theirs,
            Some(theirs) => own.min(theirs),
            None => own,
        }
    }

    fn replace_sum(&mut self, before: Capacity, after: Capacity) {
        let rest = self.sum_has.saturating_sub(before.as_micros().into());
        self.sum_has = rest.saturating_add(after.as_micros().into());
    }
}

// === impl Free ===

impl Free {
    /// What is left of `capacity`, of which `divided` is without the reserve, if `lent` is lent, of
    /// which `held` is the client's own.
    fn of(capacity: Capacity, divided: Capacity, lent: u128, held: u128) -> Self {
        let others = lent.saturating_sub(held);
        Self {
            keep: capacity.left_of(others),
            grow: divided.left_of(others),
        }
    }
}

// === impl Times ===

impl Times {
    fn of(limit: &Limit) -> Self {
        Self {
            lease: limit.lease,
            refresh: limit.refresh,
            min_refresh: limit.min_refresh,
        }
    }
}

// === free functions ===

/// What each client may have at most, whatever others do.
fn each(limit: &Limit) -> Capacity {
    match limit.algorithm {
        Algorithm::Static => limit.capacity,
        Algorithm::None | Algorithm::ProportionalShare | Algorithm::FairShare => {
            Capacity::UNLIMITED
        }
    }
}

/// Whether a client that gets `gets` may come back at leisure although `aim` would be right.
///
/// Whoever waits for others to give back, or has to confirm that it gave back, should ask again
/// soon, so that a shift of demand is settled within about one short refresh. But one client whose
/// demand sways moves the shares of all the others a little, and for a hundredth of them they need
/// not all hurry at once.
fn suffices(gets: Capacity, aim: Capacity) -> bool {
    gets.as_micros() >= aim.as_micros().saturating_sub(aim.as_micros() / 100)
}
