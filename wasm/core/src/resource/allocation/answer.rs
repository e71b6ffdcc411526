//! Answers to clients, from the leases that they were granted.

use core::time::Duration;

use super::grant::suffices;
use super::{
    Algorithm, Allocation, Answer, Capacity, ClientEntry, Instant, LeaseTerms, SafeCapacity, Tokens,
};

/// Length of the lease of nothing that a client gets while it waits for its part, in refresh
/// intervals.
const WAITING_REFRESHES: u32 = 2;

/// The same in minimum intervals, at which such a client is told to ask again: so many that it sees
/// that the next answer will differ.
const WAITING_ASKS: u32 = 20;

// === impl Allocation ===

impl Allocation {
    /// Returns the answer that tells `entry` its lease.
    pub(super) fn answer(
        &self,
        now: Instant,
        entry: &ClientEntry,
        refresh_interval: Duration,
    ) -> Answer {
        let lease = entry.told(now);
        let capacity = lease.capacity;
        let mut duration = lease.expiry.saturating_since(now);
        let waits = !self.is_to_draw(entry) && self.entitled(entry) > Capacity::ZERO;
        if capacity == Capacity::ZERO && waits {
            duration = duration.min(self.wait_for_part(now));
        }
        // In learning mode, and before the parent has answered, zero does not mean "nothing for you"
        // but "not known yet".
        let learned = self.may_offer(now) && !self.is_pending();
        let known = capacity > Capacity::ZERO || learned;
        Answer {
            lease: (known && !duration.is_zero()).then(|| LeaseTerms {
                capacity,
                burst: self.lease_burst(entry, capacity),
                duration,
                fingerprint: entry.fingerprint,
            }),
            refresh_interval,
            safe: self.safe(),
            capacity: self.capacity(),
            period: self.period(),
            burst: self.whole_burst(),
            draw: None,
        }
    }

    /// Burst of the whole resource: the least of its own, its pool's and its parent's. Concurrency has
    /// none.
    pub(super) fn whole_burst(&self) -> Option<Tokens> {
        if self.unit.is_concurrency() {
            return None;
        }
        let own = (!self.limit.capacity.is_unlimited()).then_some(self.limit.burst);
        let pool = self.pool.map(|pool| pool.sums.burst);
        let parent = self.lendable.and_then(|lendable| lendable.whole_burst);
        [own, pool, parent].into_iter().flatten().min()
    }

    /// Returns the lease of the latest answer again, with the time that is left of it. One that has
    /// its share, and has confirmed it, need not come back before its time.
    pub(super) fn repeat(&self, now: Instant, entry: &ClientEntry) -> Answer {
        let times = self.times(now);
        let interval = if self.is_settled(entry) {
            times.refresh
        } else {
            times.min_refresh
        };
        let next = entry.granted_at.saturating_add(interval);
        let refresh_interval = next.saturating_since(now).max(Duration::from_millis(1));
        self.answer(now, entry, refresh_interval)
    }

    fn is_settled(&self, entry: &ClientEntry) -> bool {
        let granted = entry.granted.capacity;
        suffices(granted, self.reach(entry, granted).entitled) && suffices(granted, entry.has())
    }

    /// Length of a lease of nothing while others have not given back yet. Should no answer come when
    /// the client asks again, it must not be kept at nothing for a whole lease, but go on without
    /// one. The lease table remembers its wants for the usual time.
    fn wait_for_part(&self, now: Instant) -> Duration {
        let times = self.times(now);
        let refreshes = times.refresh.saturating_mul(WAITING_REFRESHES);
        let asks = times.min_refresh.saturating_mul(WAITING_ASKS);
        refreshes.max(asks)
    }

    /// Capacity that each client falls back to, if the coordinator is to say it.
    pub(super) fn safe(&self) -> Option<Capacity> {
        let safe = match self.own_safe() {
            Some(safe) => Some(safe),
            None => self.pool.and_then(|pool| pool.safe),
        };
        safe.map(|safe| self.shares.quantum().floor(safe.min(self.capacity())))
    }

    /// The same without regard to a pool.
    pub(in crate::resource) fn safe_alone(&self) -> Option<Capacity> {
        let whole = self.capacity_alone();
        let safe = self.own_safe();
        safe.map(|safe| self.shares.quantum().floor(safe.min(whole)))
    }

    fn own_safe(&self) -> Option<Capacity> {
        let capacity = self.limit.capacity;
        let parents = self.lendable.and_then(|lendable| lendable.safe);
        match self.limit.safe {
            _ if parents.is_some() => parents,
            SafeCapacity::Fixed(safe) => Some(safe),
            SafeCapacity::Dynamic if self.limit.algorithm == Algorithm::Static => Some(capacity),
            SafeCapacity::Dynamic if !capacity.is_unlimited() => {
                Some(capacity.divided_by(self.shares.subclients()))
            }
            SafeCapacity::Dynamic | SafeCapacity::Client => None,
        }
    }

    /// The part of the burst that goes with a lease of `gets` of the client of `entry`. Of a limit that is drawn
    /// at other times it is what others leave: those with leases, and those that hold tokens.
    pub(super) fn lease_burst(&self, entry: &ClientEntry, gets: Capacity) -> Tokens {
        let part = self.burst(gets);
        if self.unit.is_concurrency() || !self.has_bucket() || !self.may_be_drawn() {
            return part;
        }
        let left = self.limits().map(|sums| {
            let others = sums.has.saturating_sub(entry.has().as_micros().into());
            let held = sums.draws.held().saturating_sub(entry.draws.holds);
            let taken = sums.burst_of_leases(others).saturating_add(held);
            sums.burst.saturating_sub(taken)
        });
        part.min(left.min().unwrap_or(Tokens::ZERO).max(Tokens::ONE))
    }

    /// The part of the burst that goes with `gets`: the least of the resource's, the pool's and the
    /// borrowed one. Concurrency has none beyond its capacity.
    pub(super) fn burst(&self, gets: Capacity) -> Tokens {
        if self.unit.is_concurrency() {
            return Tokens::from_micros(gets.as_micros());
        }
        let own = self.limit.burst_for(gets);
        let burst = match self.pool.map(|pool| pool.burst_for(gets)) {
            Some(pool) if self.limit.capacity.is_unlimited() => pool,
            Some(pool) => own.min(pool),
            None => own,
        };
        let borrowed = self.lendable.and_then(|lendable| lendable.burst_for(gets));
        borrowed.map_or(burst, |borrowed| burst.min(borrowed))
    }
}
