//! Grants: the lease that a client gets now.

use core::time::Duration;

use super::{Allocation, ClientEntry, CountedLease};
use crate::lease::{Claim, LeaseRequest, NO_FINGERPRINT};
use crate::lease_times::LeaseTimes;
use crate::limit::{Guarantees, Limit};
use crate::units::{Capacity, Instant};

/// Lease that a client gets, and the interval after which it should ask again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The part that the lease table counts.
    pub(super) counted: CountedLease,
    /// The lease that the client is told, if it differs: the one that it says it has.
    pub(super) told: Option<CountedLease>,
    /// The time until which it is remembered that claims do not fit.
    pub(super) crowded_until: Option<Instant>,
    pub(super) fingerprint: u64,
    pub(super) refresh_interval: Duration,
    /// Capacity that the client is entitled to and has to wait for.
    pub(super) lacks: Capacity,
}

/// Capacity that a client would get if it asked now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// Its share.
    pub(super) entitled: Capacity,
    /// The same with its headroom.
    pub(super) wanted: Capacity,
    /// The part of that which others have given back.
    pub(super) gets: Capacity,
}

/// Capacity that other clients leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeCapacity {
    /// For a client to keep its lease, and for one that has none.
    pub(super) keep: Capacity,
    /// For a client to get more: without the reserve.
    pub(super) grow: Capacity,
}

// === impl Grant ===

impl Grant {
    /// A grant of `counted`, which is also told.
    pub(super) fn of(counted: CountedLease, fingerprint: u64, refresh_interval: Duration) -> Self {
        Self {
            counted,
            told: None,
            crowded_until: None,
            fingerprint,
            refresh_interval,
            lacks: Capacity::ZERO,
        }
    }
}

// === impl Allocation ===

impl Allocation {
    /// Decides the grant for `request` of a client that uses so much.
    pub(super) fn grant(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
    ) -> Grant {
        let times = self.times(now);
        if self.is_pending() {
            return self.keep(now, entry, used, request, &times);
        }
        let own = self.limit.capacity.min(self.lendable());
        if own.is_unlimited() && self.pool.is_none() {
            let expiry = now.saturating_add(self.lease_length(now, entry, &times));
            let counted = CountedLease::new(Capacity::UNLIMITED, expiry);
            return Grant::of(counted, NO_FINGERPRINT, times.refresh);
        }
        if now < self.learning_until {
            return match self.lendable {
                Some(_) => self.confirm_borrowed(now, entry, used, request),
                None => self.confirm(now, entry, used, request),
            };
        }
        self.share(now, entry, used, request, &times)
    }

    /// The client's share, as far as other clients have given back.
    fn share(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
        times: &LeaseTimes,
    ) -> Grant {
        let expiry = now.saturating_add(self.lease_length(now, entry, times));
        let Reach { entitled, gets, .. } = self.reach(entry, used.capacity);
        let most = CountedLease::new(entitled, expiry);
        let lent = self.lent_so_far(now, entry.granted, used, request, most);
        if lent.capacity > gets && lent.expiry > now.saturating_add(times.refresh) {
            // The capacity was lowered, and others have not given back yet. No client need fall below
            // its share for that: it keeps its part of it, but only until that expires anyway.
            return Grant::of(lent, NO_FINGERPRINT, times.min_refresh);
        }
        let lacks = !suffices(gets, entitled);
        let settled = !lacks && suffices(gets, used.capacity);
        let counted = CountedLease::new(gets, expiry);
        let refresh_interval = if settled {
            times.refresh
        } else {
            times.min_refresh
        };
        Grant {
            lacks: if lacks {
                entitled.saturating_sub(gets)
            } else {
                Capacity::ZERO
            },
            ..Grant::of(counted, self.fingerprint(), refresh_interval)
        }
    }

    /// Length of the lease that the client gets now. A young one's is short where clients have gone
    /// silent, for it may be the next of them, and while the lease table fills.
    fn lease_length(&self, now: Instant, entry: &ClientEntry, times: &LeaseTimes) -> Duration {
        let is_short = self.silent > 0 || self.is_filling;
        if is_short && entry.presence.is_young(now) {
            times.lease.min(self.times_alone().first_lease())
        } else {
            times.lease
        }
    }

    /// Capacity that the client would get now, if it uses so much.
    pub(super) fn reach(&self, entry: &ClientEntry, used: Capacity) -> Reach {
        let free = self.free(entry.has());
        let (entitled, headroom) = if self.is_to_draw(entry) {
            (Capacity::ZERO, Capacity::ZERO)
        } else if self.draws_permits(entry) {
            (self.entitled(entry), Capacity::ZERO)
        } else {
            (self.entitled(entry), self.headroom(entry))
        };
        let wanted = entitled.saturating_add(headroom);
        // A client that has nothing is let into the reserve; the others keep their part of the share.
        let sure = match entry.has() {
            Capacity::ZERO => entitled,
            // Requests in flight keep their permits until they end, so these stay leased.
            _ if self.draws_permits(entry) => used,
            _ => entitled.min(used),
        };
        Reach {
            entitled,
            wanted,
            gets: wanted.min(free.grow).max(sure.min(free.keep)),
        }
    }

    /// Part of `most` that the client has by leases of which the end is known. Of several it is
    /// known of the last one; those before it that were larger end no later than is counted, and
    /// only the client knows when. (Capacity that is lent while the parent is away is no part of a
    /// sum.) A snapshot that was taken over may let a lease last longer than its client does.
    fn lent_so_far(
        &self,
        now: Instant,
        granted: CountedLease,
        used: CountedLease,
        request: &LeaseRequest,
        most: CountedLease,
    ) -> CountedLease {
        if self.lends_safe() {
            return used.min(most);
        }
        let counted = match request.claim {
            Claim::Lease => used,
            Claim::Several | Claim::AtLeast => granted.min(used),
        };
        let left = request.remaining.filter(|_| request.has > Capacity::ZERO);
        let by_client = left.map_or(most.expiry, |left| now.saturating_add(left));
        let expiry = most.expiry.min(by_client);
        counted.min(CountedLease::new(most.capacity, expiry))
    }

    /// Confirms in learning mode, where capacity is borrowed: the client's lease, as far as it
    /// still wants it, and prolonged if it fits into what is borrowed today.
    fn confirm_borrowed(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
    ) -> Grant {
        let times = self.times(now);
        let claim = used.capacity.min(entry.wants());
        if claim > self.free(entry.has()).keep {
            return self.keep(now, entry, used, request, &times);
        }
        let counted = CountedLease::new(claim, now.saturating_add(times.lease));
        let fingerprint = request.fingerprint.max(NO_FINGERPRINT);
        let settled = suffices(claim, used.capacity);
        Grant::of(
            counted,
            fingerprint,
            self.learning_interval(now, &times, settled),
        )
    }

    /// The interval after which a client is to ask again in learning mode, if it has `settled` on
    /// its lease.
    pub(super) fn learning_interval(
        &self,
        now: Instant,
        times: &LeaseTimes,
        settled: bool,
    ) -> Duration {
        let left = self.learning_until.saturating_since(now);
        if settled {
            times.refresh.min(left).max(times.min_refresh)
        } else {
            times.min_refresh
        }
    }

    /// Keeps the client's lease, as far as it still wants it and for as long as it has it: there is
    /// more out than is borrowed, or it is not known yet how much is. A snapshot that was taken
    /// over may let it last longer, for it does not age on its way; the client knows. Nor does it
    /// last longer than the borrowed lease.
    ///
    /// Capacity that a coordinator has by the word of its own clients may have been said long ago,
    /// and be in use no more. It is counted; but it is not lent again to one that would lend it to
    /// others, except for its part of the safe capacity.
    fn keep(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
        times: &LeaseTimes,
    ) -> Grant {
        let capacity = used.capacity.min(entry.wants());
        let longest = now.saturating_add(times.lease);
        let expiry = if capacity > Capacity::ZERO {
            let by_client = request
                .remaining
                .map_or(longest, |left| now.saturating_add(left));
            used.expiry.min(by_client).min(longest)
        } else {
            longest
        };
        let safe = if self.lends_safe() {
            capacity.min(self.entitled(entry))
        } else {
            Capacity::ZERO
        };
        let safe = CountedLease::new(safe, expiry);
        let counted = CountedLease::new(capacity, expiry);
        Grant {
            told: (request.claim == Claim::AtLeast).then_some(safe),
            ..Grant::of(counted, NO_FINGERPRINT, times.min_refresh)
        }
    }

    /// Capacity that the client is entitled to, as far as it wants it.
    pub(super) fn entitled(&self, entry: &ClientEntry) -> Capacity {
        match self.by_usage(entry) {
            Some(share) => share,
            None => self.entitled_by_wants(entry),
        }
    }

    /// The same by what all want alone.
    pub(super) fn entitled_by_wants(&self, entry: &ClientEntry) -> Capacity {
        let Limit {
            algorithm,
            guaranteed,
            ..
        } = &self.limit;
        let share = |guaranteed| {
            let handles = &entry.handles;
            self.shares
                .share(handles, self.allotted(), *algorithm, guaranteed)
        };
        if self.lends_safe() {
            // It is there for each client, not for those of a high priority before the others.
            share(&self.guaranteed_safe())
        } else {
            share(guaranteed)
        }
    }

    /// Minimums of the bands while safe capacity is lent.
    fn guaranteed_safe(&self) -> Guarantees {
        let each = self.lendable().divided_by(self.shares.subclients());
        self.shares.guarantee_each(each)
    }

    /// Capacity that the clients may divide, here and in the pool.
    pub(super) fn allotted(&self) -> Capacity {
        let allotted = self.pool.map_or(Capacity::UNLIMITED, |pool| pool.allotted);
        self.divided().min(allotted)
    }

    /// This client's part of the unwanted capacity.
    fn headroom(&self, entry: &ClientEntry) -> Capacity {
        if self.limit.algorithm.shares() {
            self.shares.spare(&entry.handles, self.spare())
        } else {
            Capacity::ZERO
        }
    }

    /// The unwanted capacity that may be lent.
    pub(super) fn spare(&self) -> Capacity {
        let left = self.divided().left_of(self.shares.sum_wants());
        // Without a limit of its own all the pool's spare is spread.
        let spare = if left.is_unlimited() {
            left
        } else {
            self.limit.headroom.of(left)
        };
        self.pool.map_or(spare, |pool| spare.min(pool.spare))
    }

    /// Capacity that all others leave, here and in the pool, beside the `held` of one client.
    pub(super) fn free(&self, held: Capacity) -> FreeCapacity {
        self.free_of(self.lendable(), held)
    }

    /// The same if no more than `lendable` is borrowed.
    pub(super) fn free_of(&self, lendable: Capacity, held: Capacity) -> FreeCapacity {
        let held = u128::from(held.as_micros());
        let own = self.shared_capacity();
        let used = self.sum_has.saturating_add(self.draws.cut_off);
        let mut free = FreeCapacity::of(own.min(lendable), self.divided(), used, held);
        if let Some(pool) = self.pool {
            let used = pool.sums.has.saturating_add(pool.sums.draws.cut_off);
            let theirs = FreeCapacity::of(pool.sums.capacity, pool.divided, used, held);
            free.keep = free.keep.min(theirs.keep);
            free.grow = free.grow.min(theirs.grow);
        }
        let quantum = self.shares.quantum();
        FreeCapacity {
            keep: quantum.floor(free.keep),
            grow: quantum.floor(free.grow),
        }
    }
}

// === impl FreeCapacity ===

impl FreeCapacity {
    /// Capacity that is left of `capacity`, of which `divided` is without the reserve, if `lent` is
    /// lent, of which `held` is the client's own.
    fn of(capacity: Capacity, divided: Capacity, lent: u128, held: u128) -> Self {
        let others = lent.saturating_sub(held);
        Self {
            keep: capacity.left_of(others),
            grow: divided.left_of(others),
        }
    }
}

// === free functions ===

/// Whether a client that gets `gets` may come back at leisure although `aim` would be right.
///
/// A client that waits for others to give back, or has to confirm that it gave back, should ask
/// again soon, so that a shift of demand is settled within about one short refresh. But one client
/// whose demand sways moves the shares of all the others a little, and for a hundredth of them they
/// need not all hurry at once.
pub(super) fn suffices(gets: Capacity, aim: Capacity) -> bool {
    gets.as_micros() >= aim.as_micros().saturating_sub(aim.as_micros() / 100)
}
