//! How one resource's capacity is divided: the decisions behind [`Resource`](super::Resource).

mod answer;
mod borrowed;
mod by_usage;
mod client_entry;
mod draw;
mod fingerprint;
mod grant;
mod learning;
mod lease_tokens;
mod nudge;
mod presence;
mod refresh;
mod reports;
mod restore;
mod standby;
mod turns;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) use self::client_entry::{ClientEntry, TieBreak};
use self::client_entry::{CountedLease, EntryTotals};
use self::presence::Presence;
use super::RefreshError;
use crate::fleet::{
    DrawSums, DrawingBands, FleetLimit, FleetQuotas, QuotaChangeRequest, QuotaError, QuotaUsage,
};
use crate::lack::Lack;
use crate::lease::{Answer, Demand, Epoch, LeaseRequest, LeaseTerms, NO_FINGERPRINT, Unit};
use crate::lease_times::LeaseTimes;
use crate::lendable::{LendableCapacity, LendableSource};
use crate::limit::{Algorithm, Limit, SafeCapacity};
use crate::pool::{PoolView, ResourceTotals};
use crate::share::{PriorityBands, Quantum};
use crate::traffic::{Tally, Traffic};
use crate::units::{Capacity, Instant, RatePeriod, Tokens, WallClock};

/// Limit of a resource, with the sums of what is wanted of it and lent of it.
#[derive(Debug)]
pub(crate) struct Allocation {
    unit: Unit,
    pub(super) limit: Limit,
    pub(crate) learning_until: Instant,
    /// Start of the coordinator, from which it can have heard claims.
    pub(crate) collect_from: Instant,
    /// The time at which nothing of an earlier run is in use any more. Before that a claim may be
    /// kept without being counted, because nothing is lent meanwhile: after it the capacity of a
    /// claim that does not count would be lent.
    pub(crate) collect_until: Instant,
    /// The end of the time in which claims do not fit, while learning: until then no more than
    /// shares is confirmed.
    pub(crate) crowded_until: Instant,
    pub(super) shares: PriorityBands<TieBreak>,
    /// Σ [`ClientEntry::has`] over all entries, in micro-units.
    pub(super) sum_has: u128,
    /// Σ [`EntryTotals::usage`] over all entries, in micro-units.
    sum_usage: u128,
    /// Σ [`EntryTotals::gone`] over all entries, in micro-units.
    sum_gone: u128,
    /// Σ [`EntryTotals::draws`] over all entries.
    draws: DrawSums,
    /// Number of entries of silent clients.
    silent: u64,
    /// Time of the next round of max-rates, if these are the algorithm.
    pub(crate) balance_at: Instant,
    /// The pool that the resource is a member of, as it was at the last refresh.
    pool: Option<PoolView>,
    /// The part of the limit that can be lent, if that is borrowed.
    pub(crate) lendable: Option<LendableCapacity>,
    /// Capacity that a client waits for.
    lack: Lack,
    /// Whether something has happened after which other clients' leases may have to change.
    pub(crate) stirred: bool,
    /// Whether the lease table fills, so that leases of young clients are to be short.
    pub(crate) is_filling: bool,
    /// Its own limit, as clients draw of it.
    pub(crate) fleet: FleetLimit,
    /// Its bands, once clients of several draw.
    bands: Option<Box<DrawingBands>>,
    /// Tokens that are to go back to a parent.
    surplus: Tokens,
    /// Time until which borrowed tokens are kept without clients.
    deserted_until: Option<Instant>,
    /// Whether clients draw, of this limit or its pool's, instead of having leases.
    pub(in crate::resource) is_drawn: bool,
    /// All tokens that clients have drawn.
    pub(in crate::resource) drawn: Tokens,
    /// All tokens that clients that were cut off have earned before that was known.
    pub(crate) unearned: Tokens,
    /// Attempts and refusals of its clients.
    pub(in crate::resource) traffic: Traffic,
}

/// Demand that a parent is told without clients, until the bucket is full: with it a part of the limit stays here.
const WHILE_IT_FILLS: Demand = Demand::of(Capacity::from_micros(1));

// === impl Allocation ===

impl Allocation {
    pub(super) fn new(unit: Unit, limit: Limit, learning_until: Instant) -> Self {
        let mut fleet = FleetLimit::default();
        fleet.quotas = FleetQuotas::new(&limit.quotas);
        Self {
            unit,
            learning_until,
            collect_from: learning_until.saturating_sub(limit.learning),
            collect_until: learning_until,
            limit,
            crowded_until: Instant::ZERO,
            shares: PriorityBands::new(Quantum::of(unit)),
            sum_has: 0,
            sum_usage: 0,
            sum_gone: 0,
            draws: DrawSums::default(),
            silent: 0,
            balance_at: Instant::ZERO,
            pool: None,
            lendable: None,
            lack: Lack::default(),
            stirred: false,
            is_filling: false,
            fleet,
            bands: None,
            surplus: Tokens::ZERO,
            deserted_until: None,
            is_drawn: false,
            drawn: Tokens::ZERO,
            unearned: Tokens::ZERO,
            traffic: Traffic::default(),
        }
    }

    /// Takes `limit` in place of the one known so far.
    pub(crate) fn set_limit(&mut self, now: Instant, limit: &Limit) {
        if self.limit != *limit {
            if !self.is_borrowed() {
                self.fleet.set_burst(now, limit.burst);
            }
            self.fleet.quotas.set(&limit.quotas);
            self.limit = limit.clone();
            self.resize_bucket(now);
            self.stirred = true;
        }
    }

    /// Begins the windows of its quotas that are due by `clock`.
    pub(crate) fn advance_quotas(&mut self, now: Instant, clock: WallClock) {
        let held = self.draws.held();
        self.fleet.quotas.advance(now, clock, held);
    }

    /// The usage of its quotas.
    pub(crate) fn quota_usage(&self, now: Instant) -> Vec<QuotaUsage> {
        self.fleet.quotas.usage(now, self.draws.held())
    }

    /// Makes a change of one of its quotas.
    ///
    /// # Errors
    /// If it is unknown, or there is no room for a credit, or it is none.
    pub(crate) fn change_quota(
        &mut self,
        now: Instant,
        request: &QuotaChangeRequest,
    ) -> Result<(), QuotaError> {
        let tokens = (self.limit.burst, self.draws.held());
        self.fleet.change_quota(now, tokens, request)
    }

    /// Takes the part of the limit that can be lent, if that is borrowed.
    pub(crate) fn set_lendable(&mut self, now: Instant, lendable: Option<LendableCapacity>) {
        let before = self.lendable();
        self.fill(now);
        self.end_with_lease(now);
        self.lendable = lendable;
        self.resize_bucket(now);
        self.stirred |= self.lendable() != before;
    }

    /// Returns the sums that the resource's pool counts: its clients want no more of the pool than
    /// the resource could lend.
    pub(crate) fn pool_totals(&self) -> ResourceTotals {
        ResourceTotals {
            wants: self.wants_up_to(self.divided()),
            has: self.sum_has,
            subclients: self.shares.subclients(),
            draws: self.draws,
            unearned: self.unearned,
        }
    }

    /// Returns the sums that a parent is told. In a pool its capacity is `pool`, else unlimited.
    pub(crate) fn totals(&self, pool: Capacity) -> ResourceTotals {
        let wants = self.shares.sum_wants().saturating_add(self.sum_gone);
        ResourceTotals {
            wants: Capacity::from_sum(wants).min(self.most(pool)),
            has: self.lent().as_micros().into(),
            subclients: self.shares.active(),
            ..ResourceTotals::default()
        }
    }

    /// Returns the wants that a parent is told, by priority: also for what silent clients have, for
    /// that has to be borrowed until it ends.
    pub(crate) fn demand(&self, pool: Capacity) -> Demand {
        let most = self.most(pool);
        let demand = match self.shares.subclients() {
            0 if self.fleet.bucket.is_some() => WHILE_IT_FILLS,
            _ => self.shares.demand(most, &self.limit.guaranteed),
        };
        match self.sum_gone {
            0 => demand,
            gone => demand.with_more(Capacity::from_sum(gone), most),
        }
    }

    fn wants_up_to(&self, most: Capacity) -> Capacity {
        Capacity::from_sum(self.shares.sum_wants()).min(most)
    }

    /// The most that could be lent, were everything borrowed.
    fn most(&self, pool: Capacity) -> Capacity {
        self.shares
            .quantum()
            .floor(self.shared_capacity().min(pool))
    }

    /// Capacity that clients share; unlimited if each has its own.
    fn shared_capacity(&self) -> Capacity {
        if self.limit.algorithm.shares() {
            self.limit.capacity
        } else {
            Capacity::UNLIMITED
        }
    }

    /// Capacity that clients divide: without the reserve, and no more than is borrowed.
    fn divided(&self) -> Capacity {
        let quantum = self.shares.quantum();
        let lendable = self.lendable();
        self.limit.divided(quantum).min(quantum.floor(lendable))
    }

    /// Capacity that is borrowed; unlimited if that bounds nothing.
    pub(super) fn lendable(&self) -> Capacity {
        let subclients = self.shares.subclients();
        self.lendable.map_or(Capacity::UNLIMITED, |lendable| {
            lendable.lendable(subclients)
        })
    }

    /// Capacity that is borrowed, and the parent's whole capacity; none without a parent.
    pub(crate) fn borrowed(&self) -> Option<(Capacity, Capacity)> {
        self.lendable
            .map(|lendable| (self.lendable(), lendable.whole))
    }

    /// The times of the limits alone, whatever is borrowed.
    fn times_alone(&self) -> LeaseTimes {
        let own = LeaseTimes::of(&self.limit);
        self.pool.map_or(own, |pool| own.min(pool.times))
    }

    pub(super) fn times(&self, now: Instant) -> LeaseTimes {
        let times = self.times_alone();
        self.lendable
            .map_or(times, |lendable| times.under(lendable, now))
    }

    /// Capacity that the fleet may use of this resource, were it alone in its pool.
    fn capacity(&self) -> Capacity {
        self.capacity_alone().min(self.pool_capacity())
    }

    /// Period for which the limit was written that [`Self::capacity`] is of.
    fn period(&self) -> Option<RatePeriod> {
        let pool = self
            .pool
            .filter(|pool| pool.sums.capacity < self.capacity_alone());
        let parent = self
            .lendable
            .filter(|parent| parent.whole < self.limit.capacity);
        match (pool, parent) {
            (Some(pool), _) => pool.period,
            (None, Some(parent)) => parent.whole_period,
            (None, None) => self.limit.period,
        }
    }

    /// Whether clients may draw of a bucket, of this limit or its pool's.
    pub(in crate::resource) fn has_bucket(&self) -> bool {
        self.fleet.bucket.is_some() || self.pool.is_some_and(|pool| pool.has_bucket)
    }

    /// Whether it is a member of a pool.
    pub(in crate::resource) fn is_in_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// Whether clients may be cut off, beside which other members draw of its pool's bucket.
    pub(in crate::resource) fn has_standby_in_pool(&self) -> bool {
        self.pool.is_some() && self.draws.standby > 0
    }

    /// Capacity of its pool; unlimited if it is in none.
    fn pool_capacity(&self) -> Capacity {
        self.pool
            .map_or(Capacity::UNLIMITED, |pool| pool.sums.capacity)
    }

    fn capacity_alone(&self) -> Capacity {
        let own = self.limit.capacity;
        self.lendable
            .map_or(own, |lendable| own.min(lendable.whole))
    }

    /// Whether the parent is away, and safe capacity is lent, which is no part of a sum.
    fn lends_safe(&self) -> bool {
        self.lendable
            .is_some_and(|lendable| matches!(lendable.source, LendableSource::Safe(_)))
    }

    /// Whether it is not known yet how much can be lent.
    fn is_pending(&self) -> bool {
        self.lendable.is_some_and(|lendable| {
            let source = lendable.source;
            matches!(source, LendableSource::Awaited | LendableSource::Nothing)
        })
    }

    fn replace_totals(&mut self, before: EntryTotals, after: EntryTotals) {
        let replaced = |sum: u128, before: Capacity, after: Capacity| {
            let rest = sum.saturating_sub(before.as_micros().into());
            rest.saturating_add(after.as_micros().into())
        };
        self.sum_has = replaced(self.sum_has, before.has, after.has);
        self.sum_usage = replaced(self.sum_usage, before.usage, after.usage);
        self.sum_gone = replaced(self.sum_gone, before.gone, after.gone);
        self.draws = self.draws.replaced(before.draws, after.draws);
        let others = self.silent.saturating_sub(before.is_silent.into());
        self.silent = others.saturating_add(after.is_silent.into());
    }
}
