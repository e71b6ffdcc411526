//! Draws of members of a pool, which are charged to its bucket, and go by the members' shares.

use alloc::vec::Vec;

use super::{Pool, PoolLink};
use crate::fleet::{
    ChargedLimit, DrawingMember, FleetBucket, FleetSums, QuotaUsage, Report, StoredLimit,
};
use crate::hash::fnv1a;
use crate::units::{Instant, Tokens};

// === impl Pool ===

impl Pool {
    /// Tokens that no client has; none if clients cannot draw, or have leases.
    pub fn fleet_bucket(&self) -> Option<&FleetBucket> {
        self.fleet.bucket.as_ref().filter(|_| self.fleet.is_drawn)
    }

    /// Its quotas, with what is used of them.
    pub fn quotas(&self, now: Instant) -> Vec<QuotaUsage> {
        self.fleet.quotas.usage(now, self.draws.held())
    }

    /// Tokens of the bucket that clients of members have drawn and may not have spent.
    pub fn held_by_clients(&self) -> Tokens {
        self.draws.held()
    }

    /// Fills the bucket until `now`, and from then on by the totals of now.
    pub(crate) fn fill(&mut self, now: Instant) {
        let sums = self.sums();
        self.fleet.fill(now, &sums);
        let unearned = core::mem::take(&mut self.unearned);
        self.fleet.take_back(now, unearned, self.limit.burst);
    }

    /// Time until which the bucket is to be remembered without members, if any of them has drawn of it.
    pub(crate) fn full_at(&self) -> Option<Instant> {
        self.fleet.full_at(self.limit.capacity)
    }

    /// Forgets the bucket if a new one would hold no more.
    pub(crate) fn forget_if_full(&mut self, now: Instant) {
        self.fill(now);
        let capacity = self.limit.capacity;
        if self.members.is_empty() {
            self.fleet.forget_if_full(now, capacity);
        }
    }

    /// Returns what is to be stored of the bucket, and whether before an answer tells of its tokens.
    pub(crate) fn bucket_to_store(&mut self, now: Instant) -> Option<(StoredLimit, bool)> {
        let sums = self.sums();
        self.fleet.store_change(now, &sums, self.limit.lease)
    }

    /// Its limit, with the sums over all clients of members.
    pub(super) fn sums(&self) -> FleetSums {
        FleetSums {
            unit: self.unit,
            capacity: self.limit.capacity,
            burst: self.limit.burst,
            is_borrowed: false,
            subclients: self.subclients,
            wants: self.sum_wants(),
            has: self.sum_has,
            draws: self.draws,
        }
    }
}

// === impl PoolLink ===

impl PoolLink<'_> {
    /// Whether what clients of the member spent at `time` was charged to the pool, if there is one.
    pub(crate) fn is_joined_since(&self, time: Instant) -> bool {
        let membership = self.0.as_ref().map(|(_, membership)| membership);
        membership.is_none_or(|membership| membership.joined_at <= time)
    }

    /// Decides whether clients draw of the pool, of a request that takes `cost`, if they `may`.
    pub(crate) fn decide_draws(&mut self, now: Instant, may: bool, cost: Tokens) -> bool {
        let Some((pool, _)) = &mut self.0 else {
            return false;
        };
        let sums = pool.sums();
        pool.fleet.note_cost(&sums, cost);
        pool.fleet.decide_draws(now, &sums, true);
        may && pool.fleet.is_drawn
    }

    /// Begins with a full bucket, if the pool has none.
    pub(crate) fn begin_bucket(&mut self, now: Instant) {
        if let Some((pool, _)) = &mut self.0 {
            pool.fleet.begin(now, pool.limit.burst);
            pool.fill(now);
        }
    }

    /// The pool's limit, of which a client of the resource draws.
    pub(crate) fn charged(&mut self, now: Instant) -> Option<ChargedLimit<'_>> {
        let (pool, membership) = self.0.as_mut()?;
        let sums = pool.sums();
        let share = pool.allotted(membership).as_rate();
        let hash = fnv1a(membership.scope.as_bytes());
        let member = DrawingMember::new(
            now,
            (hash, membership.totals.subclients),
            (share, sums.burst),
            &mut membership.draws,
            &mut pool.short_members,
        );
        ChargedLimit::new(&mut pool.fleet, sums, Some(member))
    }

    /// Notes that a client of the resource has drawn `tokens`.
    pub(crate) fn note_granted(&mut self, now: Instant, tokens: Tokens) {
        if let Some((pool, membership)) = &mut self.0 {
            let (share, burst) = (pool.allotted(membership).as_rate(), pool.limit.burst);
            membership.draws.note_granted(now, tokens, share, burst);
        }
    }

    /// Whether the tokens of `report` lack in the pool's bucket until then.
    pub(crate) fn lacks_room(&self, now: Instant, report: Report) -> bool {
        let link = self.0.as_ref();
        link.is_some_and(|(pool, _)| pool.fleet.lacks_room(now, &pool.sums(), report))
    }
}
