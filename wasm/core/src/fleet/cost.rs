//! Tokens that a request usually takes: of a limit whose requests cost many, few a second are many tokens.

use super::{FleetLimit, FleetSums};
use crate::units::{Capacity, Tokens, mul_div};

/// Number of costs over which the usual one is averaged.
const COSTS_AVERAGED: u128 = 8;

// === impl FleetLimit ===

impl FleetLimit {
    /// A capacity in requests a second, of what these usually take.
    pub(super) fn in_requests(&self, sums: &FleetSums, capacity: Capacity) -> Capacity {
        let cost = self.usual_cost();
        if cost == Tokens::ONE || sums.unit.is_concurrency() {
            return capacity;
        }
        let (capacity, one) = (capacity.as_micros(), Tokens::ONE.as_micros());
        Capacity::from_micros(mul_div(capacity, one, cost.as_micros().into()))
    }

    /// Tokens that a request usually takes; one if that is not known.
    pub(super) fn usual_cost(&self) -> Tokens {
        self.cost.max(Tokens::ONE)
    }

    /// Whether it is not known how many tokens a request usually takes: nobody knows how many bytes it brings.
    pub(super) fn has_unknown_cost(&self, sums: &FleetSums) -> bool {
        sums.unit.is_bytes() && self.cost == Tokens::ZERO
    }

    /// Notes that a request takes `cost` tokens, unless that is not known.
    pub(crate) fn note_cost(&mut self, sums: &FleetSums, cost: Tokens) {
        // A client that does not know how many bytes are usual says one.
        let is_known = cost > Tokens::ONE || cost > Tokens::ZERO && !sums.unit.is_bytes();
        let cost = cost.min(sums.burst).as_micros();
        let before = match self.cost.as_micros() {
            0 => cost,
            before => before,
        };
        if is_known {
            let sum = u128::from(before).saturating_mul(COSTS_AVERAGED - 1);
            let mean = sum.saturating_add(cost.into()).div_ceil(COSTS_AVERAGED);
            self.cost = Tokens::from_micros(u64::try_from(mean).unwrap_or(u64::MAX));
        }
    }
}
