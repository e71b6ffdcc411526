//! Charges of requests that may come again.
//!
//! A proxy may send a request through its filters again, such as for a redirect that it follows itself.
//! The obvious way to charge it once is a mark that the first pass leaves with the request; that would
//! cost every request a call of the host. So a stream that ends hands its charge to the one that begins
//! next, and the host asks where that one's request comes from only if it has a scope of the charge.

use tollgate_core::units::Tokens;

use super::{Admission, BucketId, Request, Target};
use crate::config::RULES_MAX;
use crate::rules::Rules;

/// The most scopes of which no memory is allocated; every request has a charge.
const FIRST_MAX: usize = 3;
/// The most scopes that are remembered of several passes.
const BUCKETS_MAX: usize = RULES_MAX * 4;

/// Scopes that a request has been charged for in all its passes, and how much.
#[derive(Clone, Debug, Default)]
pub struct Charge {
    /// The first scopes of the last pass.
    first: [Target; FIRST_MAX],
    first_len: usize,
    /// Tokens that the last pass cost in all, in each of these.
    cost: Tokens,
    /// Round of housekeeping that it was charged in.
    round: u64,
    /// Redirects that the proxy had followed for it.
    redirects: u32,
    /// True if some scopes use the capacity of another scope as well.
    has_canonical: bool,
    others: Option<Box<Prepaid>>,
}

/// Part of a request that has been charged in earlier passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepaid {
    buckets: Vec<(BucketId, Tokens)>,
    request_bytes: u64,
}

// === impl Charge ===

impl Charge {
    /// Makes it that of a request which has been charged nothing.
    #[inline]
    pub fn clear(&mut self) {
        self.first_len = 0;
        self.has_canonical = false;
        self.others = None;
    }

    /// Returns whether it is that of the pass before one for which the proxy has followed so many
    /// redirects.
    pub fn is_before(&self, redirects: u32) -> bool {
        redirects.checked_sub(1) == Some(self.redirects)
    }

    /// Adds a pass that is charged nothing, if it is one of the same request.
    pub fn add_pass(&mut self) {
        self.redirects = self.redirects.saturating_add(1);
    }

    /// Adds the bytes of the request's body that have been counted.
    pub fn add_request_bytes(&mut self, bytes: u64) {
        if bytes > 0 {
            let others = self.others.get_or_insert_default();
            others.request_bytes = others.request_bytes.max(bytes);
        }
    }

    /// Forgets a bucket that has given back what it was charged.
    pub(super) fn forget(&mut self, bucket: BucketId) {
        if let Some(others) = &mut self.others {
            others.buckets.retain(|(other, _)| *other != bucket);
        }
        let first = self.first.get_mut(..self.first_len).unwrap_or_default();
        if let Some(place) = first.iter().position(|target| target.bucket() == bucket) {
            first.get_mut(place..).unwrap_or_default().rotate_left(1);
            self.first_len = self.first_len.saturating_sub(1);
        }
    }

    #[inline(never)]
    fn note_others(&mut self, request: &Request, first_len: usize) {
        for target in request.own_targets().iter().skip(first_len) {
            let others = self.others.get_or_insert_default();
            others.add(target.bucket(), request.whole_cost(target.rule));
        }
    }

    #[inline]
    fn first(&self) -> &[Target] {
        self.first.get(..self.first_len).unwrap_or_default()
    }

    #[inline]
    fn has(&self, bucket: BucketId) -> bool {
        let mut first = self.first().iter();
        let others = self.others.as_ref();
        first.any(|target| target.bucket() == bucket)
            || others.is_some_and(|others| others.of(bucket).is_some())
    }

    /// Returns the buckets, some of them twice, with what each has had at least.
    fn buckets(&self) -> impl Iterator<Item = (BucketId, Tokens)> {
        let first = self.first().iter();
        let first = first.map(|target| (target.bucket(), self.cost));
        let others = self.others.iter();
        first.chain(others.flat_map(|others| others.buckets.iter().copied()))
    }
}

// === impl Prepaid ===

impl Prepaid {
    /// Returns the tokens that a bucket has had; none if it has not been charged.
    pub(super) fn of(&self, bucket: BucketId) -> Option<Tokens> {
        let mut buckets = self.buckets.iter();
        buckets
            .find(|(other, _)| *other == bucket)
            .map(|(_, cost)| *cost)
    }

    /// Returns the bytes of the request's body that a bucket has been charged for.
    pub(super) fn bytes_of(&self, bucket: BucketId) -> u64 {
        self.of(bucket).map_or(0, |_| self.request_bytes)
    }

    /// Adds a bucket that has had at least so many tokens.
    fn add(&mut self, bucket: BucketId, cost: Tokens) {
        let mut buckets = self.buckets.iter_mut();
        if let Some((_, known)) = buckets.find(|(other, _)| *other == bucket) {
            *known = cost.max(*known);
        } else if self.buckets.len() < BUCKETS_MAX {
            self.buckets.push((bucket, cost));
        }
    }
}

// === impl Request ===

impl Request {
    /// Returns whether the request has come before and was charged then.
    #[inline]
    pub(crate) fn is_prepaid(&self) -> bool {
        self.prepaid.is_some()
    }

    /// Returns what a bucket has had in earlier passes; none if it has not been charged.
    pub(crate) fn prepaid_at(&self, target: Target) -> Option<Tokens> {
        self.prepaid.as_ref()?.of(target.bucket())
    }
}

// === impl Admission ===

impl Admission {
    /// Notes in `charge` what a request has been charged once it goes on, with its earlier passes if it
    /// has any. The proxy has followed so many redirects for it.
    #[inline]
    pub(crate) fn note_charge(&self, request: &mut Request, redirects: u32, charge: &mut Charge) {
        let others = request.prepaid.take();
        let own = request.own_targets();
        for (place, target) in charge.first.iter_mut().zip(own) {
            *place = *target;
        }
        charge.first_len = if request.reservations.is_empty() {
            own.len().min(FIRST_MAX)
        } else {
            0
        };
        charge.cost = request.cost;
        charge.round = self.rounds;
        charge.redirects = redirects;
        charge.has_canonical = request.has_canonical;
        charge.others = others;
        if own.len() > charge.first_len {
            charge.note_others(request, charge.first_len);
        }
    }

    /// Returns whether a request needs a scope that an `earlier` one was charged for.
    #[inline]
    pub(crate) fn shares_scope(&self, rules: &Rules, request: &Request, earlier: &Charge) -> bool {
        let mut targets = request.own_targets().iter();
        targets.any(|target| earlier.has(target.bucket()))
            || earlier.has_canonical && self.shares_canonical(rules, request, earlier)
    }

    /// Returns whether some scopes of both use the capacity of the same one.
    #[cold]
    fn shares_canonical(&self, rules: &Rules, request: &Request, earlier: &Charge) -> bool {
        let earlier = self.prepaid(rules, earlier);
        let targets = request.own_targets().iter();
        let mut buckets = targets.flat_map(|target| self.buckets(rules, *target));
        buckets.any(|bucket| earlier.of(bucket).is_some())
    }

    /// Makes a request go on from an `earlier` pass, before it is decided on: each scope that was
    /// charged then is charged for what it costs more now, and for what its body has more.
    #[cold]
    pub(crate) fn go_on_from(&self, rules: &Rules, request: &mut Request, earlier: &Charge) {
        let prepaid = self.prepaid(rules, earlier);
        request.prepaid = (!prepaid.buckets.is_empty()).then(|| Box::new(prepaid));
    }

    /// Returns what was charged in an `earlier` pass, canonical scopes included.
    fn prepaid(&self, rules: &Rules, earlier: &Charge) -> Prepaid {
        let mut prepaid = Prepaid::default();
        if let Some(others) = &earlier.others {
            prepaid.request_bytes = others.request_bytes;
        }
        for ((table, index), cost) in earlier.buckets() {
            let scopes = self.scopes(table);
            let entry = scopes.and_then(|scopes| scopes.get(index));
            // The place may be another scope's since.
            if entry.is_some_and(|entry| entry.born <= earlier.round) {
                for bucket in self.buckets(rules, Target::of(table, index)) {
                    prepaid.add(bucket, cost);
                }
            }
        }
        prepaid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scopes_of_many_passes_are_bounded() {
        let mut prepaid = Prepaid::default();
        for table in 0..1000 {
            prepaid.add((table, 7), Tokens::ONE);
        }
        assert_eq!(prepaid.buckets.len(), BUCKETS_MAX);
        assert_eq!(prepaid.of((0, 7)), Some(Tokens::ONE));
        assert_eq!(prepaid.of((999, 7)), None);
    }
}
