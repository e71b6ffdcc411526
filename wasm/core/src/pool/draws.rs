//! Draws of members of a pool, which are charged to its bucket, and go by the members' shares.

use super::{Pool, PoolLink, PoolMembership};
use crate::fleet::{ChargedLimit, DrawingMember, FleetBucket, FleetSums, Report, StoredBucket};
use crate::hash::fnv1a;
use crate::units::{Instant, Tokens};

/// Part of a pool's burst that a member may draw beyond its share before tokens are kept from it.
const ABOVE_PARTS: u64 = 8;

// === impl Pool ===

impl Pool {
    /// Tokens that no client has; none if clients cannot draw, or have leases.
    pub fn fleet_bucket(&self) -> Option<&FleetBucket> {
        self.fleet.bucket.as_ref().filter(|_| self.fleet.is_drawn)
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
    pub(crate) fn bucket_to_store(&mut self, now: Instant) -> Option<(StoredBucket, bool)> {
        let sums = self.sums();
        self.fleet.store_change(now, &sums, self.limit.lease)
    }

    /// Tokens that clients of the member have drawn beyond its share.
    fn excess(&self, now: Instant, membership: &PoolMembership) -> Tokens {
        let (excess, at) = membership.excess;
        let share = self.allotted(membership).as_rate();
        excess.saturating_sub(share.tokens_in(now.saturating_since(at)))
    }

    /// Its limit, with the sums over all clients of members.
    pub(super) fn sums(&self) -> FleetSums {
        FleetSums {
            unit: self.unit,
            capacity: self.limit.capacity,
            burst: self.limit.burst,
            subclients: self.subclients,
            wants: self.sum_wants(),
            has: self.sum_has,
            draws: self.draws,
        }
    }
}

// === impl PoolLink ===

impl PoolLink<'_> {
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
        let hash = fnv1a(membership.scope.as_bytes());
        let excess = pool.excess(now, membership);
        let above = excess.saturating_sub(sums.burst_part(ABOVE_PARTS));
        let share = pool.allotted(membership).as_rate();
        let member = DrawingMember {
            hash,
            above_for: share.time_for(above).filter(|_| above > Tokens::ZERO),
            short_members: &mut pool.short_members,
            share,
            clients: u32::try_from(membership.totals.subclients).unwrap_or(u32::MAX),
            turn_at: &mut membership.turn_at,
        };
        ChargedLimit::new(&mut pool.fleet, sums, Some(member))
    }

    /// Notes that a client of the resource has drawn `tokens`.
    pub(crate) fn note_granted(&mut self, now: Instant, tokens: Tokens) {
        if let Some((pool, membership)) = &mut self.0 {
            let excess = pool.excess(now, membership).saturating_add(tokens);
            membership.excess = (excess.min(pool.limit.burst), now);
        }
    }

    /// Whether the tokens of `report` lack in the pool's bucket until then.
    pub(crate) fn lacks_room(&self, now: Instant, report: Report) -> bool {
        let link = self.0.as_ref();
        link.is_some_and(|(pool, _)| pool.fleet.lacks_room(now, &pool.sums(), report))
    }
}
