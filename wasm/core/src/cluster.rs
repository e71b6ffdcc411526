//! Sharing of work between coordinators: the shard of a scope, the node that is to be the master of
//! a shard, and the next step of a node towards that.
//!
//! Everything here is a function of what all nodes see alike, so that they come to the same result
//! without talking to each other.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroU16, NonZeroU64};

use crate::hash::{fnv1a, mixed};

mod election;
mod vacancy;

pub use election::{Candidate, Election, ElectionStep};
pub use vacancy::Vacancies;

/// The most shards of a cluster. Each costs every node a place in its tables and a forwarded call
/// to most clients; more than there are nodes gain nothing.
pub const SHARDS_MAX: u16 = 64;

/// One of the parts into which the scopes are divided; from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

// === impl ShardId ===

impl ShardId {
    /// All shards of a cluster that has `count`.
    pub fn all(count: NonZeroU16) -> impl Iterator<Item = Self> + Clone {
        (0..count.get()).map(Self)
    }

    /// Its place in a list of all shards.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === free functions ===

/// The shard of the scope or pool that is called `key`, of `count`; the same on every machine and
/// in every version.
pub fn shard_of(key: &str, count: NonZeroU16) -> ShardId {
    // FNV-1a barely moves the upper bits for short keys.
    let shard = mixed(fnv1a(key.as_bytes())) % NonZeroU64::from(count);
    // Below a 16-bit count, so it fits.
    ShardId(u16::try_from(shard).unwrap_or_default())
}

/// Returns, for each of `count` shards, the member that is to be its master, as an index into
/// `members`; none if there are no members.
///
/// Rendezvous hashing with a bound: of all pairs of a shard and a member the one with the highest
/// hash is taken first, and no member is given more than `ceil(shards / members)`. So three shards
/// on three members are one each, the order of `members` does not matter, and a member that comes
/// or goes moves few shards besides those that it takes or leaves.
pub fn assign(count: NonZeroU16, members: &[&str]) -> Vec<Option<usize>> {
    let mut assigned = vec![None; usize::from(count.get())];
    let Some(room) = assigned.len().checked_add(members.len()) else {
        return assigned;
    };
    let most = room.saturating_sub(1).checked_div(members.len());
    let mut rooms = vec![most.unwrap_or(0); members.len()];
    for (_, shard, member) in ranked(count, members) {
        if let (Some(place), Some(room)) = (assigned.get_mut(shard.index()), rooms.get_mut(member))
            && place.is_none()
            && *room > 0
        {
            *place = Some(member);
            *room = room.saturating_sub(1);
        }
    }
    assigned
}

/// All pairs of a shard and a member, those that suit each other best first; of equal ones the
/// member with the lesser name.
fn ranked(count: NonZeroU16, members: &[&str]) -> Vec<(u64, ShardId, usize)> {
    let pairs = ShardId::all(count).flat_map(|shard| {
        let members = members.iter().enumerate();
        members.map(move |(index, member)| (affinity(shard, member), shard, index))
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable_by(|(one, shard, left), (other, second, right)| {
        let names = members.get(*left).cmp(&members.get(*right));
        other.cmp(one).then(shard.cmp(second)).then(names)
    });
    pairs
}

fn affinity(shard: ShardId, member: &str) -> u64 {
    let seed = mixed(fnv1a(member.as_bytes()));
    mixed(seed.wrapping_add(u64::from(shard.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
mod tests;
