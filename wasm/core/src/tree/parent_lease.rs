//! Lease of one resource that is borrowed of a parent.

use core::time::Duration;

use super::ParentRequest;
use super::parent_tokens::ParentTokens;
use crate::early::{EarlyAllowance, EarlyRate};
use crate::lease::{Answer, Band, Claim, EpochError, LeaseRequest, NO_FINGERPRINT, Origin};
use crate::lease_client::{HeldLease, LeaseClient, LeaseMessage, NUDGED};
use crate::lendable::{LendableCapacity, LendableSource};
use crate::limit::{Limit, SafeCapacity};
use crate::pool::ResourceTotals;
use crate::units::{Capacity, Instant, Tokens};

/// Time for which the first answer of a parent, or that of its own, is awaited at most.
const FIRST_ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Requests that changed wants may make before the minimum interval is over, in a row.
const EARLY_MAX: u32 = 2;

/// Minimum intervals after which there may be one more of them.
const EARLY_EVERY: u32 = 10;

/// Lease of a parent, with the state of the resource that it is lent on for.
#[derive(Debug)]
pub(super) struct ParentLease {
    pub(super) client: LeaseClient,
    /// End of the last of all leases that were ever borrowed, and so of all that was lent of them.
    lent_until: Instant,
    /// Whether the last lease was without a limit. The capacity does not tell: a parent that has not
    /// heard from its own yet knows of no limit either.
    unlimited: bool,
    /// Time of the last request.
    asked_at: Instant,
    reported: ReportedTotals,
    /// Tokens that come with the lease.
    pub(super) tokens: ParentTokens,
    /// Early requests because of changed wants.
    early: EarlyAllowance,
    /// Early requests because of nudges.
    early_nudged: EarlyAllowance,
    /// Its instant in the queue of requests.
    pub(super) queued_at: Instant,
    /// The resource has no clients.
    pub(super) idle: bool,
    /// It has some again, and the parent has not answered since.
    returning: bool,
    /// End of the time for which the parent's first answer is awaited.
    awaited_until: Instant,
    /// Whether the parent has named the resource while its answer was awaited.
    nudged: bool,
}

/// State of a parent's lease, for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentLeaseView {
    /// Capacity that is borrowed and has not expired; none without a lease.
    pub capacity: Option<Capacity>,
    /// Time that is left of it.
    pub remaining: Duration,
    /// Wants that the parent was last told.
    pub wants: Capacity,
    /// Requests in a row without an answer.
    pub failures: u8,
    /// Whether the parent has ever answered.
    pub answered: bool,
}

/// Numbers of the last request.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedTotals {
    wants: Capacity,
    subclients: u64,
    has: Capacity,
}

// === impl ParentLease ===

impl ParentLease {
    /// Nothing borrowed yet and a request due now; the clients' leases were lent until `lent_until`.
    pub(super) fn new(now: Instant, lent_until: Instant) -> Self {
        Self {
            client: LeaseClient::new(Some(now)),
            lent_until,
            unlimited: false,
            asked_at: Instant::ZERO,
            reported: ReportedTotals::default(),
            tokens: ParentTokens::default(),
            early: EarlyAllowance::default(),
            early_nudged: EarlyAllowance::default(),
            queued_at: now,
            idle: false,
            returning: false,
            awaited_until: now.saturating_add(FIRST_ANSWER_WAIT),
            nudged: false,
        }
    }

    /// Time of the next request, or, while idle, of the end of the memory.
    pub(super) fn due(&self) -> Instant {
        self.client.due.unwrap_or(Instant::ZERO)
    }

    /// Returns the capacity that may be lent now under `limit`.
    pub(super) fn lendable(&self, now: Instant, limit: &Limit, level: u32) -> LendableCapacity {
        LendableCapacity {
            source: self.source(now, limit),
            whole: self.client.capacity.unwrap_or(Capacity::UNLIMITED),
            whole_period: self.client.period,
            whole_burst: self.client.burst,
            safe: self.safe(),
            level,
        }
    }

    fn source(&self, now: Instant, limit: &Limit) -> LendableSource {
        if let Some(lease) = self.client.valid_lease(now) {
            return LendableSource::Lease {
                capacity: lease.capacity,
                until: lease.expiry,
                burst: lease.burst,
            };
        }
        // As long as no call has failed the parent is there, and its answer is not known yet.
        let is_wanted = self.has_answer() && !self.idle && !self.returning;
        let nothing = if self.client.failures == 0 && now < self.awaited_until {
            LendableSource::Awaited
        } else {
            LendableSource::Nothing
        };
        if !is_wanted && self.client.failures == 0 {
            return nothing;
        }
        let has_safe = self.safe().is_some() || matches!(limit.safe, SafeCapacity::Fixed(_));
        if self.unlimited && !(limit.capacity.is_unlimited() && has_safe) {
            return LendableSource::Own;
        }
        match (self.safe(), limit.safe) {
            (Some(safe), _) | (None, SafeCapacity::Fixed(safe)) => LendableSource::Safe(safe),
            (None, SafeCapacity::Dynamic) if !limit.capacity.is_unlimited() => {
                LendableSource::Safe(limit.capacity)
            }
            (None, SafeCapacity::Dynamic | SafeCapacity::Client) => nothing,
        }
    }

    /// The safe capacity of each client, if the parent says it; that there is no limit there bounds
    /// nothing here.
    fn safe(&self) -> Option<Capacity> {
        self.client.safe.filter(|safe| !safe.is_unlimited())
    }

    fn has_answer(&self) -> bool {
        self.client.capacity.is_some()
    }

    /// Takes the present totals of the resource. True if that makes the next request earlier.
    ///
    /// Wants that change are told after `min_refresh`: those of many small clients never stand
    /// still, and each level would pass every change on to the next. A few are told at once, or a
    /// client that comes to a scope that others use would wait for each level in turn.
    pub(super) fn note(
        &mut self,
        now: Instant,
        lent_until: Instant,
        totals: &ResourceTotals,
        min_refresh: Duration,
    ) -> bool {
        self.lent_until = self.lent_until.max(lent_until);
        if self.idle {
            self.idle = false;
            self.returning = true;
            self.awaited_until = now.saturating_add(FIRST_ANSWER_WAIT);
            self.client.due = Some(now);
            return true;
        }
        if !self.client.may_hurry() {
            return false;
        }
        if self.has_given_back(now, totals) {
            return self.client.hurry(self.asked_at, now);
        }
        self.has_changed(totals) && self.hurry_within(now, min_refresh)
    }

    /// Makes the next request due after `min_refresh`, or at once if there may be an early one.
    fn hurry_within(&mut self, now: Instant, min_refresh: Duration) -> bool {
        let regular = self.asked_at.saturating_add(min_refresh).max(now);
        let rate = EarlyRate {
            max: EARLY_MAX,
            interval: min_refresh.saturating_mul(EARLY_EVERY),
        };
        if self.early.next_at(now, rate) > now {
            return self.client.hurry(self.asked_at, regular);
        }
        let hurries = self.client.hurry(self.asked_at, now);
        if hurries && self.due() < regular {
            self.early.take(now, rate, 1);
        }
        hurries
    }

    /// Whether these totals differ from those that the parent was told.
    fn has_changed(&self, totals: &ResourceTotals) -> bool {
        let changed = |now: u64, then: u64| now.abs_diff(then) > then / 10;
        let wants = changed(totals.wants.as_micros(), self.reported.wants.as_micros());
        wants || changed(totals.subclients, self.reported.subclients)
    }

    /// Whether a lowered lease was given back, which the parent waits to hear.
    fn has_given_back(&self, now: Instant, totals: &ResourceTotals) -> bool {
        let lease = self.client.valid_lease(now);
        lease.is_some_and(|lease| {
            self.reported.has > lease.capacity && totals.has <= lease.capacity.as_micros().into()
        })
    }

    /// Makes `request`, which must be sent.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        sequence: u64,
        call_timeout: Duration,
        request: ParentRequest,
    ) -> LeaseMessage {
        if self.client.is_waiting() {
            self.client.failures = self.client.failures.saturating_add(1);
        }
        let lease = self.client.valid_lease(now);
        let borrowed = lease.map_or(Capacity::ZERO, |lease| lease.capacity);
        // Capacity that was lent after all leases of the parent had ended is safe capacity, not the
        // parent's.
        let lent = if now < self.lent_until {
            request.has
        } else {
            Capacity::ZERO
        };
        let has = borrowed.max(lent);
        let until = lease.map_or(self.lent_until, |lease| lease.expiry.max(self.lent_until));
        let claim = if request.hearsay {
            Claim::AtLeast
        } else if has > borrowed {
            Claim::Several
        } else {
            Claim::Lease
        };
        if lease.is_none() {
            self.tokens.end();
        }
        let draw = self.tokens.request(now, request.returns, request.lacks);
        self.report(&request, has);
        self.asked_at = now;
        let demand = request.demand;
        LeaseMessage::Refresh(LeaseRequest {
            has,
            remaining: (has > Capacity::ZERO).then(|| until.saturating_since(now)),
            fingerprint: lease.map_or(NO_FINGERPRINT, |lease| lease.fingerprint),
            claim,
            draw: Some(draw),
            ..self.client.request(now, sequence, call_timeout, demand)
        })
    }

    fn report(&mut self, request: &ParentRequest, has: Capacity) {
        let subclients =
            |sum: u64, band: &Band| sum.saturating_add(u64::from(band.subclients.get()));
        self.reported = ReportedTotals {
            wants: request.demand.wants(),
            subclients: request.demand.bands().iter().fold(0, subclients),
            has,
        };
    }

    /// Gives the lease back, because there are no clients, and remembers the rest until `linger` has
    /// passed.
    pub(super) fn release(
        &mut self,
        now: Instant,
        sequence: u64,
        linger: Duration,
    ) -> Option<LeaseMessage> {
        let message = self.client.release(sequence);
        self.lent_until = now;
        self.reported = ReportedTotals::default();
        self.idle = true;
        self.client.due = Some(now.saturating_add(linger));
        message
    }

    /// Takes the parent's answer. True if it counts.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> Result<bool, EpochError> {
        if self.reported.has > Capacity::ZERO && self.lent_until <= now {
            // All that it claims has ended, also what its clients had of longer leases.
            self.client.give_up(now);
        }
        let before = self.client.valid_lease(now);
        if !self.client.handle_answer(now, sequence, origin, answer)? {
            return Ok(false);
        }
        let burst = |lease: Option<HeldLease>| lease.map_or(Tokens::ZERO, |lease| lease.burst);
        let grown = burst(self.client.valid_lease(now)).saturating_sub(burst(before));
        self.tokens.apply(answer.draw.as_ref(), grown);
        if self.tokens.are_left() {
            self.client.hurry(self.asked_at, now);
        }
        self.returning = false;
        if core::mem::take(&mut self.nudged) {
            self.hurry_nudged(now);
        }
        if let Some(terms) = answer.lease {
            self.unlimited = terms.capacity.is_unlimited();
        }
        if let Some(lease) = self.client.lease {
            self.lent_until = self.lent_until.max(lease.expiry);
        }
        Ok(true)
    }

    /// Makes the next request due, unless an answer is awaited: then that which comes after it.
    pub(super) fn handle_nudge(&mut self, now: Instant) {
        // One that is idle has nothing to ask for, and one that fails waits.
        if self.client.is_waiting() {
            self.nudged = true;
        } else if !self.idle && self.client.failures == 0 {
            self.hurry_nudged(now);
        }
    }

    /// Makes the next request due as soon as nudges may.
    fn hurry_nudged(&mut self, now: Instant) {
        let at = self.early_nudged.next_at(now, NUDGED);
        if self.client.due.is_none_or(|due| at < due) {
            self.client.due = Some(at);
            self.early_nudged.take(at, NUDGED, 1);
        }
    }

    /// Notes that the request of `sequence` failed; the next one waits longer.
    pub(super) fn handle_failure(&mut self, now: Instant, sequence: u64) {
        self.nudged = false;
        self.client.handle_failure(now, sequence, sequence);
    }

    pub(super) fn view(&self, now: Instant) -> ParentLeaseView {
        let lease = self.client.valid_lease(now);
        ParentLeaseView {
            capacity: lease.map(|lease| lease.capacity),
            remaining: lease.map_or(Duration::ZERO, |lease| lease.expiry.saturating_since(now)),
            wants: self.reported.wants,
            failures: self.client.failures,
            answered: self.has_answer(),
        }
    }
}
