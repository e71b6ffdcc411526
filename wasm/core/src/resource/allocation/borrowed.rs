//! Bucket of a limit that is borrowed of a parent: it earns what the parent's lease lends.

use super::Allocation;
use crate::fleet::FleetSums;
use crate::lendable::LendableSource;
use crate::units::{Capacity, Instant, Tokens, mul_div};

// === impl Allocation ===

impl Allocation {
    /// Whether the tokens of its bucket are a parent's. Of one without a limit they are its own.
    pub(super) fn is_borrowed(&self) -> bool {
        let lease = self.lendable.and_then(|lendable| lendable.lease());
        lease.is_some_and(|(capacity, _)| !capacity.is_unlimited())
    }

    /// The earlier of `now` and the end of the parent's lease: until then the bucket earns.
    pub(super) fn lent_until(&self, now: Instant) -> Instant {
        match self.lendable.map(|lendable| lendable.source) {
            Some(LendableSource::Lease { until, .. }) => until.min(now),
            _ => now,
        }
    }

    /// Fits the bucket to the part of the limit that is borrowed now. Tokens for which it has no room any more go back to
    /// the parent.
    pub(super) fn resize_bucket(&mut self, now: Instant) {
        if self.lendable.is_some() {
            let sums = self.own_sums();
            let surplus = self.fleet.set_borrowed(now, sums.as_ref());
            if self.is_borrowed() {
                self.surplus = self.surplus.saturating_add(surplus);
            }
        }
    }

    /// Takes tokens that came with the parent's lease.
    pub(crate) fn receive(&mut self, now: Instant, tokens: Tokens) {
        let counts = self.is_borrowed() && !self.unit.is_concurrency();
        let Some(sums) = self.own_sums().filter(|_| counts) else {
            return;
        };
        self.begin_borrowed(now, &sums);
        self.fleet.fill(now, &sums);
        let before = self.fleet.left(now);
        self.fleet.give_back(now, tokens);
        let taken = self.fleet.left(now).saturating_sub(before);
        let surplus = tokens.saturating_sub(taken);
        self.surplus = self.surplus.saturating_add(surplus);
    }

    /// Begins with what was to go back to the parent, if there is no bucket yet.
    pub(super) fn begin_borrowed(&mut self, now: Instant, sums: &FleetSums) {
        if self.fleet.bucket.is_none() {
            self.fleet.begin_empty(now, sums.burst);
            let surplus = self.take_surplus();
            self.fleet.give_back(now, surplus);
        }
    }

    /// Gives the tokens of a bucket without clients back, once a bucket of the whole limit would have earned what it lacks.
    pub(super) fn give_bucket_back(&mut self, now: Instant) {
        let whole = self
            .lendable
            .map_or(Capacity::ZERO, |lendable| lendable.whole);
        let full_at = self.fleet.full_at(whole).unwrap_or(now);
        let until = *self.deserted_until.get_or_insert(full_at);
        if until <= now {
            let left = self.fleet.left(now);
            self.surplus = self.surplus.saturating_add(left);
            self.fleet.bucket = None;
        }
    }

    /// Forgets tokens that ended with the parent's lease, if that is over.
    pub(super) fn end_with_lease(&mut self, now: Instant) {
        let source = self.lendable.map(|lendable| lendable.source);
        if let Some(LendableSource::Lease { until, .. }) = source
            && until <= now
            && self.is_borrowed()
        {
            self.fleet.bucket = None;
            self.surplus = Tokens::ZERO;
        }
    }

    /// Returns tokens that are to go back to the parent.
    pub(crate) fn take_surplus(&mut self) -> Tokens {
        core::mem::take(&mut self.surplus)
    }

    /// Tokens for which the bucket has room.
    pub(crate) fn lacks(&mut self, now: Instant) -> Tokens {
        self.fill(now);
        let has_bucket = self.fleet.bucket.is_some() && self.is_borrowed();
        let room = self.own_sums().filter(|_| has_bucket);
        room.map_or(Tokens::ZERO, |sums| {
            sums.room().saturating_sub(self.fleet.left(now))
        })
    }

    /// Takes all tokens that are to go back to the parent: no client has them, and none is left.
    pub(crate) fn take_left(&mut self, now: Instant) -> Tokens {
        self.fill(now);
        let left = if self.is_borrowed() {
            self.fleet.left(now)
        } else {
            Tokens::ZERO
        };
        self.take_surplus().saturating_add(left)
    }

    /// The most that clients may be using, in micro-units: what is lent to them, what those use that are cut off, and as
    /// much of what is borrowed as goes with the tokens that they hold.
    pub(crate) fn lent(&self) -> Capacity {
        let held = self.drawable().map_or(0, |(capacity, burst)| {
            let holds = u64::try_from(self.draws.holds).unwrap_or(u64::MAX);
            mul_div(capacity.as_micros(), holds, burst.as_micros().into())
        });
        let sum = self.sum_has.saturating_add(self.draws.cut_off);
        Capacity::from_sum(sum.saturating_add(held.into()))
    }
}
