//! Capacity that clients that draw may use while they are cut off.

use super::{Allocation, ClientEntry};
use crate::fleet::FleetSums;
use crate::units::{Capacity, Instant};

// === impl Allocation ===

impl Allocation {
    /// Decides what the client of `entry` may use while calls fail, until its lease of nothing ends: its
    /// share, and an equal part of what nobody wants. All clients together are promised no more than is not
    /// leased. The fleet's bucket earns it until the client has missed its refresh.
    ///
    /// A young client is promised nothing, or one that crashes again and again would take the shares of many.
    pub(super) fn set_standby(&mut self, now: Instant, entry: &mut ClientEntry) {
        let wants = entry.draws.is_offered && entry.wants() > Capacity::ZERO;
        // Tokens of a quota that were not drawn could not be counted if the client is killed.
        let standby = if wants && !entry.presence.is_young(now) && !self.has_quota() {
            self.standby(entry)
        } else {
            Capacity::ZERO
        };
        let before = entry.totals();
        entry.draws.standby = standby;
        self.replace_totals(before, entry.totals());
    }

    fn standby(&self, entry: &ClientEntry) -> Capacity {
        let own = u128::from(entry.draws.standby.as_micros());
        let part = |sums: FleetSums| {
            let unwanted = sums.capacity.left_of(sums.wants);
            unwanted.divided_by(sums.subclients)
        };
        let free = |sums: FleetSums| {
            let others = sums.draws.standby.saturating_sub(own);
            sums.capacity.left_of(sums.has.saturating_add(others))
        };
        let (part, free) = (self.limits().map(part).min(), self.limits().map(free).min());
        let most = self.entitled_by_wants(entry);
        let most = most.saturating_add(part.unwrap_or(Capacity::ZERO));
        most.min(free.unwrap_or(Capacity::ZERO))
    }
}
