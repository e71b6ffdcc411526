//! Weighted max-min fair share: exact water-filling in O(log n).
//!
//! Pour the capacity over clients that are vessels, each as wide as its weight and as tall as its
//! wants per weight. The water stands everywhere at the same level; a client that wants less than
//! the level per weight is satisfied, the others share what remains by weight. No client can get
//! more except by taking from one that has no more per weight. (Bertsekas and Gallager, *Data
//! Networks*, 6.5.2; Doorman's `FAIR_SHARE` approximates it in two rounds.)
//!
//! ```text
//! capacity 100 · A wants 1000, B 27, C 22, D 21, E 1 · level 29 · A 29, B 27, C 22, D 21, E 1
//! ```
//!
//! The obvious ways, sorting at each refresh or rounds of equal division, are O(n) per refresh
//! and so O(n²) for one refresh of every client. Here the clients stand in an ordered tree by
//! wants per weight, with sums of wants and weights: the satisfied are a first run of the
//! order, and one walk finds where it ends.
//!
//! **Exactness.** Let the satisfied leave R millionths to the others, whose weights sum to W. A
//! client of weight w, with weights P of others before it in the order, gets ⌊(P+w)·R/W⌋ − ⌊P·R/W⌋.
//! These add up to R whatever the rounding, each is within one millionth of w·R/W, and none exceeds
//! its wants: they are a whole number above w·R/W, thus at least ⌈w·R/W⌉. The order depends on
//! wants, weights and keys only, so the result does not depend on the order of requests; and as P
//! leaves out the satisfied, no share moves when a client that wants nothing comes or goes. With
//! [`Quantum::Whole`] all of this is counted in whole units: two fifths of a permit serve no
//! request.

use super::sum_tree::{SumTree, WeightedEntry};
use crate::lease::Unit;
use crate::units::{Capacity, MICRO};
use core::num::NonZeroU32;

/// The clients of a resource with their wants and weights, ready to divide any capacity.
///
/// `K` decides between clients of equal wants per weight which of them gets the last millionth.
/// Give every client a key of its own, for instance a hash of its id; clients of equal keys are
/// told apart by the order of their insertion.
///
/// ```
/// use core::num::NonZeroU32;
/// use tollgate_core::share::FairShare;
/// use tollgate_core::units::Capacity;
///
/// let mut clients = FairShare::new();
/// let a = clients.insert(1, Capacity::from_whole(1000), NonZeroU32::MIN);
/// let b = clients.insert(2, Capacity::from_whole(27), NonZeroU32::MIN);
/// let capacity = Capacity::from_whole(100);
/// assert_eq!(clients.share(&a, capacity), Capacity::from_whole(73));
/// assert_eq!(clients.share(&b, capacity), Capacity::from_whole(27));
/// ```
#[derive(Debug)]
pub struct FairShare<K> {
    pub(super) tree: SumTree<K>,
    /// Sum of the weights of those who want nothing.
    pub(super) idle_weight: u64,
    serial: u32,
    /// Quantum: wants, capacities and shares are multiples of it, in millionths.
    pub(super) quantum: Quantum,
}

/// The smallest part that can be given, in millionths: what is wanted is rounded up to it, what
/// there is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantum {
    /// A millionth, for what flows.
    Micro,
    /// A whole unit, for what is occupied.
    Whole,
}

/// One client's place in a [`FairShare`].
///
/// Not `Clone`, and [`FairShare::remove`] takes it: a place cannot be used after its end. It is of
/// use only with the [`FairShare`] that returned it.
#[derive(Debug)]
pub struct Handle<K> {
    pub(super) entry: WeightedEntry<K>,
}

/// Where the water stands: what remains for the unsatisfied, their weights, and the weights of
/// the satisfied.
struct Level {
    rest: u64,
    rest_weight: u64,
    satisfied_weight: u64,
}

// === impl Quantum ===

impl Quantum {
    /// The smallest part of a resource of `unit`.
    pub const fn of(unit: Unit) -> Self {
        if unit.is_concurrency() {
            Self::Whole
        } else {
            Self::Micro
        }
    }

    /// In millionths.
    pub const fn micros(self) -> u64 {
        match self {
            Self::Micro => 1,
            Self::Whole => MICRO,
        }
    }

    /// The most of `capacity` that can be given.
    pub const fn floor(self, capacity: Capacity) -> Capacity {
        match self {
            Self::Micro => capacity,
            Self::Whole if capacity.is_unlimited() => capacity,
            Self::Whole => Capacity::from_whole(capacity.as_micros() / MICRO),
        }
    }

    /// The least that is no less than `capacity`.
    pub const fn ceil(self, capacity: Capacity) -> Capacity {
        match self {
            Self::Micro => capacity,
            Self::Whole if capacity.is_unlimited() => capacity,
            Self::Whole => Capacity::from_whole(capacity.as_micros().div_ceil(MICRO)),
        }
    }
}

// === impl Handle ===

impl<K> Handle<K> {
    /// Wants of the client.
    pub fn wants(&self) -> Capacity {
        self.entry.wants
    }

    /// The client's weight.
    pub fn weight(&self) -> NonZeroU32 {
        self.entry.weight
    }
}

// === impl FairShare ===

impl<K: Copy + Ord> Default for FairShare<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord> FairShare<K> {
    /// No clients; shares are exact to the millionth.
    pub const fn new() -> Self {
        Self::of(Quantum::Micro)
    }

    /// No clients; shares are multiples of `quantum`.
    pub const fn of(quantum: Quantum) -> Self {
        Self {
            tree: SumTree::new(),
            idle_weight: 0,
            serial: 0,
            quantum,
        }
    }

    /// Adds a client. O(log n).
    ///
    /// [`Capacity::UNLIMITED`] as wants stands for more than any capacity that is a number.
    pub fn insert(&mut self, key: K, wants: Capacity, weight: NonZeroU32) -> Handle<K> {
        self.serial = self.serial.wrapping_add(1);
        let entry = WeightedEntry {
            key,
            wants: self.quantum.ceil(wants),
            weight,
            serial: self.serial,
        };
        self.put(entry);
        Handle { entry }
    }

    /// Changes what a client wants and its weight. O(log n), and nothing if neither changed.
    pub fn update(&mut self, handle: &mut Handle<K>, wants: Capacity, weight: NonZeroU32) {
        let wants = self.quantum.ceil(wants);
        if handle.entry.wants == wants && handle.entry.weight == weight {
            return;
        }
        self.take(&handle.entry);
        handle.entry.wants = wants;
        handle.entry.weight = weight;
        self.put(handle.entry);
    }

    /// Removes a client. O(log n).
    pub fn remove(&mut self, handle: Handle<K>) {
        self.take(&handle.entry);
    }

    /// Capacity that the client is entitled to of `capacity`: at most its wants. O(log n).
    ///
    /// Over all clients the shares sum to the lesser of `capacity` and [`Self::sum_wants`],
    /// exactly; in whole units if that is the quantum.
    pub fn share(&self, handle: &Handle<K>, capacity: Capacity) -> Capacity {
        let WeightedEntry { wants, weight, .. } = handle.entry;
        if capacity.is_unlimited() || self.sum_wants() <= u128::from(capacity.as_micros()) {
            return wants;
        }
        let capacity = self.quantum.floor(capacity);
        let level = self.level(capacity);
        if level.covers(wants, weight) {
            return wants;
        }
        let before = self.tree.sums_before(&handle.entry).weight;
        let before = before.saturating_sub(level.satisfied_weight);
        self.part(level.rest, before, weight, level.rest_weight)
    }

    /// The client's part of `spare` capacity that no client wants, by weight: nothing for a client
    /// that wants nothing.
    ///
    /// Over all clients these sum to `spare`, exactly, unless all want nothing.
    pub fn spare(&self, handle: &Handle<K>, spare: Capacity) -> Capacity {
        self.spare_among(handle, spare, 0, self.active_weight())
    }

    /// Like [`Self::spare`] if these clients are some of many: active ones of the weight `before`
    /// come before them, and all active ones have the weight `active`.
    pub(super) fn spare_among(
        &self,
        handle: &Handle<K>,
        spare: Capacity,
        before: u64,
        active: u64,
    ) -> Capacity {
        // In overload there is nothing to walk the tree for.
        if handle.entry.wants == Capacity::ZERO || spare == Capacity::ZERO {
            return Capacity::ZERO;
        }
        if spare.is_unlimited() {
            return Capacity::UNLIMITED;
        }
        // Those who want nothing are the first in the order.
        let within = self.tree.sums_before(&handle.entry).weight;
        let within = within.saturating_sub(self.idle_weight);
        let before = before.saturating_add(within);
        self.part(spare.as_micros(), before, handle.entry.weight, active)
    }

    /// The weights of those who want something.
    pub(super) fn active_weight(&self) -> u64 {
        self.sum_weights().saturating_sub(self.idle_weight)
    }

    /// The smallest part that can be given.
    pub fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// Sum of all wants, in millionths.
    pub fn sum_wants(&self) -> u128 {
        self.tree.total().wants
    }

    /// The weights of all clients together.
    pub fn sum_weights(&self) -> u64 {
        self.tree.total().weight
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.tree.len() == 0
    }

    /// The part of `whole`, spread over `weights`, from the weight `before` to `before + weight`.
    fn part(&self, whole: u64, before: u64, weight: NonZeroU32, weights: u64) -> Capacity {
        let quantum = self.quantum.micros();
        let whole = whole.checked_div(quantum).unwrap_or(0);
        let until = |weight: u64| {
            let product = u128::from(whole).wrapping_mul(u128::from(weight));
            product.checked_div(u128::from(weights)).unwrap_or(0)
        };
        let after = before.saturating_add(u64::from(weight.get()));
        let part = until(after).saturating_sub(until(before));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        Capacity::from_micros(part.saturating_mul(quantum))
    }

    fn put(&mut self, entry: WeightedEntry<K>) {
        self.tree.insert(entry);
        if entry.wants == Capacity::ZERO {
            let weight = u64::from(entry.weight.get());
            self.idle_weight = self.idle_weight.saturating_add(weight);
        }
    }

    fn take(&mut self, entry: &WeightedEntry<K>) {
        let found = self.tree.remove(entry);
        debug_assert!(found, "the handle is of another allocation");
        if found && entry.wants == Capacity::ZERO {
            let weight = u64::from(entry.weight.get());
            self.idle_weight = self.idle_weight.saturating_sub(weight);
        }
    }

    /// The level at which `capacity`, a number below the sum of the wants, is used up.
    ///
    /// A client is satisfied if the capacity suffices for raising everyone who wants as much per
    /// weight or more to its level, after all who want less have got their wants. What that takes
    /// only grows along the order, also at made-up entries: the walk's condition.
    fn level(&self, capacity: Capacity) -> Level {
        let total = self.tree.total();
        let capacity = capacity.as_micros();
        let satisfied = self.tree.sums_while(|before, entry| {
            let Some(rest) = u128::from(capacity).checked_sub(before.wants) else {
                return false;
            };
            let others = u128::from(total.weight.saturating_sub(before.weight));
            let wants = u128::from(entry.wants.as_micros());
            // Below 2^128 and 2^96: products of u64 by u64 and of u64 by u32.
            wants.wrapping_mul(others) <= rest.wrapping_mul(u128::from(entry.weight.get()))
        });
        debug_assert!(satisfied.wants <= u128::from(capacity));
        Level {
            rest: capacity.saturating_sub(u64::try_from(satisfied.wants).unwrap_or(u64::MAX)),
            rest_weight: total.weight.saturating_sub(satisfied.weight),
            satisfied_weight: satisfied.weight,
        }
    }
}

// === impl Level ===

impl Level {
    /// Whether `wants` per `weight` is at most the level, `rest / rest_weight`.
    fn covers(&self, wants: Capacity, weight: NonZeroU32) -> bool {
        let wants = u128::from(wants.as_micros()).wrapping_mul(u128::from(self.rest_weight));
        wants <= u128::from(self.rest).wrapping_mul(u128::from(weight.get()))
    }
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(all(test, not(all(target_family = "wasm", target_os = "unknown"))))]
mod laws;
