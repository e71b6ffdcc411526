//! Pools: capacities that several resources share, such as a group's.
//!
//! A pool divides its capacity between its members by weighted max-min: a member wants the sum of
//! its clients' wants, but no more than its own limit lets it. The member divides its allotment
//! between its own clients, by its own algorithm. So two allocations stand one above the other, each
//! exact, and a refresh asks both trees: O(log members + log clients).
//!
//! The obvious alternative, one allocation between all clients of all members, is not the same: a
//! member with many clients would get more than one with few.
//!
//! A pool counts the capacity that its members' clients may be using, so that a grant fits into the
//! free part of the pool as well as into the member's own limit. A member that joins brings its
//! leases along: they count from that moment, and if they are more than the pool has, that is as
//! after a lowered capacity.
//!
//! Resources do not reach into pools. The lease server tells a pool the totals of a member and shows
//! the member a `PoolView`, both through a `PoolLink`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

mod draws;

use crate::fleet::{
    DrawSums, FleetBucketSnapshot, FleetLimit, FleetSums, MemberDraws, QuotaChangeRequest,
    QuotaError, QuotaRecord, ShortMembers,
};
use crate::hash::fnv1a;
use crate::lack::Lack;
use crate::lease::{ResourceId, Unit};
use crate::lease_times::LeaseTimes;
use crate::limit::{Limit, SafeCapacity, burst_part};
use crate::round::Round;
use crate::share::{FairShare, Handle, Quantum};
use crate::units::{Capacity, Instant, RatePeriod, Tokens, WallClock};

/// Shared capacity, with the sums of what is wanted of it and lent of it.
#[derive(Debug)]
pub struct Pool {
    limit: Limit,
    /// Hash of the id, so that a fingerprint tells pools of equal capacity apart.
    hash: u64,
    unit: Unit,
    members: FairShare<TieBreak>,
    /// Σ [`ResourceTotals::has`] over members, in micro-units.
    sum_has: u128,
    subclients: u64,
    /// Σ [`ResourceTotals::draws`] over members.
    draws: DrawSums,
    /// Tokens that its bucket has earned in the stead of clients that were cut off, and has not given up.
    unearned: Tokens,
    /// Its limit, as clients of members draw of it.
    pub(crate) fleet: FleetLimit,
    /// Members that drew in vain.
    short_members: ShortMembers,
    /// Time at which it is to be looked at that had no members.
    pub(crate) empty_until: Option<Instant>,
    /// The end of the time in which claims do not fit, while a member learns: until then members
    /// confirm no more than shares.
    pub(crate) crowded_until: Instant,
    /// Capacity that a client of some member waits for.
    lack: Lack,
    /// Scopes of the members.
    scopes: BTreeMap<Arc<str>, ()>,
    /// Members whose clients are looked at because of what happened to another one.
    round: Round<Arc<str>>,
}

/// A resource's place in a pool, with the totals that the pool counts for it.
#[derive(Debug)]
pub(crate) struct PoolMembership {
    scope: Arc<str>,
    handle: Handle<TieBreak>,
    /// How much the member counts beside the others, from when the pool is next told of it.
    pub(crate) weight: NonZeroU32,
    /// Totals that the pool was last told.
    totals: ResourceTotals,
    draws: MemberDraws,
    /// The time since which all that clients of the member spend is charged to the pool.
    pub(crate) joined_at: Instant,
}

/// Sums over the clients of one resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceTotals {
    pub(crate) wants: Capacity,
    pub(crate) has: u128,
    pub(crate) subclients: u64,
    /// Tokens that clients hold, and their standby capacity.
    pub(crate) draws: DrawSums,
    /// All tokens that clients that were cut off have earned before that was known.
    pub(crate) unearned: Tokens,
}

/// A pool as one of its members sees it, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolView {
    /// Its limit, with the sums over all clients of members.
    pub(crate) sums: FleetSums,
    /// Period for which its limit was written.
    pub(crate) period: Option<RatePeriod>,
    /// The part of these that the member has reported.
    pub(crate) of_member: ResourceTotals,
    /// Whether clients may draw of its bucket.
    pub(crate) has_bucket: bool,
    /// Whether it has a quota.
    pub(crate) has_quota: bool,
    pub(crate) times: LeaseTimes,
    /// Capacity without the reserve.
    pub(crate) divided: Capacity,
    /// Capacity that the member's clients may divide between them.
    pub(crate) allotted: Capacity,
    /// The member's part of the capacity that no member wants and is lent all the same.
    pub(crate) spare: Capacity,
    /// Capacity that each client falls back to, if the pool is to say it.
    pub(crate) safe: Option<Capacity>,
    /// The time until which no more than shares is confirmed in learning mode.
    pub(crate) crowded_until: Instant,
    /// Capacity that a client of some member waits for.
    pub(crate) lack: Lack,
    pub(crate) fingerprint: u64,
}

/// Link between a resource and its pool, if it has one, while the lease server works on both.
#[derive(Debug)]
pub(crate) struct PoolLink<'a>(pub(crate) Option<(&'a mut Pool, &'a mut PoolMembership)>);

/// Order of members that want the same: the hash of the id.
type TieBreak = u64;

/// The least part of a pool whose change is worth looking at its members' clients.
const NOISE_PART: u64 = 10;

/// Pool in a snapshot. Its leases are those of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Id of the pool.
    pub id: ResourceId,
    /// The limit that the last refresh of a member came with.
    pub limit: Limit,
    /// Time for which members that learn still confirm no more than shares: more was claimed than
    /// there is.
    pub crowded: Duration,
    /// Its bucket, if clients draw of it.
    pub bucket: Option<FleetBucketSnapshot>,
    /// Use of its quotas.
    pub quotas: Vec<QuotaRecord>,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(id: &ResourceId, limit: &Limit) -> Self {
        let mut fleet = FleetLimit::default();
        fleet.quotas.set(&limit.quotas);
        Self {
            limit: limit.clone(),
            hash: fnv1a(id.scope.as_bytes()),
            unit: id.unit,
            members: FairShare::of(Quantum::of(id.unit)),
            sum_has: 0,
            subclients: 0,
            draws: DrawSums::default(),
            unearned: Tokens::ZERO,
            fleet,
            short_members: ShortMembers::default(),
            empty_until: None,
            crowded_until: Instant::ZERO,
            lack: Lack::default(),
            scopes: BTreeMap::new(),
            round: Round::default(),
        }
    }

    /// The pool of a snapshot, without members.
    pub(crate) fn restore(now: Instant, snapshot: &PoolSnapshot) -> Self {
        let mut pool = Self::new(&snapshot.id, &snapshot.limit);
        pool.crowded_until = now.saturating_add(snapshot.crowded);
        pool.fleet
            .restore(now, snapshot.bucket.as_ref(), &snapshot.quotas);
        pool
    }

    /// The limit that the last refresh of a member came with.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Equals the sum over members of what their clients may be using, in micro-units.
    pub fn sum_has(&self) -> u128 {
        self.sum_has
    }

    /// Equals the sum of what members want, each at most its own limit, in micro-units.
    pub fn sum_wants(&self) -> u128 {
        self.members.sum_wants()
    }

    /// How many resources with clients it has.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn set_limit(&mut self, now: Instant, limit: &Limit) {
        if self.limit != *limit {
            self.fleet.set_burst(now, limit.burst);
            self.fleet.quotas.set(&limit.quotas);
            self.limit = limit.clone();
            self.stir();
        }
    }

    /// Begins the windows of its quotas that are due by `clock`.
    pub(crate) fn advance_quotas(&mut self, now: Instant, clock: WallClock) {
        let held = self.draws.held();
        self.fleet.quotas.advance(now, clock, held);
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

    /// Makes `member` a member, whose clients have earned `unearned` tokens before, which count no more.
    pub(crate) fn join(
        &mut self,
        member: &ResourceId,
        weight: NonZeroU32,
        unearned: Tokens,
    ) -> PoolMembership {
        self.scopes.insert(member.scope.clone(), ());
        let tie_break = fnv1a(member.scope.as_bytes());
        PoolMembership {
            scope: member.scope.clone(),
            handle: self.members.insert(tie_break, Capacity::ZERO, weight),
            weight,
            totals: ResourceTotals {
                unearned,
                ..ResourceTotals::default()
            },
            draws: MemberDraws::default(),
            joined_at: Instant::ZERO,
        }
    }

    pub(crate) fn leave(&mut self, mut membership: PoolMembership) {
        let nothing = ResourceTotals {
            unearned: membership.totals.unearned,
            ..ResourceTotals::default()
        };
        self.count(&mut membership, nothing);
        self.members.remove(membership.handle);
        self.scopes.remove(&membership.scope);
    }

    /// Has the clients of all members looked at, for something has happened after which their leases
    /// may have to change.
    fn stir(&mut self) {
        self.round.start(self.scopes.len());
    }

    /// Whether clients of members are still to be looked at.
    pub(crate) fn is_stirred(&self) -> bool {
        self.round.is_under_way()
    }

    /// Returns the next members whose clients are to be looked at, at most `most`.
    pub(crate) fn stirred_members(&mut self, most: usize) -> Vec<Arc<str>> {
        let mut scopes = Vec::new();
        let visit = |scope: &Arc<str>, (): &mut ()| scopes.push(scope.clone());
        self.round.visit(&mut self.scopes, most, visit);
        scopes
    }

    /// Whether freed capacity, by which the sum of leases has fallen from `had`, would change leases
    /// by more than noise: as within a resource.
    fn frees(&self, had: u128) -> bool {
        let freed = had.saturating_sub(self.sum_has);
        let noise = self.divided().divided_by(NOISE_PART).as_micros();
        freed > 0
            && freed.saturating_mul(self.subclients.into()) > noise.into()
            && self.sum_wants() > self.sum_has
    }

    /// Counts the new totals of a member, and fills the bucket by them. O(log n) if its wants have changed.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        membership: &mut PoolMembership,
        totals: ResourceTotals,
    ) {
        self.count(membership, totals);
        self.fill(now);
    }

    /// Counts the new totals of a member. The bucket is filled by them from the next time on.
    fn count(&mut self, membership: &mut PoolMembership, totals: ResourceTotals) {
        self.members
            .update(&mut membership.handle, totals.wants, membership.weight);
        let before = core::mem::replace(&mut membership.totals, totals);
        let had = self.sum_has;
        let rest = self.sum_has.saturating_sub(before.has);
        self.sum_has = rest.saturating_add(totals.has);
        if self.frees(had) {
            self.stir();
        }
        let rest = self.subclients.saturating_sub(before.subclients);
        self.subclients = rest.saturating_add(totals.subclients);
        self.draws = self.draws.replaced(before.draws, totals.draws);
        let unearned = totals.unearned.saturating_sub(before.unearned);
        self.unearned = self.unearned.saturating_add(unearned);
    }

    /// Shows the pool as the member of `membership` sees it.
    pub(crate) fn view(&self, membership: &PoolMembership) -> PoolView {
        PoolView {
            sums: self.sums(),
            period: self.limit.period,
            of_member: membership.totals,
            has_bucket: self.fleet.bucket.is_some(),
            has_quota: self.fleet.quotas.has_any(),
            times: LeaseTimes::of(&self.limit),
            divided: self.divided(),
            allotted: self.allotted(membership),
            spare: self.spare(membership),
            safe: self.safe(),
            crowded_until: self.crowded_until,
            lack: self.lack,
            fingerprint: self.fingerprint(),
        }
    }

    /// Capacity that the member's clients may divide between them.
    pub(crate) fn allotted(&self, membership: &PoolMembership) -> Capacity {
        self.members.share(&membership.handle, self.divided())
    }

    /// The member's part of the capacity that no member wants and is lent all the same.
    fn spare(&self, membership: &PoolMembership) -> Capacity {
        let wanted = Capacity::from_sum(self.sum_wants());
        let spare = self.divided().saturating_sub(wanted);
        let headroom = self.limit.headroom.of(spare);
        self.members.spare(&membership.handle, headroom)
    }

    /// Capacity without the reserve.
    fn divided(&self) -> Capacity {
        self.limit.divided(self.members.quantum())
    }

    /// Capacity that each client of a member falls back to, if the pool is to say it.
    fn safe(&self) -> Option<Capacity> {
        match self.limit.safe {
            SafeCapacity::Client => None,
            SafeCapacity::Fixed(safe) => Some(safe),
            SafeCapacity::Dynamic => Some(self.limit.capacity.divided_by(self.subclients)),
        }
    }

    /// Number that differs between pools, and for one pool between capacities.
    fn fingerprint(&self) -> u64 {
        let capacity = self.limit.capacity.as_micros();
        fnv1a(&(self.hash ^ capacity.rotate_left(32)).to_le_bytes())
    }
}

// === impl PoolView ===

impl PoolView {
    /// The part of the pool's burst that goes with `gets`.
    pub(crate) fn burst_for(&self, gets: Capacity) -> Tokens {
        burst_part(self.sums.burst, self.sums.capacity, gets)
    }
}

// === impl PoolLink ===

impl PoolLink<'_> {
    /// Tells the pool the resource's totals.
    pub(crate) fn update(&mut self, now: Instant, totals: impl FnOnce() -> ResourceTotals) {
        if let Some((pool, membership)) = &mut self.0 {
            pool.update(now, membership, totals());
        }
    }

    /// The same where the time is not known: the bucket is filled by these from the next time on.
    pub(crate) fn count(&mut self, totals: impl FnOnce() -> ResourceTotals) {
        if let Some((pool, membership)) = &mut self.0 {
            pool.count(membership, totals());
        }
    }

    /// Tells the pool the resource's totals, and shows it as the resource sees it then.
    pub(crate) fn view_after(
        &mut self,
        now: Instant,
        totals: impl FnOnce() -> ResourceTotals,
    ) -> Option<PoolView> {
        let (pool, membership) = self.0.as_mut()?;
        pool.update(now, membership, totals());
        Some(pool.view(membership))
    }

    /// Tells the pool that a client of the resource has to wait for so much, for the time `lasts`.
    pub(crate) fn note_lack(&mut self, now: Instant, lacks: Capacity, lasts: Duration) {
        if let Some((pool, _)) = &mut self.0 {
            pool.lack.note(now, lacks, lasts);
            pool.stir();
        }
    }

    /// Tells the pool that claims do not fit until then.
    pub(crate) fn set_crowded_until(&mut self, until: Instant) {
        if let Some((pool, _)) = &mut self.0 {
            pool.crowded_until = until;
        }
    }
}

#[cfg(test)]
mod tests;
