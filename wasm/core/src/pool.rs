//! Pools: capacities that several resources share, such as a group's.
//!
//! A pool divides what it has between its members by weighted max-min: a member wants what its
//! clients want together, but no more than its own limit lets it. What a member is allotted it
//! divides between its own clients, by its own algorithm. So two divisions stand one above the other, each exact,
//! and a refresh asks both trees: O(log members + log clients).
//!
//! The obvious alternative, one division between all clients of all members, is not the same: a
//! member with many clients would get more than one with few.
//!
//! A pool counts what its members' clients may be using, so that a grant fits into what the pool
//! has free as well as into the member's own limit. A member that joins brings its leases
//! along: they count from that moment, and if they are more than the pool has, that is as after a
//! lowered capacity.

use core::num::NonZeroU32;

use crate::hash::fnv1a;
use crate::lease::ResourceId;
use crate::limit::{Limit, SafeCapacity};
use crate::share::{FairShare, Handle, Quantum};
use crate::units::{Capacity, Instant};

/// What is shared, what is wanted of it and what is lent of it.
#[derive(Debug)]
pub struct Pool {
    limit: Limit,
    /// Of the id, so that a fingerprint tells pools of equal capacity apart.
    hash: u64,
    members: FairShare<TieBreak>,
    /// Σ of what the seats say, in micro-units.
    sum_has: u128,
    subclients: u64,
    /// While a member learns: more was claimed lately than there is.
    crowded_until: Instant,
}

/// A member's place in a pool, and what the pool counts for it.
#[derive(Debug)]
pub(crate) struct PoolMembership {
    handle: Handle<TieBreak>,
    weight: NonZeroU32,
    has: u128,
    subclients: u64,
}

/// What a member totals of the pool's sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceTotals {
    pub(crate) wants: Capacity,
    pub(crate) has: u128,
    pub(crate) subclients: u64,
}

/// Where a member stands among those who want the same: the hash of its id.
type TieBreak = u64;

// === impl Pool ===

impl Pool {
    pub(crate) fn new(id: &ResourceId, limit: &Limit) -> Self {
        Self {
            limit: limit.clone(),
            hash: fnv1a(id.scope.as_bytes()),
            members: FairShare::of(Quantum::of(id.unit)),
            sum_has: 0,
            subclients: 0,
            crowded_until: Instant::ZERO,
        }
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

    pub(crate) fn set_limit(&mut self, limit: &Limit) {
        if self.limit != *limit {
            self.limit = limit.clone();
        }
    }

    pub(crate) fn join(&mut self, member: &ResourceId, weight: NonZeroU32) -> PoolMembership {
        let tie_break = fnv1a(member.scope.as_bytes());
        PoolMembership {
            handle: self.members.insert(tie_break, Capacity::ZERO, weight),
            weight,
            has: 0,
            subclients: 0,
        }
    }

    pub(crate) fn leave(&mut self, mut membership: PoolMembership) {
        self.tell(&mut membership, ResourceTotals::default());
        self.members.remove(membership.handle);
    }

    /// Takes what has become of a member. O(log n) if it wants something else.
    pub(crate) fn tell(&mut self, membership: &mut PoolMembership, totals: ResourceTotals) {
        self.members
            .update(&mut membership.handle, totals.wants, membership.weight);
        let rest = self.sum_has.saturating_sub(membership.has);
        self.sum_has = rest.saturating_add(totals.has);
        let rest = self.subclients.saturating_sub(membership.subclients);
        self.subclients = rest.saturating_add(totals.subclients);
        membership.has = totals.has;
        membership.subclients = totals.subclients;
    }

    /// What the member's clients may divide between them.
    pub(crate) fn allotted(&self, membership: &PoolMembership) -> Capacity {
        self.members.share(&membership.handle, self.divided())
    }

    /// The member's part of what nobody wants and is lent all the same.
    pub(crate) fn spare(&self, membership: &PoolMembership) -> Capacity {
        let wanted = u64::try_from(self.sum_wants()).unwrap_or(u64::MAX);
        let spare = self.divided().saturating_sub(Capacity::from_micros(wanted));
        let headroom = self.limit.headroom.of(spare);
        self.members.spare(&membership.handle, headroom)
    }

    /// Until when members that learn confirm no more than shares: more was claimed than there is.
    pub(crate) fn crowded_until(&self) -> Instant {
        self.crowded_until
    }

    pub(crate) fn set_crowded_until(&mut self, until: Instant) {
        self.crowded_until = until;
    }

    /// What there is to divide: without the reserve.
    pub(crate) fn divided(&self) -> Capacity {
        self.limit.divided(self.members.quantum())
    }

    /// What each client of a member falls back to, if that is for the pool to say.
    pub(crate) fn safe(&self) -> Option<Capacity> {
        match self.limit.safe {
            SafeCapacity::Client => None,
            SafeCapacity::Fixed(safe) => Some(safe),
            SafeCapacity::Dynamic => Some(self.limit.capacity.divided_by(self.subclients)),
        }
    }

    /// Tells this pool with its capacity from others and from itself with another capacity.
    pub(crate) fn fingerprint(&self) -> u64 {
        let capacity = self.limit.capacity.as_micros();
        fnv1a(&(self.hash ^ capacity.rotate_left(32)).to_le_bytes())
    }
}

// === impl PoolMembership ===

impl PoolMembership {
    /// How much the member counts beside the others.
    pub(crate) fn weight(&self) -> NonZeroU32 {
        self.weight
    }

    /// Lets the member count for `weight` from when the pool is next told of it.
    pub(crate) fn set_weight(&mut self, weight: NonZeroU32) {
        self.weight = weight;
    }
}
