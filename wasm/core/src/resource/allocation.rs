//! How one resource's capacity is divided: the decisions behind [`Resource`](super::Resource).

use core::num::NonZeroU32;
use core::time::Duration;

mod client_entry;
mod fingerprint;
mod grant;
mod learning;
mod restore;

use self::client_entry::CountedLease;
pub(super) use self::client_entry::{ClientEntry, TieBreak};
use super::RefreshError;
use crate::lease::{
    Answer, Demand, Epoch, LeaseRequest, LeaseTerms, NO_FINGERPRINT, ResourceId, Unit,
};
use crate::limit::{Algorithm, Limit, SafeCapacity};
use crate::pool::{Pool, PoolMembership, ResourceTotals};
use crate::share::{PriorityBands, Quantum};
use crate::tree::{LendableCapacity, LendableSource};
use crate::units::{Capacity, Instant, Tokens};

/// A limit, what is wanted of it and what is lent of it.
///
/// Where it says `pool`, it is the one that the resource is a member of, if any.
#[derive(Debug)]
pub(super) struct Allocation {
    unit: Unit,
    limit: Limit,
    learning_until: Instant,
    /// When nothing of an earlier run is in use any more. Before that a claim may be kept without being
    /// counted, because nothing is lent meanwhile.
    collect_until: Instant,
    /// While learning: more was claimed lately than there is.
    crowded_until: Instant,
    shares: PriorityBands<TieBreak>,
    /// Σ [`ClientEntry::has`] over all entries, in micro-units.
    sum_has: u128,
    membership: Option<PoolMembership>,
    /// What of the limit there is to lend, if that is borrowed.
    lendable: Option<LendableCapacity>,
}

/// The times that count: of a limit and its pool's the shorter, and what is borrowed.
#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    lease: Duration,
    refresh: Duration,
    min_refresh: Duration,
}

/// The shortest refresh interval of a lease that ends soon with what is borrowed.
const REFRESH_FLOOR: Duration = Duration::from_millis(10);

/// How many refresh intervals the lease of nothing lasts that a client gets while it waits for its
/// part.
const WAITING_REFRESHES: u32 = 2;

/// And how many minimum intervals, at which it is told to ask again: so many that it sees that the
/// next answer will differ.
const WAITING_ASKS: u32 = 20;

/// After how many refresh intervals a lease of safe capacity ends.
const SAFE_REFRESHES: u32 = 4;

// === impl Allocation ===

impl Allocation {
    pub(super) fn new(unit: Unit, limit: Limit, learning_until: Instant) -> Self {
        Self {
            unit,
            limit,
            learning_until,
            collect_until: learning_until,
            crowded_until: Instant::ZERO,
            shares: PriorityBands::new(Quantum::of(unit)),
            sum_has: 0,
            membership: None,
            lendable: None,
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

    /// Lends no more than `bound` from now on.
    pub(super) fn set_lendable(&mut self, lendable: Option<LendableCapacity>) {
        self.lendable = lendable;
    }

    /// Collects claims no longer than `until`, when the whole coordinator has learned: after that the
    /// capacity of a claim that does not count would be lent.
    pub(super) fn collect_until(&mut self, until: Instant) {
        self.collect_until = until;
    }

    /// Learns until then at least.
    pub(super) fn learn_until(&mut self, until: Instant) {
        self.learning_until = self.learning_until.max(until);
    }

    /// Becomes a member of `pool`, or one of another weight.
    pub(super) fn join(&mut self, id: &ResourceId, pool: &mut Pool, weight: NonZeroU32) {
        match &mut self.membership {
            Some(membership) => membership.set_weight(weight),
            None => {
                self.membership = Some(pool.join(id, weight));
                self.report(Some(pool));
            }
        }
    }

    /// How much it counts in its pool, if it is a member of one.
    pub(super) fn weight(&self) -> Option<NonZeroU32> {
        self.membership.as_ref().map(PoolMembership::weight)
    }

    /// Is no longer a member of `pool`.
    pub(super) fn leave(&mut self, pool: &mut Pool) {
        if let Some(membership) = self.membership.take() {
            pool.leave(membership);
        }
    }

    /// Tells the pool what has become of the sums.
    pub(super) fn report(&mut self, pool: Option<&mut Pool>) {
        let divided = self.divided();
        let Some((pool, membership)) = pool.zip(self.membership.as_mut()) else {
            return;
        };
        let wants = u64::try_from(self.shares.sum_wants()).unwrap_or(u64::MAX);
        let totals = ResourceTotals {
            wants: Capacity::from_micros(wants).min(divided),
            has: self.sum_has,
            subclients: self.shares.subclients(),
        };
        pool.tell(membership, totals);
    }

    /// What the clients want of a parent, were everything borrowed.
    pub(super) fn totals(&self, pool: Option<&Pool>) -> ResourceTotals {
        let wants = u64::try_from(self.shares.sum_wants()).unwrap_or(u64::MAX);
        ResourceTotals {
            wants: Capacity::from_micros(wants).min(self.most(pool)),
            has: self.sum_has,
            subclients: self.shares.active(),
        }
    }

    /// The same by priority.
    pub(super) fn demand(&self, pool: Option<&Pool>) -> Demand {
        self.shares.demand(self.most(pool), &self.limit.guaranteed)
    }

    /// The most that could be lent, were everything borrowed.
    fn most(&self, pool: Option<&Pool>) -> Capacity {
        let own = if self.limit.algorithm.shares() {
            self.limit.capacity
        } else {
            Capacity::UNLIMITED
        };
        let most = pool.map_or(own, |pool| own.min(pool.limit().capacity));
        self.shares.quantum().floor(most)
    }

    /// A line for a client that the books do not know. What it claims to have counts in learning
    /// mode only: outside of it every lease is in the books, so the claim is void.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        request: &LeaseRequest,
        pool: Option<&Pool>,
    ) -> ClientEntry {
        let lease = self.times_alone(pool).lease;
        let mut granted = CountedLease {
            capacity: Capacity::ZERO,
            expiry: now.saturating_add(lease),
        };
        if now < self.learning_until && request.has > Capacity::ZERO {
            // Also beyond what is borrowed now, for it was lent out of what was borrowed then; but
            // never beyond what there is in all.
            let whole = self
                .lendable
                .map_or(Capacity::UNLIMITED, |lendable| lendable.whole);
            let free = self.free_of(whole, Capacity::ZERO, pool).keep;
            granted.capacity = self.shares.quantum().floor(request.has.min(free));
            granted.expiry = self.claim_counts_until(now, request, pool);
        }
        self.replace_sum(Capacity::ZERO, granted.capacity);
        ClientEntry {
            place: self
                .shares
                .insert(tie_break, &request.demand, each(&self.limit)),
            term,
            sequence: request.sequence,
            granted,
            granted_at: now,
            told: None,
            fingerprint: NO_FINGERPRINT,
            prior: None,
            queued_at: granted.expiry,
        }
    }

    /// Answers a client that the books know.
    pub(super) fn refresh(
        &mut self,
        now: Instant,
        (tie_break, term): (TieBreak, Epoch),
        entry: &mut ClientEntry,
        request: &LeaseRequest,
        pool: Option<&mut Pool>,
    ) -> Result<Answer, RefreshError> {
        entry.check_is_later(term, request.sequence)?;
        if (term, request.sequence) == (entry.term, entry.sequence) {
            // A transport sent it twice. The first answer may be in use already, so what the
            // request says of `has` is no longer news.
            return Ok(self.repeat(now, entry, pool.as_deref()));
        }
        entry.term = term;
        self.acknowledge(tie_break, entry, request);
        // While learning, the lease in the books may rest on a request that was sent to the master
        // before and arrived late; others may have what it claimed. Only what the client says now
        // may be confirmed, however early it asks. Of what is lent on, such a lease may last longer
        // than the time to learn, and nothing says that it is borrowed.
        let min_refresh = self.times(now, pool.as_deref()).min_refresh;
        let early = now < entry.granted_at.saturating_add(min_refresh);
        let learned = now >= self.learning_until && !self.is_pending();
        if early && learned {
            return Ok(self.repeat(now, entry, pool.as_deref()));
        }
        Ok(self.settle(now, entry, request, pool))
    }

    /// Decides what the client gets now.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
        mut pool: Option<&mut Pool>,
    ) -> Answer {
        // The pool divides by what is wanted now.
        self.report(pool.as_deref_mut());
        let before = entry.has();
        let used = entry.used_by(request);
        let grant = self.grant(now, entry, used, request, pool.as_deref());
        if let Some(until) = grant.crowded_until {
            self.crowded_until = until;
            if let Some(pool) = pool.as_deref_mut() {
                pool.set_crowded_until(until);
            }
        }
        let pool = pool.as_deref();
        entry.told = grant.told;
        entry.granted = grant.counted;
        entry.granted_at = now;
        entry.fingerprint = grant.fingerprint;
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
        let told = entry.told(now);
        self.answer(now, entry, told, grant.refresh_interval, pool)
    }

    /// Drops what of `entry` has expired.
    pub(super) fn expire(&mut self, now: Instant, entry: &mut ClientEntry) {
        let before = entry.has();
        entry.prior = entry.prior.filter(|prior| prior.expiry > now);
        if entry.granted.expiry <= now {
            // After the lease was shortened the larger loan may outlive the smaller one. What is
            // left must expire later than now, or the queue would look at it for ever.
            entry.granted = CountedLease {
                capacity: Capacity::ZERO,
                expiry: entry.last_expiry(),
            };
        }
        self.replace_sum(before, entry.has());
    }

    pub(super) fn forget(&mut self, entry: ClientEntry) {
        self.replace_sum(entry.has(), Capacity::ZERO);
        self.shares.remove(entry.place);
    }

    /// What a client falls back to, if it is for the coordinator to say.
    pub(super) fn safe(&self, pool: Option<&Pool>) -> Option<Capacity> {
        let capacity = self.limit.capacity;
        let parents = self.lendable.and_then(|lendable| lendable.safe);
        let safe = match self.limit.safe {
            _ if parents.is_some() => parents,
            SafeCapacity::Fixed(safe) => Some(safe),
            SafeCapacity::Dynamic if self.limit.algorithm == Algorithm::Static => Some(capacity),
            SafeCapacity::Dynamic if !capacity.is_unlimited() => {
                Some(capacity.divided_by(self.shares.subclients()))
            }
            SafeCapacity::Dynamic | SafeCapacity::Client => pool.and_then(Pool::safe),
        };
        safe.map(|safe| self.shares.quantum().floor(safe.min(self.capacity(pool))))
    }

    /// Takes the news of a request: what the client wants, and that it uses no more than it has.
    /// What the last answer granted stays reserved until a new grant replaces it.
    fn acknowledge(
        &mut self,
        tie_break: TieBreak,
        entry: &mut ClientEntry,
        request: &LeaseRequest,
    ) {
        entry.sequence = request.sequence;
        let each = each(&self.limit);
        self.shares
            .update(tie_break, &mut entry.place, &request.demand, each);
        let before = entry.has();
        let used = entry.used_by(request);
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
    }

    /// The lease of the latest answer again, with what is left of its time.
    fn repeat(&self, now: Instant, entry: &ClientEntry, pool: Option<&Pool>) -> Answer {
        let next = entry
            .granted_at
            .saturating_add(self.times(now, pool).min_refresh);
        let refresh_interval = next.saturating_since(now).max(Duration::from_millis(1));
        self.answer(now, entry, entry.told(now), refresh_interval, pool)
    }

    /// What there is to divide: without the reserve, and no more than is borrowed.
    fn divided(&self) -> Capacity {
        let quantum = self.shares.quantum();
        let lendable = self.lendable();
        self.limit.divided(quantum).min(quantum.floor(lendable))
    }

    /// What is borrowed; unlimited if that bounds nothing.
    pub(super) fn lendable(&self) -> Capacity {
        let subclients = self.shares.subclients();
        self.lendable.map_or(Capacity::UNLIMITED, |lendable| {
            lendable.lendable(subclients)
        })
    }

    /// The same, and the parent's whole capacity; none without a parent.
    pub(super) fn borrowed(&self) -> Option<(Capacity, Capacity)> {
        self.lendable
            .map(|lendable| (self.lendable(), lendable.whole))
    }

    /// The part that `pool` allots to it, if it is a member.
    pub(super) fn allotted(&self, pool: &Pool) -> Option<Capacity> {
        self.membership
            .as_ref()
            .map(|membership| pool.allotted(membership))
    }

    /// The times of the limits alone, whatever is borrowed.
    fn times_alone(&self, pool: Option<&Pool>) -> LeaseTimes {
        let own = LeaseTimes::of(&self.limit);
        pool.map_or(own, |pool| own.min(LeaseTimes::of(pool.limit())))
    }

    fn times(&self, now: Instant, pool: Option<&Pool>) -> LeaseTimes {
        let times = self.times_alone(pool);
        self.lendable
            .map_or(times, |lendable| times.under(lendable, now))
    }

    /// What the fleet may use of this resource, were it alone in its pool.
    fn capacity(&self, pool: Option<&Pool>) -> Capacity {
        let own = self.limit.capacity;
        let own = pool.map_or(own, |pool| own.min(pool.limit().capacity));
        self.lendable
            .map_or(own, |lendable| own.min(lendable.whole))
    }

    fn answer(
        &self,
        now: Instant,
        entry: &ClientEntry,
        told: CountedLease,
        refresh_interval: Duration,
        pool: Option<&Pool>,
    ) -> Answer {
        let CountedLease { capacity, expiry } = told;
        let mut duration = expiry.saturating_since(now);
        if capacity == Capacity::ZERO && self.entitled(entry, pool) > Capacity::ZERO {
            // Others have not given back yet what is its part. Should nobody answer when it asks
            // again, it must not be kept at nothing for a whole lease, but go on without one. The
            // books remember for as long as ever what it wants.
            let times = self.times(now, pool);
            let refreshes = times.refresh.saturating_mul(WAITING_REFRESHES);
            let asks = times.min_refresh.saturating_mul(WAITING_ASKS);
            duration = duration.min(refreshes.max(asks));
        }
        // In learning mode, and before the parent has answered, zero does not mean "nothing for you"
        // but "not known yet".
        let learned = now >= self.learning_until && !self.is_pending();
        let known = capacity > Capacity::ZERO || learned;
        Answer {
            lease: (known && !duration.is_zero()).then(|| LeaseTerms {
                capacity,
                burst: self.burst(capacity, pool),
                duration,
                fingerprint: entry.fingerprint,
            }),
            refresh_interval,
            safe: self.safe(pool),
            capacity: self.capacity(pool),
        }
    }

    /// The part of the burst that goes with `gets`, of the own one and of the borrowed one whichever
    /// is less. A gauge has none beyond it.
    fn burst(&self, gets: Capacity, pool: Option<&Pool>) -> Tokens {
        if self.unit.is_concurrency() {
            return Tokens::from_micros(gets.as_micros());
        }
        let own = self.limit.burst_for(gets);
        let burst = match pool.map(|pool| pool.limit().burst_for(gets)) {
            Some(theirs) if self.limit.capacity.is_unlimited() => theirs,
            Some(theirs) => own.min(theirs),
            None => own,
        };
        let borrowed = self.lendable.and_then(|lendable| lendable.burst_for(gets));
        borrowed.map_or(burst, |borrowed| burst.min(borrowed))
    }

    /// Whether the parent is away, and what is lent is safe capacity: no part of a sum.
    fn lends_safe(&self) -> bool {
        self.lendable
            .is_some_and(|lendable| matches!(lendable.source, LendableSource::Safe(_)))
    }

    /// Whether it is not known yet what there is to lend.
    fn is_pending(&self) -> bool {
        self.lendable
            .is_some_and(|lendable| lendable.source == LendableSource::Nothing)
    }

    fn replace_sum(&mut self, before: Capacity, after: Capacity) {
        let rest = self.sum_has.saturating_sub(before.as_micros().into());
        self.sum_has = rest.saturating_add(after.as_micros().into());
    }
}

// === impl LeaseTimes ===

impl LeaseTimes {
    fn of(limit: &Limit) -> Self {
        Self {
            lease: limit.lease,
            refresh: limit.refresh,
            min_refresh: limit.min_refresh,
        }
    }

    /// Of both the shorter.
    fn min(self, other: Self) -> Self {
        Self {
            lease: self.lease.min(other.lease),
            refresh: self.refresh.min(other.refresh),
            min_refresh: self.min_refresh.min(other.min_refresh),
        }
    }

    /// The refresh interval halves with each level, and no lease outlives what is borrowed.
    fn under(self, lendable: LendableCapacity, now: Instant) -> Self {
        let halved = self
            .refresh
            .as_nanos()
            .checked_shr(lendable.level)
            .unwrap_or(0);
        let halved = Duration::from_nanos(u64::try_from(halved).unwrap_or(u64::MAX));
        let lease = match lendable.source {
            LendableSource::Lease { until, .. } => self.lease.min(until.saturating_since(now)),
            // Not longer than it takes to find the parent again.
            LendableSource::Safe(_) => self.lease.min(halved.saturating_mul(SAFE_REFRESHES)),
            LendableSource::Own | LendableSource::Nothing => self.lease,
        };
        let half = lease.checked_div(2).unwrap_or(lease);
        let refresh = halved.min(half).max(REFRESH_FLOOR);
        Self {
            lease,
            refresh,
            min_refresh: self.min_refresh.min(refresh),
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
