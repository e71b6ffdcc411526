//! Sums over the clients of a limit.

use crate::lease::Unit;
use crate::units::{Capacity, Rate, Tokens, mul_div};

/// A limit, with the sums over its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetSums {
    pub(crate) unit: Unit,
    /// Capacity of the limit; never unlimited.
    pub(crate) capacity: Capacity,
    /// Burst of the limit.
    pub(crate) burst: Tokens,
    /// Whether it is the part of a limit that is borrowed of a parent.
    pub(crate) is_borrowed: bool,
    /// Number of clients, with those for which they speak.
    pub(crate) subclients: u64,
    /// Wants, in micro-units.
    pub(crate) wants: u128,
    /// The most that clients may be using of leases, in micro-units.
    pub(crate) has: u128,
    /// Tokens that they hold, and their standby capacity.
    pub(crate) draws: DrawSums,
}

/// Sums over clients that draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrawSums {
    /// Tokens of the fleet's bucket that they may hold, in micro-tokens.
    pub(crate) holds: u128,
    /// Capacity that they may use while they are cut off, in micro-units.
    pub(crate) standby: u128,
    /// The same of those that may be cut off now.
    pub(crate) cut_off: u128,
}

// === impl FleetSums ===

impl FleetSums {
    /// Rate at which the fleet's bucket fills: what is not leased, nor used by clients that are cut off.
    pub(crate) fn rate(&self) -> Rate {
        let used = self.has.saturating_add(self.draws.cut_off);
        let left = self.capacity.left_of(used);
        if left.is_unlimited() {
            Rate::ZERO
        } else {
            left.as_rate()
        }
    }

    /// Part of the burst that clients hold, or may gather in the buckets of their leases.
    pub(crate) fn held(&self) -> Tokens {
        let leased = self.burst_of_leases(self.has);
        leased.saturating_add(self.draws.held())
    }

    /// The most tokens that the bucket may have: the part of the burst that no client has.
    pub(crate) fn room(&self) -> Tokens {
        self.burst.saturating_sub(self.held())
    }

    /// Part of the burst that goes with leases of so many micro-units together.
    pub(crate) fn burst_of_leases(&self, sum: u128) -> Tokens {
        let leased = Capacity::from_sum(sum).min(self.capacity).as_micros();
        let whole = self.capacity.as_micros().into();
        Tokens::from_micros(mul_div(self.burst.as_micros(), leased, whole))
    }

    /// One of so many parts of the burst.
    pub(crate) fn burst_part(&self, parts: u64) -> Tokens {
        Tokens::from_micros(self.burst.as_micros().checked_div(parts).unwrap_or(0))
    }
}

// === impl DrawSums ===

impl DrawSums {
    /// Tokens that clients have drawn and may not have spent.
    pub(crate) fn held(&self) -> Tokens {
        Tokens::from_micros(u64::try_from(self.holds).unwrap_or(u64::MAX))
    }

    /// These without `before` of one part, and with its `after`.
    pub(crate) fn replaced(self, before: Self, after: Self) -> Self {
        let replaced =
            |sum: u128, before: u128, after: u128| sum.saturating_sub(before).saturating_add(after);
        Self {
            holds: replaced(self.holds, before.holds, after.holds),
            standby: replaced(self.standby, before.standby, after.standby),
            cut_off: replaced(self.cut_off, before.cut_off, after.cut_off),
        }
    }
}
