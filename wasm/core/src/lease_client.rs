//! Client half of the lease protocol, for one resource.
//!
//! Envoys, coordinators that borrow of a parent, and the model clients of the tests keep the same
//! two promises, on which the lease table of the server rests (see [`resource`](crate::resource)): a
//! lease counts from when its request was sent, and only the answer to the latest request is applied.
//! They differ in what they ask for and when; that is theirs.

use core::time::Duration;

use crate::cluster::ShardId;
use crate::early::EarlyRate;
use crate::lease::{Answer, Claim, Demand, EpochError, LeaseRequest, Origin};
use crate::traffic::{Counts, OpenTally};
use crate::units::{Capacity, Instant, RatePeriod, Tokens};

mod backoff;

use self::backoff::backoff;

/// The soonest a change of demand makes a client ask again. The server has its own minimum.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Requests for one resource that nudges make at most, whatever a coordinator names. A shift of demand
/// takes two in a row of a client that gives back.
pub const NUDGED: EarlyRate = EarlyRate {
    max: 4,
    interval: MIN_INTERVAL,
};

/// The soonest an answer is followed by the next request, whatever it says.
const INTERVAL_FLOOR: Duration = Duration::from_millis(10);

/// The latest an answer is followed by the next request, whatever it says: what a false coordinator
/// has lent is corrected by then.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Failures in a row after which, without a lease, a master is lost: it may have been a false one.
const LOST_AFTER: u8 = 3;

/// Failures in a row after which a master is lost although it has lent for longer: one and a half to
/// three minutes. A lease of ten seconds is over after some twenty to forty.
const LOST_WITH_LEASE_AFTER: u8 = 60;

/// Lease of one resource and the state of its renewal; plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseClient {
    pub(crate) lease: Option<HeldLease>,
    /// Master that sent the last answer that was applied.
    pub(crate) origin: Origin,
    /// Safe capacity of the last answer; unlimited if that said that nothing limits the resource.
    pub(crate) safe: Option<Capacity>,
    /// Capacity of the whole resource, by the last answer; none before the first one.
    pub(crate) capacity: Option<Capacity>,
    /// Period for which that was written, if an answer named it.
    pub(crate) period: Option<RatePeriod>,
    /// Burst of the whole resource, if an answer named it.
    pub(crate) burst: Option<Tokens>,
    /// Sequence of the latest request or release.
    pub(crate) sequence: u64,
    /// Time of the request that waits for its answer.
    pub(crate) asked_at: Option<Instant>,
    /// Time of the next request.
    pub(crate) due: Option<Instant>,
    /// Failed requests in a row.
    pub(crate) failures: u8,
    /// Attempts and refusals that its owner has counted.
    pub(crate) tally: OpenTally,
}

/// Lease as its client counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Capacity that the client may use.
    pub capacity: Capacity,
    /// The client's part of the resource's burst.
    pub burst: Tokens,
    /// End of the lease.
    pub expiry: Instant,
    /// See [`LeaseTerms::fingerprint`](crate::lease::LeaseTerms::fingerprint).
    pub fingerprint: u64,
}

/// Limit of a resource, as far as a coordinator has told it: it holds without a lease as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownLimit {
    /// Capacity of the whole resource.
    pub capacity: Capacity,
    /// Burst of the whole resource, if it is known.
    pub burst: Option<Tokens>,
    /// Capacity of each client without a lease, if the coordinator says it; unlimited where there
    /// is no limit.
    pub safe: Option<Capacity>,
}

/// Message of a client to its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseMessage {
    /// No message now.
    Nothing,
    /// Asks for a lease; the answer goes to `handle_answer` or `handle_failure` with the same
    /// sequence.
    Refresh(LeaseRequest),
    /// Tells that the lease is no longer used. No answer is awaited: if the message is lost, the
    /// lease expires.
    Release {
        /// Grows like [`LeaseRequest::sequence`].
        sequence: u64,
    },
}

// === impl LeaseClient ===

impl LeaseClient {
    /// A client without a lease, whose first request is due at `due`.
    pub fn new(due: Option<Instant>) -> Self {
        Self {
            due,
            ..Self::default()
        }
    }

    /// The lease, unless it has expired at `now`.
    pub fn valid_lease(&self, now: Instant) -> Option<HeldLease> {
        self.lease.filter(|lease| lease.expiry > now)
    }

    /// Forgets a lease that has expired at `now`, and returns its expiry.
    pub fn take_expired(&mut self, now: Instant) -> Option<Instant> {
        self.give_up_late(now);
        let expired = self.lease.take_if(|lease| lease.expiry <= now)?;
        Some(expired.expiry)
    }

    /// Time of the next request; none while nothing is wanted.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a request waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.asked_at.is_some()
    }

    /// Whether a request is due at `now`, or would be `early` later and none awaits its answer.
    pub fn is_due(&self, now: Instant, early: Duration) -> bool {
        let horizon = match self.asked_at {
            Some(_) => now,
            None => now.saturating_add(early),
        };
        self.due.is_some_and(|due| due <= horizon)
    }

    /// Whether a change of the demand may be told early: not while an answer is awaited or calls
    /// fail.
    pub fn may_hurry(&self) -> bool {
        self.asked_at.is_none() && self.failures == 0
    }

    /// Makes the next request early, but not before `at`, nor too soon after the last one, of
    /// `asked_at`. True if that moved it forward.
    pub fn hurry(&mut self, asked_at: Instant, at: Instant) -> bool {
        let earliest = asked_at.saturating_add(MIN_INTERVAL).max(at);
        let sooner = self.due.is_none_or(|due| earliest < due);
        if sooner {
            self.due = Some(earliest);
        }
        sooner
    }

    /// Makes the next request due at `now`, unless it is already, without regard to intervals.
    pub fn make_due(&mut self, now: Instant) {
        self.due = Some(self.due.map_or(now, |due| due.min(now)));
    }

    /// Counts attempts and refusals, to be reported with the next request.
    pub(crate) fn count(&mut self, attempts: u64, refused: u64) {
        self.tally.counts.add(Counts { attempts, refused });
    }

    /// Makes the request of `sequence`, which must be sent. Without an answer after `call_timeout` it
    /// counts as lost.
    pub fn request(
        &mut self,
        now: Instant,
        sequence: u64,
        call_timeout: Duration,
        demand: Demand,
    ) -> LeaseRequest {
        self.sequence = sequence;
        self.asked_at = Some(now);
        self.due = Some(now.saturating_add(call_timeout));
        let lease = self.valid_lease(now);
        LeaseRequest {
            sequence,
            has: lease.map_or(Capacity::ZERO, |lease| lease.capacity),
            remaining: lease.map(|lease| lease.expiry.saturating_since(now)),
            fingerprint: lease.map_or(0, |lease| lease.fingerprint),
            claim: Claim::Lease,
            demand,
            draw: None,
            tally: self.tally.report(),
        }
    }

    /// Gives the lease back with `sequence`. The message, if there is one, must be sent: none if the
    /// server has never answered.
    pub fn release(&mut self, sequence: u64) -> Option<LeaseMessage> {
        self.sequence = sequence;
        self.asked_at = None;
        self.lease = None;
        self.due = None;
        self.capacity.map(|_| LeaseMessage::Release { sequence })
    }

    /// Checks whether an answer from `origin` may be applied at `now`, see [`Origin::check_after`].
    ///
    /// After a master that is lost any possible one may follow. Then nothing that the lost one has lent
    /// is in use besides what the answer lends: its lease has ended, or the answer's takes its place. So
    /// the client is as one that starts now, which may meet any master.
    ///
    /// # Errors
    /// If the answer must not be applied.
    pub fn check_origin(&self, now: Instant, origin: Origin) -> Result<(), EpochError> {
        match origin.check_after(self.origin) {
            Err(_) if origin.epoch.is_possible() && self.has_lost_master(now) => Ok(()),
            checked => checked,
        }
    }

    /// Whether the master of the last answer has not answered for so long that another one may be
    /// believed.
    fn has_lost_master(&self, now: Instant) -> bool {
        let has_lease = self.valid_lease(now).is_some();
        if has_lease {
            self.failures >= LOST_WITH_LEASE_AFTER
        } else {
            self.failures >= LOST_AFTER
        }
    }

    /// Whether the answer to the request of `sequence` is awaited.
    pub fn awaits(&mut self, now: Instant, sequence: u64) -> bool {
        self.give_up_late(now);
        self.asked_at.is_some() && sequence == self.sequence
    }

    /// Gives up a request if the lease that it claims has ended since: the next one, which claims
    /// nothing, is due at once. The request may have reached a master that has started meanwhile, and
    /// that believes the claim, after the one before it had lent the same capacity to others.
    fn give_up_late(&mut self, now: Instant) {
        let claimed = self.lease.filter(|lease| lease.capacity > Capacity::ZERO);
        let ended = claimed.filter(|lease| lease.expiry <= now);
        let is_late = |at| ended.is_some_and(|lease| at < lease.expiry);
        if self.asked_at.is_some_and(is_late) {
            self.give_up(now);
        }
    }

    /// Gives up the request that waits for its answer, if one does: the next one is due at once.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if self.asked_at.take().is_some() {
            self.due = Some(now);
        }
    }

    /// Takes an answer from `origin` to the request of `sequence`. One that is not awaited is
    /// dropped. True if it was applied.
    ///
    /// # Errors
    /// If its epoch cannot follow; it counts as a failure.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> Result<bool, EpochError> {
        self.check_origin(now, origin).inspect_err(|_| {
            self.handle_failure(now, sequence, sequence);
        })?;
        let awaited = self.awaits(now, sequence);
        if awaited {
            self.apply(now, origin, answer);
        }
        Ok(awaited)
    }

    /// Applies an answer that was awaited.
    pub(crate) fn apply(&mut self, now: Instant, origin: Origin, answer: &Answer) {
        let sent_at = self.asked_at.take().unwrap_or(now);
        self.failures = 0;
        self.tally.settle(self.sequence);
        self.origin = origin;
        self.learn(answer);
        let interval = answer.refresh_interval.clamp(INTERVAL_FLOOR, INTERVAL_MAX);
        self.due = Some(now.saturating_add(interval));
        let lease = answer.lease.map(|terms| HeldLease {
            capacity: terms.capacity,
            burst: terms.burst,
            expiry: sent_at.saturating_add(terms.duration),
            fingerprint: terms.fingerprint,
        });
        self.lease = lease.filter(|lease| lease.expiry > now);
    }

    /// Takes the limit that `answer` tells. A coordinator that waits for its parent knows of none yet,
    /// and lends nothing: what was told before holds.
    fn learn(&mut self, answer: &Answer) {
        let unlimited = answer.capacity.is_unlimited();
        if unlimited && answer.lease.is_none() && self.capacity.is_some() {
            return;
        }
        let lent = answer.lease.map(|terms| terms.capacity);
        let is_free = unlimited && lent.is_some_and(Capacity::is_unlimited);
        let free = is_free.then_some(Capacity::UNLIMITED);
        self.safe = answer.safe.or(free);
        self.capacity = Some(answer.capacity);
        self.period = answer.period;
        self.burst = answer.burst;
    }

    /// The limit of the resource, by the last answer; none before the first one.
    pub fn known_limit(&self) -> Option<KnownLimit> {
        Some(KnownLimit {
            capacity: self.capacity?,
            burst: self.burst,
            safe: self.safe,
        })
    }

    /// Notes that the request of `sequence` failed; the next one waits longer, but less and less
    /// when the lease is about to end. `seed` spreads clients that fail together. False if the answer
    /// is not awaited.
    pub fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) -> bool {
        if sequence != self.sequence || self.asked_at.take().is_none() {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let lease = self.valid_lease(now);
        let left = lease.map(|lease| lease.expiry.saturating_since(now));
        self.due = Some(now.saturating_add(backoff(self.failures, left, seed)));
        true
    }

    /// The shard that the last answer came from, unless a call has failed since.
    pub fn shard(&self) -> Option<ShardId> {
        self.origin.shard.filter(|_| self.failures == 0)
    }
}

#[cfg(test)]
mod tests;
