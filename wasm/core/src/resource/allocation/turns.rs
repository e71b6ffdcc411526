//! Clients that ask for more than their part.

use super::{Allocation, ClientEntry};
use crate::fleet::FleetSums;
use crate::units::{Instant, Tokens};

// === impl Allocation ===

impl Allocation {
    /// Counts `attempts` at the client of `entry`.
    pub(super) fn note_attempts(&self, now: Instant, entry: &mut ClientEntry, attempts: u64) {
        let excess = self.excess(now, entry);
        let most = self.least_burst();
        let more = excess.saturating_add(Tokens::from_whole(attempts));
        entry.excess = (more.min(most.saturating_add(most)), now);
    }

    /// Whether the client of `entry` asks for more than an equal part of a limit all the time.
    pub(super) fn asks_for_more(&self, now: Instant, entry: &ClientEntry) -> bool {
        self.excess(now, entry) > self.least_burst()
    }

    fn least_burst(&self) -> Tokens {
        let bursts = self.limits().map(|sums| sums.burst);
        bursts.min().unwrap_or(Tokens::ZERO)
    }

    fn excess(&self, now: Instant, entry: &ClientEntry) -> Tokens {
        let (excess, at) = entry.excess;
        let time = now.saturating_since(at);
        let part = |sums: FleetSums| {
            let earned = sums.capacity.as_rate().tokens_in(time).as_micros();
            earned.checked_div(sums.subclients.max(1)).unwrap_or(0)
        };
        let part = self.limits().map(part).min().unwrap_or(0);
        excess.saturating_sub(Tokens::from_micros(part))
    }
}
