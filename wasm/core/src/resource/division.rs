//! How one resource's capacity is divided: the decisions behind [`Resource`](super::Resource).

use core::num::NonZeroU32;
use core::time::Duration;

mod basis;
mod entry;
mod grant;

pub(super) use self::entry::Entry;
use self::entry::{Loan, Rank};
use super::RefreshError;
use crate::lease::{Answer, Ask, LeaseTerms, NO_BASIS, ResourceId, Unit};
use crate::limit::{Algorithm, Limit, Safe};
use crate::pool::{Needs, Pool, Seat};
use crate::share::{Bands, Quantum};
use crate::units::{Capacity, Instant, Tokens};

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

    fn divided(&self) -> Capacity {
        self.limit.divided(self.shares.quantum())
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
