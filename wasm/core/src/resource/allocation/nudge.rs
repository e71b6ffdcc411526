//! Nudges: whose lease would change by more than noise, if its client asked now.
//!
//! A client that shrinks does so in two requests: the first tells it the lower lease, the second
//! acknowledges that, and only then the difference is free for others. So three clients may be
//! named in turn: one that holds more than its share while another lacks it, the same one again to
//! confirm, and the other one to take it. Each step follows from the lease table alone; so a nudge
//! that is lost or comes twice changes nothing but the time.

use super::{Allocation, Capacity, ClientEntry, Instant};

/// The least part of a lease whose change is worth a message.
const NOISE_PART: u64 = 10;

/// The least part of what a client lacks that another one gives back before its time.
const RELIEF_PART: u64 = 16;

// === impl Allocation ===

impl Allocation {
    /// Time at which the client of `entry` should ask again, now or soon, rather than after its
    /// refresh interval; none if that is early enough.
    ///
    /// Within the minimum interval after the last nudge only if there has been another decision
    /// since: so a nudge that brings nothing is not repeated at once.
    pub(in crate::resource) fn should_refresh_at(
        &self,
        now: Instant,
        entry: &ClientEntry,
    ) -> Option<Instant> {
        if entry.presence.silent {
            return None;
        }
        let min_refresh = self.times(now).min_refresh;
        let waits = entry.nudged_at.is_some_and(|nudged_at| {
            now < nudged_at.saturating_add(min_refresh) && entry.granted_at <= nudged_at
        });
        if waits || !self.divides(now) {
            return None;
        }
        if self.would_confirm(now, entry) || self.would_grow(entry, entry.wants()) {
            return Some(now);
        }
        // One that was answered just now would be told the same again, were it not to get more.
        let decided_from = entry.granted_at.saturating_add(min_refresh);
        self.would_relieve(now, entry)
            .then(|| decided_from.max(now))
    }

    /// Whether the client of `entry`, which has just been answered, should ask again at once, because
    /// others wait until it confirms its lower lease.
    pub(in crate::resource) fn names_again(&self, now: Instant, entry: &mut ClientEntry) -> bool {
        let names = entry.prior.is_some() && self.should_refresh_at(now, entry) == Some(now);
        if names {
            entry.nudged_at = Some(now);
        }
        names
    }

    /// Whether a client that wanted `wants` would get more than it has, by more than noise.
    pub(super) fn would_grow(&self, entry: &ClientEntry, wants: Capacity) -> bool {
        let granted = entry.granted.capacity;
        if granted >= wants {
            return false;
        }
        let reach = self.reach(entry, granted);
        reach.gets.saturating_sub(granted) > part(reach.entitled.max(granted), NOISE_PART)
    }

    /// Whether a client holds more than its share and headroom, by more than noise, while another
    /// lacks it or more is lent than there is.
    fn would_relieve(&self, now: Instant, entry: &ClientEntry) -> bool {
        if entry.gives_back {
            // All of them are in flight.
            return false;
        }
        let granted = entry.granted.capacity;
        let lack = self.lack_at(now);
        if granted == Capacity::ZERO || (lack == Capacity::ZERO && !self.is_overlent()) {
            return false;
        }
        let excess = granted.saturating_sub(self.reach(entry, granted).wanted);
        excess > part(granted, NOISE_PART)
            || (lack > Capacity::ZERO && excess > part(lack, RELIEF_PART))
    }

    /// Whether a client that has been told a lower lease keeps others waiting until it confirms.
    fn would_confirm(&self, now: Instant, entry: &ClientEntry) -> bool {
        let has = entry.has();
        let unconfirmed = has.saturating_sub(entry.granted.capacity);
        if unconfirmed == Capacity::ZERO {
            return false;
        }
        let lack = self.lack_at(now);
        let matters = unconfirmed > part(has, NOISE_PART)
            || (lack > Capacity::ZERO && unconfirmed > part(lack, RELIEF_PART));
        matters && (lack > Capacity::ZERO || self.is_awaited(unconfirmed))
    }

    /// Whether clients want the capacity that one has not confirmed to have given back: they want
    /// more than they could have without it.
    fn is_awaited(&self, unconfirmed: Capacity) -> bool {
        let granted = self.sum_has.saturating_sub(unconfirmed.as_micros().into());
        let free = self.free(Capacity::ZERO).grow;
        self.shares.sum_wants() > granted.saturating_add(free.as_micros().into())
    }

    /// Whether more is lent than there is, as after a lowered capacity.
    fn is_overlent(&self) -> bool {
        let over = |capacity: Capacity, lent: u128| {
            !capacity.is_unlimited() && lent > capacity.as_micros().into()
        };
        over(self.limit.capacity.min(self.lendable()), self.sum_has)
            || self
                .pool
                .is_some_and(|pool| over(pool.sums.capacity, pool.sums.has))
    }

    /// Capacity that a client lacks, of this resource or of its pool.
    fn lack_at(&self, now: Instant) -> Capacity {
        let pool = self.pool.map_or(Capacity::ZERO, |pool| pool.lack.at(now));
        self.lack.at(now).max(pool)
    }

    /// Whether capacity is divided now by what clients want.
    fn divides(&self, now: Instant) -> bool {
        let limited = !self.allotted().is_unlimited();
        let by_wants = self.limit.algorithm.shares() && !self.limit.algorithm.goes_by_usage();
        let learned = now >= self.learning_until && !self.is_pending();
        limited && by_wants && learned && !self.lends_safe()
    }

    /// Notes a change of the sum of leases from `had`. Returns whether clients should be looked at
    /// for it: freed capacity counts if somebody wants it, and if it would change leases by more
    /// than noise, were it divided between all.
    pub(in crate::resource) fn frees(&self, had: u128) -> bool {
        let freed = had.saturating_sub(self.sum_has);
        let clients = u128::from(self.shares.active());
        let noise = u128::from(part(self.allotted(), NOISE_PART).as_micros());
        freed > 0 && freed.saturating_mul(clients) > noise && self.shares.sum_wants() > self.sum_has
    }
}

// === free functions ===

/// The `parts`-th part of `capacity`.
fn part(capacity: Capacity, parts: u64) -> Capacity {
    capacity.divided_by(parts)
}
