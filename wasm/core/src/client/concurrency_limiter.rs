//! Concurrency limiter: permits of one process for a resource that is counted in flight, by worker.
//!
//! The obvious counter, one up at the start of a request and one down at its end, is wrong for good
//! as soon as one end is missed: a worker's VM that traps takes its ends with it. So each worker
//! has a share of its own, and says in absolute numbers how much of it is in use. A share that was
//! lost or taken away by mistake is right again after the worker's next report, and the share of a
//! worker that does not live any more is dropped ([`ConcurrencyLimiter::sweep`]).
//!
//! A worker may hold a few permits more than it uses, like tokens in its token cache: at most a
//! quarter of all over the workers, and none where that is less than one, so that small limits are
//! exact.
//!
//! Where the next lease is less than what is in flight, the process goes on with the one before, as
//! if the answer had been lost, but begins nothing beyond the new one: it says that it has what is
//! in flight, and the coordinator, which counts an earlier lease until its client says less or it
//! ends, lends no other client what is not free yet. Capacity that was never lent is never claimed.
//!
//! Wants are measured in windows of a second: the most in use at once, and, where some were
//! refused, as much more as there were more attempts than admissions (Little's law: the number in
//! flight is the rate of arrivals times the time that each takes).

use alloc::vec::Vec;
use core::time::Duration;

pub(super) mod draw;
mod shares;

use self::draw::PermitDraws;
pub(super) use self::shares::WorkerShare;
use super::policy::Policy;
use super::process_lease::{LeaseState, Phase, ProcessLease};
use crate::lease::{Answer, DrawRequest, LeaseRequest, Origin, Unit};
use crate::lease_client::{HeldLease, LeaseMessage};
use crate::units::{Capacity, Instant};

/// Window in which use is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// A share that was not reported for this long is dropped if its worker does not live.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// Interval at which a share that does not change is confirmed.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);
/// A limiter that was not used for this long is free.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// The most permits that a worker draws at once.
const BATCH_MAX: u32 = 1000;
/// The most workers whose shares are kept; Envoy has one per core.
const SHARES_MAX: usize = 512;

/// Permits of one process for one resource; plain data, see
/// [`ScopeState::encode`](super::ScopeState::encode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimiter {
    pub(super) lease: ProcessLease,
    /// Number that may be in flight by the last answer: less than the lease while that is kept for
    /// requests that were begun under it.
    pub(super) gets: Capacity,
    /// One for each worker that has permits or had in this window, by worker.
    pub(super) shares: Vec<WorkerShare>,
    /// Attempts of this window that went on, and that did not.
    pub(super) admitted: u32,
    pub(super) refused: u32,
    pub(super) opened_at: Instant,
    /// Wants of the window before.
    pub(super) last: u32,
    pub(super) last_attempt: Instant,
    pub(super) draws: PermitDraws,
}

/// Report of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerUsage {
    /// The worker, by a number that it drew at its start.
    pub worker: u64,
    /// Requests in flight now.
    pub in_use: u32,
    /// The most since its last report.
    pub peak: u32,
    /// Requests that were admitted since then.
    pub admitted: u32,
    /// Requests that found no permit since then; one that was held or waited may find one later.
    pub refused: u32,
    /// Requests that were refused for that.
    pub turned_away: u32,
}

/// Action on a request for which the coordinator has to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitAction {
    /// It is held until the answer.
    Hold,
    /// It cannot wait.
    Refuse,
    /// It goes on, whatever is decided: it counts as one that was held and got what it needs.
    Admit,
}

/// Result of a draw of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitResult {
    /// The worker has `held` permits now, more than it uses.
    Held {
        /// All its permits, used and unused.
        held: u32,
        /// Number of unused permits that it may keep when requests end; it gives back those above.
        spare: u32,
    },
    /// The first answer is awaited: hold the request until `until` at most, then draw again.
    Pending {
        /// End of the wait, answer or not.
        until: Instant,
    },
    /// All are in use. It is not known when one comes free.
    Denied,
}

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    /// No permits, and none wanted.
    pub fn new(now: Instant) -> Self {
        Self {
            lease: ProcessLease::new(),
            gets: Capacity::UNLIMITED,
            shares: Vec::new(),
            admitted: 0,
            refused: 0,
            opened_at: now,
            last: 0,
            last_attempt: now,
            draws: PermitDraws::default(),
        }
    }

    /// Gives a worker a permit, and some for later if there are enough.
    ///
    /// A request may be held while the first answer is awaited; otherwise the capacity without a lease
    /// decides. One that [`AwaitAction::Admit`] lets go on may take a permit that was not lent.
    pub fn draw(
        &mut self,
        now: Instant,
        policy: &Policy,
        usage: &WorkerUsage,
        workers: u32,
        action: AwaitAction,
    ) -> PermitResult {
        self.lease.rouse(now, policy);
        let peak = usage.peak.max(usage.in_use.saturating_add(1));
        self.take_report(now, &WorkerUsage { peak, ..*usage });
        self.last_attempt = now.max(self.last_attempt);
        let result = self.draw_with(now, policy, usage.worker, workers, action);
        if self.draws.offered {
            self.note_use(usage.admitted)
        } else {
            self.hurry(now);
        }
        result
    }

    fn draw_with(
        &mut self,
        now: Instant,
        policy: &Policy,
        worker: u64,
        workers: u32,
        action: AwaitAction,
    ) -> PermitResult {
        if let Phase::Pending { until } = self.lease.phase
            && (action == AwaitAction::Hold || self.draws.offered)
        {
            return self.await_permit(worker, until, action);
        }
        match self.give(now, policy, worker, workers) {
            PermitResult::Denied => self.draw_of_fleet(now, policy, worker, action),
            given => given,
        }
    }

    /// Gives a worker permits that are free here.
    fn give(&mut self, now: Instant, policy: &Policy, worker: u64, workers: u32) -> PermitResult {
        let limit = self.limit(now, policy);
        let free = limit.saturating_sub(self.held());
        let parts = workers.saturating_mul(4).max(1);
        let spare = if self.draws.offered {
            0
        } else {
            limit.checked_div(parts).unwrap_or(0).min(BATCH_MAX)
        };
        let more = free.min(spare.max(1));
        match self.share(worker) {
            Some(share) if more > 0 => {
                share.held = share.held.saturating_add(more);
                let held = share.held;
                PermitResult::Held { held, spare }
            }
            _ => PermitResult::Denied,
        }
    }

    /// Takes a worker's report, and takes back its permits beyond that. True if the wants have
    /// changed so much that [`ConcurrencyLimiter::due`] moved forward.
    pub fn report(&mut self, now: Instant, usage: &WorkerUsage) -> bool {
        self.take_report(now, usage);
        if self.draws.offered {
            self.note_use(usage.admitted);
            self.note_ends(now);
            return false;
        }
        self.hurry(now)
    }

    fn take_report(&mut self, now: Instant, usage: &WorkerUsage) {
        self.roll(now);
        if usage.admitted > 0 || usage.refused > 0 {
            self.last_attempt = now.max(self.last_attempt);
        }
        self.admitted = self.admitted.saturating_add(usage.admitted);
        self.refused = self.refused.saturating_add(usage.refused);
        let attempts = u64::from(usage.admitted).saturating_add(usage.turned_away.into());
        self.lease.client.count(attempts, usage.turned_away.into());
        self.set_share(now, usage);
    }

    /// Makes the next request to the coordinator due if the wants have changed so much. True if that moved it
    /// forward.
    fn hurry(&mut self, now: Instant) -> bool {
        let reported = whole(self.lease.reported);
        let changed = self.wants().saturating_sub(reported) > reported / 10;
        changed && self.lease.may_hurry() && self.lease.hurry(now)
    }

    /// Drops the shares of workers that are not `living` and were not heard of for 3 s.
    pub fn sweep(&mut self, now: Instant, living: &[u64]) {
        self.shares
            .retain(|share| !share.is_silent(now) || living.contains(&share.worker));
    }

    /// Returns whether a worker other than `worker` has permits and was not heard of for so long that
    /// [`ConcurrencyLimiter::sweep`] may take them.
    pub fn has_silent(&self, now: Instant, worker: u64) -> bool {
        let mut others = self.shares.iter().filter(|share| share.worker != worker);
        others.any(|share| share.held > 0 && share.is_silent(now))
    }

    /// Time at which there is a message for the coordinator; none while idle.
    pub fn due(&self) -> Option<Instant> {
        self.lease.client.due
    }

    /// Returns the message that is due, as [`RateLimiter::ask`](super::RateLimiter::ask) does, also
    /// if it would be due within `early`.
    pub(super) fn ask_early(
        &mut self,
        now: Instant,
        policy: &Policy,
        early: Duration,
    ) -> LeaseMessage {
        if !self.lease.client.is_due(now, early) {
            return LeaseMessage::Nothing;
        }
        self.roll(now);
        let wants = if self.draws.offered {
            self.give_unused_back()
        } else {
            self.wants()
        };
        let wants = Capacity::from_whole(wants.into());
        let has = self.has(now);
        if let Some(kept) = &mut self.lease.client.lease
            && self.gets < kept.capacity
        {
            // The coordinator counts no more from now on, even if its answer is lost.
            kept.capacity = kept.capacity.min(has);
        }
        match self.lease.ask(now, policy, has, wants) {
            LeaseMessage::Refresh(request) => LeaseMessage::Refresh(LeaseRequest {
                // Permits can be drawn: what is held of them is the lease.
                draw: Some(DrawRequest {
                    account: 1,
                    ..DrawRequest::default()
                }),
                ..request
            }),
            message => {
                self.end_waits();
                message
            }
        }
    }

    /// Applies the answer to the request of `sequence`. False if it was dropped.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        let accepted = self.lease.accepts(now, sequence, origin);
        if accepted {
            let before = self.lease.client.valid_lease(now);
            self.lease.apply(now, origin, answer);
            let given = self.lease.client.lease;
            self.gets = given.map_or(Capacity::ZERO, |given| given.capacity);
            if let (Some(before), Some(given)) = (before, given)
                && self.must_keep(now, before, given)
            {
                self.lease.client.lease = Some(before);
            }
            self.apply_draw(now, answer);
        }
        accepted
    }

    /// Whether more is in flight of the lease `before` than is `given` now, and the next answer
    /// comes before it ends. One that is to end sooner is to be gone by then.
    fn must_keep(&self, now: Instant, before: HeldLease, given: HeldLease) -> bool {
        let in_flight = Capacity::from_whole(self.held().into());
        let next = self.lease.client.due.unwrap_or(now);
        let answered = next.saturating_add(next.saturating_since(now));
        in_flight.min(before.capacity) > given.capacity
            && before.expiry <= given.expiry
            && before.expiry > answered
    }

    /// Notes that the request of `sequence` failed.
    pub fn handle_failure(&mut self, now: Instant, sequence: u64, seed: u64) {
        if self.lease.handle_failure(now, sequence, seed) {
            self.end_waits();
        }
    }

    /// State of the lease at `now`.
    pub fn state(&self, now: Instant) -> LeaseState {
        self.lease.state(now)
    }

    /// Number that may be in flight at `now`.
    pub fn limit(&self, now: Instant, policy: &Policy) -> u32 {
        let lease = self.lease.client.valid_lease(now);
        let leased = lease.map(|lease| whole(lease.capacity.min(self.gets)));
        // A lease of what was in flight says little of what may be, once nobody answers.
        if let Some(leased) = leased.filter(|_| !self.is_cut_off()) {
            return leased;
        }
        let known = self.lease.client.known_limit();
        let wants = Capacity::from_whole(self.wants().into());
        let without = whole(policy.without_lease(Unit::Concurrency, known, wants));
        leased.map_or(without, |leased| leased.max(without))
    }

    /// Permits of all workers.
    pub fn held(&self) -> u32 {
        let held = self.shares.iter().map(|share| share.held);
        held.fold(0, u32::saturating_add)
    }

    /// Capacity that the client has at `now`: its lease, and of one that is kept for requests that
    /// were begun under it as much as is in flight. Never more than was lent, and without a lease
    /// nothing: a coordinator that heard of other requests would take them for the lease of another
    /// master.
    pub fn has(&self, now: Instant) -> Capacity {
        let lease = self.lease.client.valid_lease(now);
        lease.map_or(Capacity::ZERO, |lease| {
            let in_flight = Capacity::from_whole(self.held().into());
            let in_use = self.gets.max(in_flight);
            lease.capacity.min(Capacity::MAX).min(in_use)
        })
    }

    /// The capacity of the whole resource, as the coordinator last said.
    pub fn capacity(&self) -> Option<Capacity> {
        self.lease.client.capacity
    }

    /// Whether nothing would be lost with this limiter.
    pub fn is_reusable(&self, now: Instant) -> bool {
        let abandoned = now.saturating_since(self.last_attempt) >= ABANDONED_AFTER;
        (self.lease.phase == Phase::Idle || abandoned)
            && self.lease.client.valid_lease(now).is_none()
            && self.held() == 0
    }

    /// Number that would be in flight if nothing were refused.
    pub fn wants(&self) -> u32 {
        self.last.max(self.estimate())
    }

    /// The most that was in use at once in this window, if all workers were busiest together.
    fn peak(&self) -> u32 {
        let peaks = self.shares.iter().map(|share| share.peak);
        peaks.fold(0, u32::saturating_add)
    }

    fn estimate(&self) -> u32 {
        let peak = self.peak();
        let attempts = u64::from(self.admitted).saturating_add(self.refused.into());
        let more = u64::from(peak)
            .saturating_mul(attempts)
            .div_ceil(u64::from(self.admitted).max(1));
        match (self.refused, self.admitted) {
            (0, _) => peak,
            (refused, 0) => peak.saturating_add(refused),
            _ => u32::try_from(more)
                .unwrap_or(u32::MAX)
                .max(peak.saturating_add(1)),
        }
    }

    /// Closes the window if it is over.
    fn roll(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.opened_at);
        if elapsed < WINDOW {
            return;
        }
        self.last = self.estimate();
        self.opened_at = now;
        (self.admitted, self.refused) = (0, 0);
        self.shares
            .retain(|share| share.held > 0 || share.waiting > 0);
        for share in &mut self.shares {
            // No more than was used is in use, and no more than the worker's permits: some of those
            // are spare.
            share.peak = share.peak.min(share.held);
        }
        if elapsed >= WINDOW.saturating_mul(2) {
            self.last = self.peak();
        }
    }
}

// === free functions ===

/// Whole units, rounded down; all that there can be if unlimited.
fn whole(capacity: Capacity) -> u32 {
    if capacity.is_unlimited() {
        return u32::MAX;
    }
    let whole = capacity.as_micros() / crate::units::MICRO;
    u32::try_from(whole).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
