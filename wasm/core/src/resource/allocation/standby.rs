//! Capacity that clients that draw may use while they are cut off.

use super::{Allocation, ClientEntry};
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
        let standby = match wants && !entry.presence.is_young(now) {
            true => self.standby(entry),
            false => Capacity::ZERO,
        };
        let before = entry.totals();
        entry.draws.standby = standby;
        self.replace_totals(before, entry.totals());
    }

    fn standby(&self, entry: &ClientEntry) -> Capacity {
        let capacity = self.limit.capacity;
        let unwanted = capacity.left_of(self.shares.sum_wants());
        let part = unwanted.divided_by(self.shares.subclients());
        let own = u128::from(entry.draws.standby.as_micros());
        let others = self.sum_standby.saturating_sub(own);
        let free = capacity.left_of(self.sum_has.saturating_add(others));
        self.entitled_by_wants(entry).saturating_add(part).min(free)
    }
}
