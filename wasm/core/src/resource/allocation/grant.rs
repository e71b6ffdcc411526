//! What a client gets now.

use core::time::Duration;

use super::{Allocation, ClientEntry, CountedLease};
use crate::lease::{Claim, LeaseRequest, NO_FINGERPRINT};
use crate::lease_times::LeaseTimes;
use crate::limit::Limit;
use crate::units::{Capacity, Instant};

/// What a client gets, and when it should ask again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The part that the lease table counts.
    pub(super) counted: CountedLease,
    /// The lease that the client is told, if it differs: the one that it says it has.
    pub(super) told: Option<CountedLease>,
    /// Claims do not fit; that is to be remembered until then.
    pub(super) crowded_until: Option<Instant>,
    pub(super) fingerprint: u64,
    pub(super) refresh_interval: Duration,
}

/// What others leave of a capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeCapacity {
    /// For a client to keep what it has, and for one that has nothing.
    pub(super) keep: Capacity,
    /// For a client to get more: without the reserve.
    grow: Capacity,
}

// === impl Allocation ===

impl Allocation {
    /// Decides what answers `ask` of a client that uses so much.
    pub(super) fn grant(
        &self,
        now: Instant,
        entry: &ClientEntry,
        used: CountedLease,
        request: &LeaseRequest,
    ) -> Grant {
        let times = self.times(now);
        let expiry = now.saturating_add(times.lease);
        if self.is_pending() {
            return self.keep(now, entry, used, request, &times);
        }
        let own = self.limit.capacity.min(self.lendable());
        if own.is_unlimited() && self.pool.is_none() {
            let capacity = Capacity::UNLIMITED;
            return Grant {
                counted: CountedLease { capacity, expiry },
                told: None,
                crowded_until: None,
                fingerprint: NO_FINGERPRINT,
                refresh_interval: times.refresh,
            };
        }
        let free = self.free(entry.has());
        if now < self.learning_until {
            return match self.lendable {
                Some(_) => self.confirm_borrowed(now, entry, used, request),
                None => self.confirm(now, entry, used, request),
            };
        }
        let entitled = self.entitled(entry);
        let wanted = entitled.saturating_add(self.headroom(entry));
        // Who has nothing is let into the reserve; the others keep what they have of their share.
        let sure = if entry.has() == Capacity::ZERO {
            entitled
        } else {
            entitled.min(used.capacity)
        };
        let gets = wanted.min(free.grow).max(sure.min(free.keep));
        let most = CountedLease {
            capacity: entitled,
            expiry,
        };
        let kept = self.lent_so_far(now, entry.granted, used, request, most);
        if kept.capacity > gets && kept.expiry > now.saturating_add(times.refresh) {
            // The capacity was lowered, and others have not given back yet. Nobody need fall below
            // its share for that: it keeps what it has of it, but only until that expires anyway.
            return Grant {
                counted: kept,
                told: None,
                crowded_until: None,
                fingerprint: NO_FINGERPRINT,
                refresh_interval: times.min_refresh,
            };
        }
        let settled = suffices(gets, entitled) && suffices(gets, used.capacity);
        Grant {
            counted: CountedLease {
                capacity: gets,
                expiry,
            },
            told: None,
            crowded_until: None,
            fingerprint: self.fingerprint(),
            refresh_interval: if settled {
                times.refresh
            } else {
                times.min_refresh
            },
        }
    }

    /// The part of `most` that the client has by leases of which it is known when they end. Of several it is
    /// known of the last one; those before it that were larger end no later than is counted, and only
    /// the client knows when. (What is lent while the parent is away is no part of a sum.) Snapshot that
    /// were taken over may let a lease last longer than its client does.
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
        counted.min(CountedLease {
            capacity: most.capacity,
            expiry: most.expiry.min(by_client),
        })
    }

    /// In learning mode of one that borrows what it lends: what the client has, as far as it still
    /// wants it, and prolonged if it fits into what is borrowed today.
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
        let left = self.learning_until.saturating_since(now);
        Grant {
            counted: CountedLease {
                capacity: claim,
                expiry: now.saturating_add(times.lease),
            },
            told: None,
            crowded_until: None,
            fingerprint: request.fingerprint.max(NO_FINGERPRINT),
            refresh_interval: if suffices(claim, used.capacity) {
                times.refresh.min(left).max(times.min_refresh)
            } else {
                times.min_refresh
            },
        }
    }

    /// What the client has, as far as it still wants it and for as long as it has it: there is more
    /// out than is borrowed, or it is not known yet what is. Snapshot that were taken over may let it
    /// last longer, for they do not age on their way; the client knows. Nor does it last longer than
    /// what is borrowed.
    ///
    /// Capacity that a coordinator has by the word of its own clients may have been said long ago, and be in use
    /// no more. It is counted; but it is not lent again to one that would lend it to others.
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
        let nothing = CountedLease {
            capacity: Capacity::ZERO,
            expiry,
        };
        Grant {
            counted: CountedLease { capacity, expiry },
            told: (request.claim == Claim::AtLeast && !self.lends_safe()).then_some(nothing),
            crowded_until: None,
            fingerprint: NO_FINGERPRINT,
            refresh_interval: times.min_refresh,
        }
    }

    /// What the client may have of what is divided, as far as it wants it.
    pub(super) fn entitled(&self, entry: &ClientEntry) -> Capacity {
        let Limit {
            algorithm,
            guaranteed,
            ..
        } = &self.limit;
        let mut capacity = self.divided();
        if let Some(pool) = self.pool {
            capacity = capacity.min(pool.allotted);
        }
        self.shares
            .share(&entry.handles, capacity, *algorithm, guaranteed)
    }

    /// This client's part of what nobody wants.
    fn headroom(&self, entry: &ClientEntry) -> Capacity {
        if !self.limit.algorithm.shares() {
            return Capacity::ZERO;
        }
        let left = self.divided().left_of(self.sum_wants());
        // Without a limit of its own all the pool's spare is spread.
        let mut spare = if left.is_unlimited() {
            left
        } else {
            self.limit.headroom.of(left)
        };
        if let Some(pool) = self.pool {
            spare = spare.min(pool.spare);
        }
        self.shares.spare(&entry.handles, spare)
    }

    /// What all leave, here and in the pool, but for the `held` of one client.
    pub(super) fn free(&self, held: Capacity) -> FreeCapacity {
        self.free_of(self.lendable(), held)
    }

    /// The same if no more than `lendable` is borrowed.
    pub(super) fn free_of(&self, lendable: Capacity, held: Capacity) -> FreeCapacity {
        let held = u128::from(held.as_micros());
        let own = if self.limit.algorithm.shares() {
            self.limit.capacity
        } else {
            Capacity::UNLIMITED
        };
        let mut free = FreeCapacity::of(own.min(lendable), self.divided(), self.sum_has, held);
        if let Some(pool) = self.pool {
            let theirs = FreeCapacity::of(pool.capacity, pool.divided, pool.sum_has, held);
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
    /// What is left of `capacity`, of which `divided` is without the reserve, if `lent` is lent, of
    /// which `held` is the client's own.
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
/// Whoever waits for others to give back, or has to confirm that it gave back, should ask again
/// soon, so that a shift of demand is settled within about one short refresh. But one client whose
/// demand sways moves the shares of all the others a little, and for a hundredth of them they need
/// not all hurry at once.
pub(super) fn suffices(gets: Capacity, aim: Capacity) -> bool {
    gets.as_micros() >= aim.as_micros().saturating_sub(aim.as_micros() / 100)
}
