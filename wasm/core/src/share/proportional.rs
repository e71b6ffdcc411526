//! Proportional share: an equal part for sure, and of what is left in proportion to what is missing.
//!
//! Doorman's `PROPORTIONAL_SHARE`. Each client is sure of an equal part per weight; one that wants
//! no more than that gets it. The rest that these leave of their parts goes to the others in
//! proportion to what each wants beyond its own. So a client that asks for more gets more, which
//! max-min does not do, but it cannot push another below the equal part.
//!
//! ```text
//! capacity 120 · wants 1000, 50, 10 · parts of 40, 30 left, missing 960 + 10
//! 40 + 30·960/970 = 69.69, 40 + 30·10/970 = 40.31, 10
//! ```
//!
//! A client that wants nothing does not count, unlike in Doorman: no share moves when one that is
//! idle comes or goes. Doorman adds all this up over all clients at each refresh. Here the clients
//! that want no more than their part are a first run of the tree's order (see
//! [`fair`](super::fair)), and the sums before a client come out of sums over prefixes.
//!
//! **Exactness.** With capacity C, weights W in all and P before a client of weight w, it is sure of
//! ⌊(P+w)·C/W⌋ − ⌊P·C/W⌋. What is missing is a whole number, and so are the sums X of it over
//! prefixes of those who miss something; of what is left, B, a client gets the difference of
//! ⌊X·B/ΣX⌋ at its two ends. Both telescope, so the shares sum to C. As B ≤ ΣX, no part is more
//! than what is missing.

use core::num::NonZeroU32;

use super::fair::{FairShare, Handle};
use super::sum_tree::{Sums, WeightedEntry};
use crate::units::Capacity;

/// How a capacity that does not suffice is divided proportionally, in quanta.
#[derive(Debug)]
struct ProportionalParts {
    capacity: u64,
    /// The weights of all who want something.
    weights: u64,
    quantum: u64,
    /// Those who want no more than their part: their weights and wants.
    satisfied: Sums,
    /// Rest that these leave of their parts.
    left: u64,
    /// Wants of all others beyond their parts.
    missing: u128,
}

// === impl FairShare ===

impl<K: Copy + Ord> FairShare<K> {
    /// Capacity that the client gets of `capacity` by proportional share: at most its wants. O(log
    /// n).
    ///
    /// Over all clients these sum to the lesser of `capacity` and [`Self::sum_wants`], exactly.
    pub fn proportional(&self, handle: &Handle<K>, capacity: Capacity) -> Capacity {
        let WeightedEntry { wants, weight, .. } = handle.entry;
        if capacity.is_unlimited() || self.sum_wants() <= u128::from(capacity.as_micros()) {
            return wants;
        }
        let parts = self.parts(capacity);
        if parts.suffices(wants, weight) {
            return wants;
        }
        let before = self.active(self.tree.sums_before(&handle.entry));
        Capacity::from_micros(parts.of(before, wants, weight))
    }

    /// `sums` over a first run of the order, without those who want nothing: these come first.
    fn active(&self, sums: Sums) -> Sums {
        Sums {
            weight: sums.weight.saturating_sub(self.idle_weight),
            ..sums
        }
    }

    fn parts(&self, capacity: Capacity) -> ProportionalParts {
        let quantum = self.quantum.micros();
        let total = self.active(self.tree.total());
        let mut parts = ProportionalParts {
            capacity: capacity.as_micros().checked_div(quantum).unwrap_or(0),
            weights: total.weight,
            quantum,
            satisfied: Sums::default(),
            left: 0,
            missing: 0,
        };
        let suffices = |_, entry: &WeightedEntry<K>| parts.suffices(entry.wants, entry.weight);
        parts.satisfied = self.active(self.tree.sums_while(suffices));
        let wanted = |sums: Sums| sums.wants.checked_div(quantum.into()).unwrap_or(0);
        let sure = parts.sure_until(parts.satisfied.weight);
        let left = u128::from(sure).saturating_sub(wanted(parts.satisfied));
        parts.left = u64::try_from(left).unwrap_or(u64::MAX);
        let others_want = wanted(total).saturating_sub(wanted(parts.satisfied));
        let others_sure = u128::from(parts.capacity.saturating_sub(sure));
        parts.missing = others_want.saturating_sub(others_sure);
        parts
    }
}

// === impl ProportionalParts ===

impl ProportionalParts {
    /// Whether a client's equal part is all that it wants.
    fn suffices(&self, wants: Capacity, weight: NonZeroU32) -> bool {
        let wants = wants.as_micros().checked_div(self.quantum).unwrap_or(0);
        // Both below 2^128: products of two u64.
        let wants = u128::from(wants).wrapping_mul(u128::from(self.weights));
        wants <= u128::from(self.capacity).wrapping_mul(u128::from(weight.get()))
    }

    /// The equal parts of clients of `weight` together, rounded down.
    fn sure_until(&self, weight: u64) -> u64 {
        let product = u128::from(self.capacity).wrapping_mul(u128::from(weight));
        let sure = product.checked_div(self.weights.into()).unwrap_or(0);
        u64::try_from(sure).unwrap_or(u64::MAX)
    }

    /// Capacity that a client gets that wants more than its part, in millionths.
    fn of(&self, before: Sums, wants: Capacity, weight: NonZeroU32) -> u64 {
        let after = before.weight.saturating_add(weight.get().into());
        let (sure_before, sure_after) = (self.sure_until(before.weight), self.sure_until(after));
        let sure = sure_after.saturating_sub(sure_before);
        // Sum that the unsatisfied clients before it in the order miss.
        let wanted = before.wants.saturating_sub(self.satisfied.wants);
        let wanted = wanted.checked_div(self.quantum.into()).unwrap_or(0);
        let theirs = sure_before.saturating_sub(self.sure_until(self.satisfied.weight));
        let missing_before = wanted.saturating_sub(theirs.into());
        let wants = wants.as_micros().checked_div(self.quantum).unwrap_or(0);
        let missing = u128::from(wants.saturating_sub(sure));
        let until = |missing| mul_div_wide(missing, self.left, self.missing);
        let more = until(missing_before.saturating_add(missing));
        let more = more.saturating_sub(until(missing_before));
        sure.saturating_add(more).saturating_mul(self.quantum)
    }
}

// === free functions ===

/// `a * b / divisor`, rounded down, for `a ≤ divisor < 2^111`; zero if `divisor` is.
///
/// The product may need 176 bits: four digits of 16 bits, the highest first, as on paper.
fn mul_div_wide(a: u128, b: u64, divisor: u128) -> u64 {
    if let Some(product) = a.checked_mul(b.into()) {
        let quotient = product.checked_div(divisor).unwrap_or(0);
        return u64::try_from(quotient).unwrap_or(u64::MAX);
    }
    let (mut quotient, mut rest) = (0_u128, 0_u128);
    for digit in [48, 32, 16, 0].map(|shift| u128::from((b >> shift) & 0xffff)) {
        let part = (rest << 16).saturating_add(a.saturating_mul(digit));
        quotient = (quotient << 16).saturating_add(part.checked_div(divisor).unwrap_or(0));
        rest = part.checked_rem(divisor).unwrap_or(0);
    }
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
