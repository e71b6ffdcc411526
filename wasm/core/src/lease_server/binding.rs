//! Limit that binds a resource: its own, its pool's, or the parent's.

use super::LeaseServer;
use crate::lease::ResourceId;
use crate::limit::Algorithm;
use crate::units::Capacity;

/// The limit that binds a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingLimit<'a> {
    /// The owner of the limit.
    pub of: LimitOwner<'a>,
    /// The most that it lets the clients of the resource have together now.
    pub at_most: Capacity,
}

/// Owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner<'a> {
    /// The resource itself.
    Resource,
    /// The coordinator above.
    Parent,
    /// The pool of this name.
    Pool(&'a ResourceId),
}

// === impl LeaseServer ===

impl LeaseServer {
    /// The limit that leaves the clients of the resource `id` least; none if it has no clients or
    /// nothing limits it.
    ///
    /// A pool or a parent that has more than is wanted leaves all of its capacity, and one that has
    /// less leaves the resource's part. Of limits that leave the same, the resource's own comes
    /// first.
    pub fn binding_limit(&self, id: &ResourceId) -> Option<BindingLimit<'_>> {
        let slot = self.resources.get(id)?;
        let resource = &slot.resource;
        let limit = resource.limit();
        let own = match limit.algorithm {
            _ if !limit.has_capacity() => Capacity::UNLIMITED,
            Algorithm::None => Capacity::UNLIMITED,
            // The capacity is each client's own.
            Algorithm::Static => limit.capacity.saturating_mul(resource.subclients()),
            Algorithm::ProportionalShare
            | Algorithm::FairShare
            | Algorithm::UsageShare
            | Algorithm::MaxRate => limit.capacity,
        };
        let wants = Capacity::from_sum(resource.sum_wants()).min(own);
        let least = |part: Capacity, whole: Capacity| if part < wants { part } else { whole };
        let of_pool = slot.pool.as_ref().and_then(|(id, membership)| {
            let pool = self.pools.get(id)?;
            let at_most = least(pool.allotted(membership), pool.limit().capacity);
            let of = LimitOwner::Pool(id);
            Some(BindingLimit { of, at_most })
        });
        let of_parent = resource
            .allocation
            .borrowed()
            .map(|(lendable, whole)| BindingLimit {
                of: LimitOwner::Parent,
                at_most: least(lendable, whole),
            });
        let own = BindingLimit {
            of: LimitOwner::Resource,
            at_most: own,
        };
        let all = [Some(own), of_parent, of_pool].into_iter().flatten();
        let limited = all.filter(|binding| !binding.at_most.is_unlimited());
        limited.min_by_key(|binding| binding.at_most)
    }
}
