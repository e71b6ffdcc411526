//! What is borrowed of one resource, and how the parent is spoken to of it.
//!
//! The promises of a client (see [`client`](crate::client)) are kept here as there: a lease counts
//! from when its request was sent, and only the answer to the latest request is applied.

use core::time::Duration;

use super::{LendableCapacity, LendableSource, ParentRequest};
use crate::client::LeaseMessage;
use crate::client::backoff::backoff;
use crate::lease::{Answer, Band, Claim, EpochError, LeaseRequest, NO_FINGERPRINT, Origin};
use crate::limit::{Limit, SafeCapacity};
use crate::pool::ResourceTotals;
use crate::units::{Capacity, Instant, Tokens};

/// The soonest a change of what is wanted makes it ask again. The parent has its own minimum.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The soonest an answer is followed by the next request, whatever it says.
const INTERVAL_FLOOR: Duration = Duration::from_millis(10);

/// A lease of the parent and the state of its renewal.
#[derive(Debug)]
pub(super) struct ParentLease {
    lease: Option<BorrowedLease>,
    /// When the last of all that was ever borrowed ends, and so whatever was lent of it.
    lent_until: Instant,
    /// What the parent has said; none before its first answer.
    said: Option<ParentAnswer>,
    /// Where the last answer came from that was applied.
    origin: Origin,
    sequence: u64,
    /// When the request was sent that waits for an answer.
    asked_at: Option<Instant>,
    /// When the last request was sent.
    last_asked_at: Instant,
    told: ReportedTotals,
    due: Instant,
    /// Where this loan stands in the queue.
    pub(super) queued_at: Instant,
    failures: u8,
    /// The books have no clients of it.
    idle: bool,
    /// They have some again, and the parent has not answered since.
    returning: bool,
}

/// How a loan stands, for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentLeaseView {
    /// What is borrowed and has not expired; none without a lease.
    pub capacity: Option<Capacity>,
    /// How long it still lasts.
    pub remaining: Duration,
    /// What the parent was last told that is wanted.
    pub wants: Capacity,
    /// Requests in a row without an answer.
    pub failures: u8,
    /// Whether the parent has ever answered.
    pub answered: bool,
}

#[derive(Clone, Copy, Debug)]
struct BorrowedLease {
    capacity: Capacity,
    burst: Tokens,
    expiry: Instant,
    fingerprint: u64,
}

#[derive(Clone, Copy, Debug)]
struct ParentAnswer {
    capacity: Capacity,
    safe: Option<Capacity>,
    /// Whether the last lease was without a limit. The capacity does not tell: a parent that has
    /// not heard from its own yet knows of no limit either.
    unlimited: bool,
}

/// What the last request said.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedTotals {
    wants: Capacity,
    subclients: u64,
    has: Capacity,
}

// === impl ParentLease ===

impl ParentLease {
    /// Nothing borrowed yet and a request due now; what clients have was lent until `lent_until`.
    pub(super) fn new(now: Instant, lent_until: Instant) -> Self {
        Self {
            lease: None,
            lent_until,
            said: None,
            origin: Origin::default(),
            sequence: 0,
            asked_at: None,
            last_asked_at: Instant::ZERO,
            told: ReportedTotals::default(),
            due: now,
            queued_at: now,
            failures: 0,
            idle: false,
            returning: false,
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Whether a request waits for its answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked_at.is_some()
    }

    /// What may be lent now under `limit`.
    pub(super) fn lendable(&self, now: Instant, limit: &Limit, level: u32) -> LendableCapacity {
        let said = self.said;
        LendableCapacity {
            source: self.source(now, limit),
            whole: said.map_or(Capacity::UNLIMITED, |said| said.capacity),
            safe: said.and_then(|said| said.safe),
            level,
        }
    }

    fn source(&self, now: Instant, limit: &Limit) -> LendableSource {
        if let Some(lease) = self.valid_lease(now) {
            return LendableSource::Lease {
                capacity: lease.capacity,
                until: lease.expiry,
                burst: lease.burst,
            };
        }
        // As long as nothing has failed the parent is there, and what it lends is not known yet.
        let asked = self.said.is_some() && !self.idle && !self.returning;
        if !asked && self.failures == 0 {
            return LendableSource::Nothing;
        }
        let unlimited = self.said.is_some_and(|said| said.unlimited);
        if unlimited && !limit.capacity.is_unlimited() {
            return LendableSource::Own;
        }
        match (self.said.and_then(|said| said.safe), limit.safe) {
            (Some(safe), _) | (None, SafeCapacity::Fixed(safe)) => LendableSource::Safe(safe),
            (None, SafeCapacity::Dynamic) if !limit.capacity.is_unlimited() => {
                LendableSource::Safe(limit.capacity)
            }
            (None, SafeCapacity::Dynamic | SafeCapacity::Client) => LendableSource::Nothing,
        }
    }

    /// Takes what is wanted now. True if that makes the next request earlier.
    pub(super) fn note(
        &mut self,
        now: Instant,
        lent_until: Instant,
        totals: &ResourceTotals,
    ) -> bool {
        self.lent_until = self.lent_until.max(lent_until);
        if self.idle {
            self.idle = false;
            self.returning = true;
            self.due = now;
            return true;
        }
        if self.asked_at.is_some() || self.failures > 0 || !self.is_news(now, totals) {
            return false;
        }
        let earliest = self.last_asked_at.saturating_add(MIN_INTERVAL).max(now);
        let sooner = earliest < self.due;
        if sooner {
            self.due = earliest;
        }
        sooner
    }

    /// Whether the parent should hear soon what has become of the resource.
    fn is_news(&self, now: Instant, totals: &ResourceTotals) -> bool {
        let changed = |now: u64, then: u64| now.abs_diff(then) > then / 10;
        let wants = changed(totals.wants.as_micros(), self.told.wants.as_micros());
        let subclients = changed(totals.subclients, self.told.subclients);
        // The parent waits to hear that a lowered lease was given back.
        let lease = self.valid_lease(now);
        let given_back = lease.is_some_and(|lease| {
            self.told.has > lease.capacity && totals.has <= lease.capacity.as_micros().into()
        });
        wants || subclients || given_back
    }

    /// Asks for what is `asked`. What it returns must be said.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        sequence: u64,
        call_timeout: Duration,
        asked: ParentRequest,
    ) -> LeaseMessage {
        if self.asked_at.is_some() {
            self.failures = self.failures.saturating_add(1);
        }
        let lease = self.valid_lease(now);
        let borrowed = lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        // What was lent after all that is borrowed had ended is the safe capacity, not the parent's.
        let lent = if now < self.lent_until {
            asked.has
        } else {
            Capacity::ZERO
        };
        let has = borrowed.max(lent);
        let until = lease.map_or(self.lent_until, |lease| lease.expiry.max(self.lent_until));
        let claim = if asked.hearsay {
            Claim::AtLeast
        } else if has > borrowed {
            Claim::Several
        } else {
            Claim::Lease
        };
        let subclients =
            |sum: u64, band: &Band| sum.saturating_add(u64::from(band.subclients.get()));
        self.told = ReportedTotals {
            wants: asked.demand.wants(),
            subclients: asked.demand.bands().iter().fold(0, subclients),
            has,
        };
        self.sequence = sequence;
        self.asked_at = Some(now);
        self.last_asked_at = now;
        self.due = now.saturating_add(call_timeout);
        LeaseMessage::Refresh(LeaseRequest {
            sequence,
            has,
            remaining: (has > Capacity::ZERO).then(|| until.saturating_since(now)),
            fingerprint: lease.map_or(NO_FINGERPRINT, |lease| lease.fingerprint),
            claim,
            demand: asked.demand,
        })
    }

    /// Gives back what is borrowed, because there are no clients, and remembers the rest until
    /// `linger` has passed.
    pub(super) fn release(
        &mut self,
        now: Instant,
        sequence: u64,
        linger: Duration,
    ) -> Option<LeaseMessage> {
        let known = self.said.is_some();
        self.sequence = sequence;
        self.asked_at = None;
        self.lease = None;
        self.lent_until = now;
        self.told = ReportedTotals::default();
        self.idle = true;
        self.due = now.saturating_add(linger);
        known.then_some(LeaseMessage::Release { sequence })
    }

    /// Checks whether an answer from `origin` may be applied, see [`Origin::check_after`].
    pub(super) fn check_origin(&self, origin: Origin) -> Result<(), EpochError> {
        origin.check_after(self.origin)
    }

    /// Takes the parent's answer. True if it counts.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        if self.check_origin(origin).is_err() {
            self.handle_failure(now, sequence);
            return false;
        }
        if sequence != self.sequence {
            return false;
        }
        let Some(sent_at) = self.asked_at.take() else {
            return false;
        };
        self.failures = 0;
        self.returning = false;
        self.origin = origin;
        let before = self.said.is_some_and(|said| said.unlimited);
        self.said = Some(ParentAnswer {
            capacity: answer.capacity,
            safe: answer.safe,
            unlimited: answer
                .lease
                .map_or(before, |terms| terms.capacity.is_unlimited()),
        });
        self.due = now.saturating_add(answer.refresh_interval.max(INTERVAL_FLOOR));
        let lease = answer.lease.map(|terms| BorrowedLease {
            capacity: terms.capacity,
            burst: terms.burst,
            expiry: sent_at.saturating_add(terms.duration),
            fingerprint: terms.fingerprint,
        });
        self.lease = lease.filter(|lease| lease.expiry > now);
        if let Some(lease) = self.lease {
            self.lent_until = self.lent_until.max(lease.expiry);
        }
        true
    }

    /// Notes that the request of `sequence` failed; the next one waits longer.
    pub(super) fn handle_failure(&mut self, now: Instant, sequence: u64) {
        if sequence != self.sequence || self.asked_at.take().is_none() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let lease = self.valid_lease(now);
        let left = lease.map(|lease| lease.expiry.saturating_since(now));
        self.due = now.saturating_add(backoff(self.failures, left, sequence));
    }

    pub(super) fn view(&self, now: Instant) -> ParentLeaseView {
        let lease = self.valid_lease(now);
        ParentLeaseView {
            capacity: lease.map(|lease| lease.capacity),
            remaining: lease.map_or(Duration::ZERO, |lease| lease.expiry.saturating_since(now)),
            wants: self.told.wants,
            failures: self.failures,
            answered: self.said.is_some(),
        }
    }

    fn valid_lease(&self, now: Instant) -> Option<BorrowedLease> {
        self.lease.filter(|lease| lease.expiry > now)
    }
}
