//! An ordered tree of clients with sums of their weights and wants.
//!
//! The obvious structures cost more: a sorted list is O(n) per refresh, and a binary tree of
//! 100 000 clients takes some 17 dependent cache misses to walk. This is a B+ tree: a leaf holds
//! its clients side by side, an inner node holds the sums of its children side by side, so that a
//! walk touches four nodes. Nodes own their children; there is no arena, no free list and no
//! parent link to keep right.
//!
//! A node that falls below a quarter of its size is joined with a neighbour if both fit into
//! one. Two neighbours are therefore never both that small, which bounds memory and depth.

use crate::units::Capacity;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::num::NonZeroU32;

/// Most clients in a leaf: 24 bytes each, so that an insertion moves less than a kilobyte.
const LEAF_MAX: usize = 32;
/// Most children of an inner node; a walk reads the sums of half of them on average.
const INNER_MAX: usize = 16;

/// A client as the tree orders it: by wants per weight, then key, then serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightedEntry<K> {
    pub(super) key: K,
    pub(super) wants: Capacity,
    pub(super) weight: NonZeroU32,
    /// Tells clients of equal key apart, so that no two entries are ever equal.
    pub(super) serial: u32,
}

/// Sums over some clients: weights, and wants in millionths.
///
/// Packed because a u128 would pad it to 32 bytes, and walks over sums wait for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(8))]
pub(super) struct Sums {
    pub(super) weight: u64,
    pub(super) wants: u128,
}

/// The tree. `total` equals the sums over all entries, `len` is their number.
#[derive(Debug)]
pub(super) struct SumTree<K> {
    root: SumTreeNode<K>,
    total: Sums,
    len: usize,
}

#[derive(Debug)]
enum SumTreeNode<K> {
    Leaf(Vec<WeightedEntry<K>>),
    Inner(Vec<Branch<K>>),
}

/// A child of an inner node.
#[derive(Debug)]
struct Branch<K> {
    /// No entry of this child is below it and every entry of the child before is; meaningless
    /// for the first child, which takes whatever is below the second.
    floor: WeightedEntry<K>,
    sums: Sums,
    node: SumTreeNode<K>,
}

// === impl WeightedEntry ===

impl<K: Ord> Ord for WeightedEntry<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.per_weight(other)
            .cmp(&other.per_weight(self))
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| self.serial.cmp(&other.serial))
            .then_with(|| self.weight.cmp(&other.weight))
    }
}

impl<K: Ord> PartialOrd for WeightedEntry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> WeightedEntry<K> {
    /// This entry's side of the comparison of wants/weight without division; below 2^96.
    fn per_weight(&self, other: &Self) -> u128 {
        let (wants, weight) = (self.wants.as_micros(), other.weight.get());
        u128::from(wants).wrapping_mul(u128::from(weight))
    }

    fn sums(&self) -> Sums {
        Sums {
            weight: u64::from(self.weight.get()),
            wants: u128::from(self.wants.as_micros()),
        }
    }
}

// === impl Sums ===

// Saturation is out of reach: 2^32 clients of the largest weight and wants stay below 2^96.
impl Sums {
    fn plus(self, other: Self) -> Self {
        Self {
            weight: self.weight.saturating_add(other.weight),
            wants: self.wants.saturating_add(other.wants),
        }
    }

    fn minus(self, other: Self) -> Self {
        debug_assert!(self.weight >= other.weight && self.wants >= other.wants);
        Self {
            weight: self.weight.saturating_sub(other.weight),
            wants: self.wants.saturating_sub(other.wants),
        }
    }
}

// === impl SumTree ===

impl<K: Copy + Ord> SumTree<K> {
    pub(super) const fn new() -> Self {
        Self {
            root: SumTreeNode::Leaf(Vec::new()),
            total: Sums {
                weight: 0,
                wants: 0,
            },
            len: 0,
        }
    }

    pub(super) fn total(&self) -> Sums {
        self.total
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, entry: WeightedEntry<K>) {
        self.total = self.total.plus(entry.sums());
        self.len = self.len.saturating_add(1);
        let Some(right) = self.root.insert(entry) else {
            return;
        };
        let node = core::mem::replace(&mut self.root, SumTreeNode::Leaf(Vec::new()));
        let left = Branch {
            floor: entry,
            sums: self.total.minus(right.sums),
            node,
        };
        let mut branches = Vec::with_capacity(INNER_MAX.saturating_add(1));
        branches.extend([left, right]);
        self.root = SumTreeNode::Inner(branches);
    }

    /// Takes `entry` out; false if it is not in the tree.
    pub(super) fn remove(&mut self, entry: &WeightedEntry<K>) -> bool {
        if !self.root.remove(entry) {
            return false;
        }
        self.total = self.total.minus(entry.sums());
        self.len = self.len.saturating_sub(1);
        while let SumTreeNode::Inner(branches) = &mut self.root
            && branches.len() <= 1
        {
            self.root = match branches.pop() {
                Some(only) => only.node,
                None => SumTreeNode::Leaf(Vec::new()),
            };
        }
        true
    }

    /// The sums over the longest run of first entries for which `holds`.
    ///
    /// `holds` gets the sums over all entries before one, and that one. It must not turn true
    /// again once it is false, and must keep that promise for the made-up entries at the bounds
    /// between nodes, which lie in the order but are not counted in the sums.
    pub(super) fn sums_while(&self, holds: impl Fn(Sums, &WeightedEntry<K>) -> bool) -> Sums {
        let mut before = Sums::default();
        let mut node = &self.root;
        loop {
            match node {
                SumTreeNode::Inner(branches) => {
                    let mut rest = branches.iter();
                    let Some(mut here) = rest.next() else {
                        return before;
                    };
                    for next in rest {
                        let with_here = before.plus(here.sums);
                        if !holds(with_here, &next.floor) {
                            break;
                        }
                        before = with_here;
                        here = next;
                    }
                    node = &here.node;
                }
                SumTreeNode::Leaf(entries) => {
                    for entry in entries {
                        if !holds(before, entry) {
                            break;
                        }
                        before = before.plus(entry.sums());
                    }
                    return before;
                }
            }
        }
    }

    /// The sums over all entries before `entry`.
    pub(super) fn sums_before(&self, entry: &WeightedEntry<K>) -> Sums {
        self.sums_while(|_, other| other < entry)
    }
}

// === impl SumTreeNode ===

impl<K: Copy + Ord> SumTreeNode<K> {
    /// Inserts, and returns the upper half as a new right neighbour if the node was full.
    fn insert(&mut self, entry: WeightedEntry<K>) -> Option<Branch<K>> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.partition_point(|other| *other < entry);
                entries.insert(at, entry);
                let upper = upper_half(entries, LEAF_MAX)?;
                let floor = *upper.first()?;
                let sums = upper.iter().map(WeightedEntry::sums);
                Some(Branch {
                    floor,
                    sums: sums.fold(Sums::default(), Sums::plus),
                    node: Self::Leaf(upper),
                })
            }
            Self::Inner(branches) => {
                let at = child_for(branches, &entry);
                let child = branches.get_mut(at)?;
                child.sums = child.sums.plus(entry.sums());
                let right = child.node.insert(entry)?;
                child.sums = child.sums.minus(right.sums);
                branches.insert(at.saturating_add(1), right);
                let upper = upper_half(branches, INNER_MAX)?;
                let floor = upper.first()?.floor;
                let sums = upper.iter().map(|branch| branch.sums);
                Some(Branch {
                    floor,
                    sums: sums.fold(Sums::default(), Sums::plus),
                    node: Self::Inner(upper),
                })
            }
        }
    }

    fn remove(&mut self, entry: &WeightedEntry<K>) -> bool {
        match self {
            Self::Leaf(entries) => {
                let Ok(at) = entries.binary_search(entry) else {
                    return false;
                };
                entries.remove(at);
                true
            }
            Self::Inner(branches) => {
                let at = child_for(branches, entry);
                let Some(child) = branches.get_mut(at) else {
                    return false;
                };
                if !child.node.remove(entry) {
                    return false;
                }
                child.sums = child.sums.minus(entry.sums());
                if child.node.len() == 0 {
                    branches.remove(at);
                } else if child.node.is_small() {
                    join(branches, at);
                    if let Some(before) = at.checked_sub(1) {
                        join(branches, before);
                    }
                }
                true
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(branches) => branches.len(),
        }
    }

    fn max(&self) -> usize {
        match self {
            Self::Leaf(_) => LEAF_MAX,
            Self::Inner(_) => INNER_MAX,
        }
    }

    fn is_small(&self) -> bool {
        self.len() < self.max() / 4
    }
}

// === free functions ===

/// The child that has `entry`, or should.
fn child_for<K: Ord>(branches: &[Branch<K>], entry: &WeightedEntry<K>) -> usize {
    let not_above = branches.partition_point(|branch| branch.floor <= *entry);
    // The floor of the first child is meaningless: its entries may be below it.
    not_above.saturating_sub(1)
}

/// Cuts off the upper half of `items` if there are more than `max`.
fn upper_half<T>(items: &mut Vec<T>, max: usize) -> Option<Vec<T>> {
    if items.len() <= max {
        return None;
    }
    let mut upper = Vec::with_capacity(max.saturating_add(1));
    upper.extend(items.drain(items.len() / 2..));
    Some(upper)
}

/// Joins the child at `left` with the one after it, if there is one and both fit into one node.
fn join<K>(branches: &mut Vec<Branch<K>>, left: usize)
where
    K: Copy + Ord,
{
    let right = left.saturating_add(1);
    let (Some(a), Some(b)) = (branches.get(left), branches.get(right)) else {
        return;
    };
    if a.node.len().saturating_add(b.node.len()) > a.node.max() {
        return;
    }
    let from = branches.remove(right);
    let Some(into) = branches.get_mut(left) else {
        return;
    };
    into.sums = into.sums.plus(from.sums);
    match (&mut into.node, from.node) {
        (SumTreeNode::Leaf(entries), SumTreeNode::Leaf(more)) => entries.extend(more),
        (SumTreeNode::Inner(branches), SumTreeNode::Inner(mut more)) => {
            // No longer a first child, so its floor begins to count.
            if let Some(first) = more.first_mut() {
                first.floor = from.floor;
            }
            branches.extend(more);
        }
        _ => debug_assert!(false, "neighbours are of equal depth"),
    }
}

#[cfg(test)]
mod tests;
