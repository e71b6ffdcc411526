//! Scopes that a request has been charged for.
//!
//! A proxy may send a request through its filters again, such as for a redirect that it follows itself.
//! The obvious way to charge it once is a mark that the first pass leaves with the request; that would
//! cost every request a call of the host. So the host keeps what the pass that has just ended was
//! charged, and asks where the next request comes from only if that has a scope of it.

use tollgate_core::units::Tokens;

use super::{BucketId, Request};
use crate::config::RULES_MAX;

/// The most scopes of which no memory is allocated; every request has a charge.
const FIRST_MAX: usize = 3;
/// The most scopes that are remembered of several passes.
const BUCKETS_MAX: usize = RULES_MAX * 2;

/// Scopes that a request has been charged for, and what each has had at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    first: [BucketId; FIRST_MAX],
    first_len: usize,
    others: Vec<BucketId>,
    cost: Tokens,
    request_bytes: u64,
}

/// Part of a request that has been charged in an earlier pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prepaid {
    /// A bit for each target that it is about.
    targets: u32,
    cost: Tokens,
    pub(super) request_bytes: u64,
}

// === impl Charge ===

impl Charge {
    /// Adds the bytes of the request's body that have been counted.
    pub fn add_request_bytes(&mut self, bytes: u64) {
        self.request_bytes = self.request_bytes.max(bytes);
    }

    /// Takes the place of an `earlier` one, which is forgotten.
    #[inline]
    pub fn replace(&mut self, earlier: &mut Self) {
        earlier.first = self.first;
        earlier.first_len = self.first_len;
        earlier.cost = self.cost;
        earlier.request_bytes = self.request_bytes;
        if !self.others.is_empty() || !earlier.others.is_empty() {
            earlier.others = core::mem::take(&mut self.others);
        }
    }

    /// Adds what the request was charged in an `earlier` pass. Where the passes cost differently, each
    /// scope counts as charged for the least.
    #[cold]
    pub fn merge(&mut self, earlier: &Self) {
        if earlier.first_len > 0 {
            self.cost = self.cost.min(earlier.cost);
        }
        self.request_bytes = self.request_bytes.max(earlier.request_bytes);
        for bucket in earlier.buckets() {
            if !self.has(bucket) {
                self.add(bucket);
            }
        }
    }

    fn buckets(&self) -> impl Iterator<Item = BucketId> {
        let first = self.first.iter().take(self.first_len);
        first.chain(&self.others).copied()
    }

    #[inline]
    fn has(&self, bucket: BucketId) -> bool {
        self.buckets().any(|other| other == bucket)
    }

    #[inline]
    fn add(&mut self, bucket: BucketId) {
        match self.first.get_mut(self.first_len) {
            Some(place) => {
                *place = bucket;
                self.first_len = self.first_len.saturating_add(1);
            }
            None if self.others.len() < BUCKETS_MAX => self.others.push(bucket),
            None => {}
        }
    }
}

// === impl Prepaid ===

impl Prepaid {
    pub(super) const NONE: Self = Self {
        targets: 0,
        cost: Tokens::ZERO,
        request_bytes: 0,
    };

    /// Returns whether it is about no target.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.targets == 0
    }

    /// Returns whether it is about the target at `index`.
    #[inline]
    pub(super) fn has(&self, index: usize) -> bool {
        self.targets & bit(index) != 0
    }

    /// Returns what the target at `index` has had.
    #[inline]
    pub(super) fn cost_at(&self, index: usize) -> Tokens {
        match self.has(index) {
            true => self.cost,
            false => Tokens::ZERO,
        }
    }

    pub(super) fn add(&mut self, index: usize) {
        self.targets |= bit(index);
    }
}

// === impl Request ===

impl Request {
    /// Notes in `charge`, which is empty, what the request has been charged for once it goes on.
    #[inline]
    pub fn note_charge(&self, charge: &mut Charge) {
        charge.cost = self.cost;
        for target in self.own_targets() {
            charge.add(target.bucket());
        }
    }

    /// Returns whether the request needs a scope that has been charged in an `earlier` pass.
    #[inline]
    pub fn shares_scope(&self, earlier: &Charge) -> bool {
        let mut targets = self.own_targets().iter();
        targets.any(|target| earlier.has(target.bucket()))
    }

    /// Makes the request go on from an `earlier` pass, before it is decided on: scopes that have been
    /// charged then are charged for what it costs more now, and its body for what it has more.
    #[cold]
    pub fn go_on_from(&mut self, earlier: &Charge) {
        self.prepaid = Prepaid {
            targets: 0,
            cost: earlier.cost,
            request_bytes: earlier.request_bytes,
        };
        for index in 0..self.own_targets().len() {
            let target = self.own_targets().get(index);
            if target.is_some_and(|target| earlier.has(target.bucket())) {
                self.prepaid.add(index);
            }
        }
    }
}

// === free functions ===

#[inline]
fn bit(index: usize) -> u32 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    1_u32.checked_shl(index).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scopes_of_many_passes_are_bounded() {
        let mut charge = Charge::default();
        for table in 0..100 {
            let mut next = Charge::default();
            next.add((table, 7));
            next.merge(&charge);
            assert!(next.has((table, 7)));
            charge = next;
        }
        assert_eq!(charge.buckets().count(), FIRST_MAX + BUCKETS_MAX);
        assert!(charge.has((90, 7)) && !charge.has((0, 7)));
    }
}
