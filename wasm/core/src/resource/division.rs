//! How one resource's capacity is divided: the decisions behind [`Resource`](super::Resource).

use core::num::NonZeroU32;
use core::time::Duration;

use super::RefreshError;
use crate::lease::{Answer, Ask, LeaseTerms};
use crate::limit::{Limit, Safe};
use crate::share::FairShare;
use crate::share::fair::Handle;
use crate::units::{Capacity, Instant};

/// The basis of a lease that says nothing of the limits it was lent under.
const UNCERTAIN: u64 = 1;

/// A limit, what is wanted of it and what is lent of it.
#[derive(Debug)]
pub(super) struct Division {
    limit: Limit,
    learning_until: Instant,
    shares: FairShare<Rank>,
    /// Σ [`Entry::has`] over all entries, in micro-units.
    sum_has: u128,
}

/// One client's line in the books.
#[derive(Debug)]
pub(super) struct Entry {
    share: Handle<Rank>,
    pub(super) sequence: u64,
    granted: Loan,
    granted_at: Instant,
    /// A larger or longer loan that the client may still be using, for all the books know.
    prior: Option<Loan>,
    /// Where this entry stands in the queue of expiries.
    pub(super) queued_at: Instant,
}

/// Where a client stands among those who want the same: the hash of its id, so that shares do not
/// depend on who came first.
type Rank = u64;

#[derive(Clone, Copy, Debug)]
struct Loan {
    capacity: Capacity,
    expiry: Instant,
}

/// What a client gets, and when it should ask again.
#[derive(Clone, Copy, Debug)]
struct Grant {
    loan: Loan,
    refresh_interval: Duration,
}

// === impl Division ===

impl Division {
    pub(super) fn new(limit: Limit, learning_until: Instant) -> Self {
        Self {
            limit,
            learning_until,
            shares: FairShare::new(),
            sum_has: 0,
        }
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(super) fn learning_until(&self) -> Instant {
        self.learning_until
    }

    pub(super) fn sum_has(&self) -> u128 {
        self.sum_has
    }

    pub(super) fn sum_wants(&self) -> u128 {
        self.shares.sum_wants()
    }

    pub(super) fn set_limit(&mut self, limit: &Limit) {
        if self.limit != *limit {
            self.limit = limit.clone();
        }
    }

    /// A line for a client that the books do not know. What it claims to have counts in learning
    /// mode only: outside of it every lease is in the books, so the claim is void.
    pub(super) fn admit(&mut self, now: Instant, rank: Rank, ask: &Ask) -> Entry {
        let claim = if now < self.learning_until {
            ask.has
        } else {
            Capacity::ZERO
        };
        let capacity = claim.min(self.free_of(self.sum_has));
        let expiry = now.saturating_add(self.limit.lease);
        self.replace_sum(Capacity::ZERO, capacity);
        Entry {
            share: self
                .shares
                .insert(rank, ask.demand.wants(), NonZeroU32::MIN),
            sequence: ask.sequence,
            granted: Loan { capacity, expiry },
            granted_at: now,
            prior: None,
            queued_at: expiry,
        }
    }

    /// Answers a client that the books know.
    pub(super) fn refresh(
        &mut self,
        now: Instant,
        entry: &mut Entry,
        ask: &Ask,
    ) -> Result<Answer, RefreshError> {
        if ask.sequence < entry.sequence {
            return Err(RefreshError::Stale {
                asked: ask.sequence,
                seen: entry.sequence,
            });
        }
        if ask.sequence == entry.sequence {
            // A transport sent it twice. The first answer may be in use already, so what the
            // request says of `has` is no longer news.
            return Ok(self.repeat(now, entry));
        }
        self.acknowledge(entry, ask);
        // While learning, the lease in the books may rest on a request that was sent to the master
        // before and arrived late; others may have what it claimed. Only what the client says now
        // may be confirmed, however early it asks.
        let early = now < entry.granted_at.saturating_add(self.limit.min_refresh);
        if early && now >= self.learning_until {
            return Ok(self.repeat(now, entry));
        }
        Ok(self.settle(now, entry, ask))
    }

    /// Decides what the client gets now.
    pub(super) fn settle(&mut self, now: Instant, entry: &mut Entry, ask: &Ask) -> Answer {
        let before = entry.has();
        let used = entry.used(ask.has);
        let grant = self.grant(now, entry, used);
        entry.granted = grant.loan;
        entry.granted_at = now;
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
        self.answer(now, entry, grant.refresh_interval)
    }

    /// Drops what of `entry` has expired.
    pub(super) fn expire(&mut self, now: Instant, entry: &mut Entry) {
        let before = entry.has();
        entry.prior = entry.prior.filter(|prior| prior.expiry > now);
        if entry.granted.expiry <= now {
            // After the lease was shortened the larger loan may outlive the smaller one. What is
            // left must expire later than now, or the queue would look at it for ever.
            entry.granted = Loan {
                capacity: Capacity::ZERO,
                expiry: entry.last_expiry(),
            };
        }
        self.replace_sum(before, entry.has());
    }

    pub(super) fn forget(&mut self, entry: Entry) {
        self.replace_sum(entry.has(), Capacity::ZERO);
        self.shares.remove(entry.share);
    }

    /// Takes the news of a request: what the client wants, and that it uses no more than it has.
    /// What the last answer granted stays reserved until a new grant replaces it.
    fn acknowledge(&mut self, entry: &mut Entry, ask: &Ask) {
        entry.sequence = ask.sequence;
        self.shares
            .update(&mut entry.share, ask.demand.wants(), NonZeroU32::MIN);
        let before = entry.has();
        let used = entry.used(ask.has);
        entry.prior = used.beyond(entry.granted);
        self.replace_sum(before, entry.has());
    }

    /// The current lease again, with what is left of its time.
    fn repeat(&self, now: Instant, entry: &Entry) -> Answer {
        let next = entry.granted_at.saturating_add(self.limit.min_refresh);
        let refresh_interval = next.saturating_since(now).max(Duration::from_millis(1));
        self.answer(now, entry, refresh_interval)
    }

    fn grant(&self, now: Instant, entry: &Entry, used: Loan) -> Grant {
        let capacity = self.limit.capacity;
        let expiry = now.saturating_add(self.limit.lease);
        if capacity.is_unlimited() {
            return Grant {
                loan: Loan { capacity, expiry },
                refresh_interval: self.limit.refresh,
            };
        }
        let learning = now < self.learning_until;
        let others = self.sum_has.saturating_sub(entry.has().as_micros().into());
        let (entitled, headroom) = if learning {
            // What the client has, as far as it still wants it: the rest may be lent elsewhere.
            (used.capacity.min(entry.wants()), Capacity::ZERO)
        } else {
            (
                self.shares.share(&entry.share, capacity),
                self.headroom(entry),
            )
        };
        let gets = entitled.saturating_add(headroom).min(self.free_of(others));
        let kept = Loan {
            capacity: entitled.min(used.capacity),
            expiry: used.expiry.min(expiry),
        };
        if kept.capacity > gets && !learning && kept.expiry > now.saturating_add(self.limit.refresh)
        {
            // The capacity was lowered, and others have not given back yet. Nobody need fall below
            // its share for that: it keeps what it has of it, but only until that expires anyway.
            return Grant {
                loan: kept,
                refresh_interval: self.limit.min_refresh,
            };
        }
        let refresh_interval = if suffices(gets, entitled) && suffices(gets, used.capacity) {
            self.until_learned(now)
        } else {
            self.limit.min_refresh
        };
        let loan = Loan {
            capacity: gets,
            expiry,
        };
        Grant {
            loan,
            refresh_interval,
        }
    }

    /// The refresh interval, or what is left of learning mode if that is shorter.
    fn until_learned(&self, now: Instant) -> Duration {
        let left = self.learning_until.saturating_since(now);
        if left.is_zero() {
            return self.limit.refresh;
        }
        self.limit.refresh.min(left).max(self.limit.min_refresh)
    }

    /// This client's part of what nobody wants.
    fn headroom(&self, entry: &Entry) -> Capacity {
        let wanted = u64::try_from(self.sum_wants()).unwrap_or(u64::MAX);
        let spare = self
            .limit
            .capacity
            .saturating_sub(Capacity::from_micros(wanted));
        self.shares
            .spare(&entry.share, self.limit.headroom.of(spare))
    }

    /// What is left of the capacity when `lent` micro-units of it are lent.
    fn free_of(&self, lent: u128) -> Capacity {
        let lent = u64::try_from(lent).unwrap_or(u64::MAX);
        Capacity::from_micros(self.limit.capacity.as_micros().saturating_sub(lent))
    }

    fn answer(&self, now: Instant, entry: &Entry, refresh_interval: Duration) -> Answer {
        let Loan { capacity, expiry } = entry.granted;
        let duration = expiry.saturating_since(now);
        // In learning mode zero does not mean "nothing for you" but "not known yet".
        let known = capacity > Capacity::ZERO || now >= self.learning_until;
        let burst = self.limit.burst_for(capacity);
        Answer {
            lease: (known && !duration.is_zero()).then_some(LeaseTerms {
                capacity,
                burst,
                duration,
                basis: UNCERTAIN,
            }),
            refresh_interval,
            safe: self.safe(),
            capacity: self.limit.capacity,
        }
    }

    /// What a client falls back to, if it is for the coordinator to say.
    pub(super) fn safe(&self) -> Option<Capacity> {
        match self.limit.safe {
            Safe::Fixed(safe) => Some(safe),
            Safe::Client | Safe::Dynamic => None,
        }
    }

    fn replace_sum(&mut self, before: Capacity, after: Capacity) {
        let rest = self.sum_has.saturating_sub(before.as_micros().into());
        self.sum_has = rest.saturating_add(after.as_micros().into());
    }
}

// === impl Loan ===

impl Loan {
    /// This loan, if it is larger than `granted` or, as after the lease was shortened, longer.
    fn beyond(self, granted: Self) -> Option<Self> {
        let larger = self.capacity > granted.capacity;
        let longer = self.capacity > Capacity::ZERO && self.expiry > granted.expiry;
        (larger || longer).then_some(self)
    }
}

// === impl Entry ===

impl Entry {
    /// What the client last wanted.
    pub(super) fn wants(&self) -> Capacity {
        self.share.wants()
    }

    /// The most that the client may be using.
    pub(super) fn has(&self) -> Capacity {
        let prior = self.prior.map_or(Capacity::ZERO, |prior| prior.capacity);
        self.granted.capacity.max(prior)
    }

    /// The loan that a client which says that it has `has` may be using. More than was granted last
    /// means that it does not know of that yet: its loan is the prior one and ends with it.
    fn used(&self, has: Capacity) -> Loan {
        let expiry = match self.prior {
            Some(prior) if has > self.granted.capacity => prior.expiry,
            _ => self.last_expiry(),
        };
        Loan {
            capacity: has.min(self.has()),
            expiry,
        }
    }

    /// When something of this line expires next.
    pub(super) fn next_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.min(self.granted.expiry)
        })
    }

    /// When the last of this line expires.
    pub(super) fn last_expiry(&self) -> Instant {
        self.prior.map_or(self.granted.expiry, |prior| {
            prior.expiry.max(self.granted.expiry)
        })
    }
}

// === free functions ===

/// Whether a client that gets `gets` may come back at leisure although `aim` would be right.
///
/// Whoever waits for others to give back, or has to confirm that it gave back, should ask again
/// soon, so that a shift of demand is settled within about one short refresh. But one client whose
/// demand sways moves the shares of all the others a little, and for a hundredth of them they need
/// not all hurry at once.
fn suffices(gets: Capacity, aim: Capacity) -> bool {
    gets.as_micros() >= aim.as_micros().saturating_sub(aim.as_micros() / 100)
}
