//! Algorithms by which a share depends on what clients use, and not only on what they want.
//!
//! Both are of other systems, which divide without looking at what is lent. Here they only say
//! who is entitled to what, and the allocation lends no more than is free. Where all that is wanted
//! fits into the capacity, each is entitled to what it wants.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Algorithm, Allocation, ClientEntry};
use crate::pool::PoolLink;
use crate::share::max_rate::{MaxRateMember, MaxRateRule};
use crate::share::usage_share::UsageTotals;
use crate::units::{Capacity, Instant};

// === impl Allocation ===

impl Allocation {
    /// Capacity that the client is entitled to, as far as it wants it; none if the algorithm goes
    /// by what all want, or the safe capacity is lent, of which each has a part of its own.
    pub(super) fn by_usage(&self, entry: &ClientEntry) -> Option<Capacity> {
        if !self.limit.algorithm.goes_by_usage() || self.lends_safe() {
            return None;
        }
        let capacity = self.allotted();
        let share = match self.limit.algorithm {
            _ if self.fits(capacity) => capacity,
            Algorithm::MaxRate => entry.max_rate.unwrap_or_else(|| self.equal(capacity)),
            _ => self.usage_share(entry, capacity),
        };
        Some(self.shares.quantum().floor(share.min(entry.wants())))
    }

    /// Runs a round of max-rates over the `entries` if it is time for one: each refresh interval.
    /// O(n), and so O(1) for each of the refreshes of that interval.
    pub(in crate::resource) fn balance<K>(
        &mut self,
        now: Instant,
        entries: &mut BTreeMap<K, Box<ClientEntry>>,
        pool: &mut PoolLink<'_>,
    ) {
        if self.limit.algorithm != Algorithm::MaxRate {
            return;
        }
        // The interval may have been shortened since the last round.
        let next = now.saturating_add(self.times_alone().refresh);
        if now < self.balance_at {
            self.balance_at = self.balance_at.min(next);
            return;
        }
        self.report(now, pool);
        self.balance_at = next;
        let capacity = self.allotted();
        if capacity.is_unlimited() || self.lends_safe() {
            return;
        }
        let equal = self.equal(capacity);
        let members = entries.values().map(|entry| {
            let max = entry.max_rate.unwrap_or(equal);
            MaxRateMember::wanting(entry.wants(), max)
        });
        let mut members: Vec<_> = members.collect();
        MaxRateRule::HERMES.rebalance(capacity, &mut members);
        for (entry, member) in entries.values_mut().zip(members) {
            entry.max_rate = member.max;
        }
    }

    fn usage_share(&self, entry: &ClientEntry, capacity: Capacity) -> Capacity {
        let totals = UsageTotals {
            usage: self.sum_usage,
            weight: self.shares.active(),
        };
        totals.share(capacity, entry.totals().usage, entry.handles.active())
    }

    /// Whether all that is wanted fits into `capacity`.
    fn fits(&self, capacity: Capacity) -> bool {
        self.shares.sum_wants() <= capacity.as_micros().into()
    }

    /// The equal part of each client that wants something.
    fn equal(&self, capacity: Capacity) -> Capacity {
        capacity.divided_by(self.shares.active())
    }
}
