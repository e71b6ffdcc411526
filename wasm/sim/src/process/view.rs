//! Views of processes as clients of resources, for laws: read-only, at the time of the last event.

use std::time::Duration;

use tollgate_core::client::{ConcurrencyLimiter, DrawResult, LeaseState, Policy, RateLimiter};
use tollgate_core::lease::{ClientRun, ResourceId, Run, Unit};
use tollgate_core::units::{Capacity, Instant, MICRO, Tokens};

use super::Process;
use super::observations::{Observations, ObservedResource, ResourceDemand, Spent};
use crate::demand::RequestStream;
use crate::simulation::reached::Reached;

/// Time for which permits of a lost worker may be counted: until they are missed after three
/// seconds, and the sync leader, which may be lost as well, looks at the scope.
const MISSED_AFTER: Duration = Duration::from_secs(5);
/// The same for a scope without requests, which miss nothing: until it is asked for again, after the
/// longest back-off where no coordinator answers.
const UNMISSED_AFTER: Duration = Duration::from_secs(8);
/// Time after the first request that misses permits in which the sync leader looks at the scope.
const LOOKED_AT_AFTER: Duration = Duration::from_secs(2);

/// Process as client of one resource.
#[derive(Clone, Copy, Debug)]
pub struct ClientView<'a> {
    /// Place of the Envoy.
    pub envoy: usize,
    /// Name of the Envoy.
    pub name: &'a str,
    pub(crate) now: Instant,
    pub(super) process: &'a Process,
    pub(super) seen: &'a Observations,
    pub(super) client: &'a ObservedResource,
    /// Place of the resource among those of the process.
    pub(super) place: usize,
}

/// Process of one start, and one of its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey {
    envoy: usize,
    run: Run,
    resource: usize,
}

// === impl ClientView ===

impl<'a> ClientView<'a> {
    /// Returns the resource.
    pub fn resource(&self) -> &'a ResourceId {
        &self.client.of.id
    }

    /// Returns the key under which a law remembers it.
    pub fn key(&self) -> ClientKey {
        ClientKey {
            envoy: self.envoy,
            run: self.run().run,
            resource: self.place,
        }
    }

    /// Returns the unit that is counted.
    pub fn unit(&self) -> Unit {
        self.client.of.id.unit
    }

    /// Returns the client as which coordinators count the process.
    pub fn run(&self) -> &'a ClientRun {
        &self.process.name.run
    }

    /// Returns its settings.
    pub fn policy(&self) -> &'a Policy {
        self.process.kind().policy()
    }

    /// Returns whether requests wait in queues.
    pub fn is_shaped(&self) -> bool {
        self.process.kind().is_shaped()
    }

    /// Returns the number of its workers.
    pub fn workers(&self) -> usize {
        self.process.workers.count()
    }

    /// Returns the requests that use the resource.
    pub fn requests(&self) -> &'a ResourceDemand {
        &self.client.demand
    }

    /// Returns the first broken invariant that workers of the process saw.
    pub fn broken(&self) -> Option<&'a str> {
        self.seen.broken.as_deref()
    }

    /// Returns its use of the resource since the last event.
    pub fn spent(&self) -> Spent {
        self.client.spent
    }

    /// Returns the tokens that came back since the last event, for requests cost less, with the time since they were
    /// spent.
    pub fn came_back(&self) -> &[(Duration, u64)] {
        &self.client.came_back
    }

    /// Returns the tokens that were spent since the process started.
    pub fn admitted_total(&self) -> u64 {
        self.client.admitted_total
    }

    /// Returns the capacity that its lease lets it use.
    pub fn has(&self) -> Capacity {
        self.has_at(self.now)
    }

    /// Returns the same at another time, unless another answer comes.
    pub fn has_at(&self, now: Instant) -> Capacity {
        let now = self.process.clock.at(now);
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.has(now),
            (None, Some(limiter)) if limiter.state(now) == LeaseState::Leased => {
                Capacity::from_whole(limiter.limit(now, self.policy()).into())
            }
            (None, _) => Capacity::ZERO,
        }
    }

    /// Returns the capacity that it reports; that is more than it may use while more is in flight.
    pub fn claims(&self) -> Capacity {
        match self.limiter() {
            Some(limiter) => limiter.has(self.clock()),
            None => self.has(),
        }
    }

    /// Returns the safe capacity in force: the one last sent to this process, else its own, but no
    /// more than the limit.
    pub fn safe(&self) -> Capacity {
        let sent = self.client.limit_sent.and_then(|limit| limit.safe);
        let safe = sent.unwrap_or_else(|| self.policy().safe_of(self.unit()));
        safe.min(self.limit())
    }

    /// Returns the limit that was last sent to this process.
    pub fn limit(&self) -> Capacity {
        let sent = self.client.limit_sent;
        sent.map_or(Capacity::UNLIMITED, |limit| limit.capacity)
    }

    /// Returns its wants, or zero if it has only just begun to ask.
    pub fn wants(&self) -> f64 {
        match self.state() {
            LeaseState::Idle | LeaseState::Pending => 0.0,
            LeaseState::Leased | LeaseState::NoLease => self.wanted().as_f64(),
        }
    }

    /// Returns its wants.
    pub fn wanted(&self) -> Capacity {
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.wants(),
            (None, Some(limiter)) => Capacity::from_whole(limiter.wants().into()),
            (None, None) => Capacity::ZERO,
        }
    }

    /// Returns the state of its lease.
    pub fn state(&self) -> LeaseState {
        let now = self.clock();
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.state(now),
            (None, Some(limiter)) => limiter.state(now),
            (None, None) => LeaseState::Idle,
        }
    }

    /// Returns the flow: a rate and a burst, or a number in flight.
    pub fn flow(&self) -> (f64, f64) {
        let now = self.clock();
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => {
                let (rate, burst) = rate.flow(now, self.policy());
                (rate.as_micros() as f64 / MICRO as f64, tokens(burst))
            }
            (None, Some(limiter)) => (limiter.limit(now, self.policy()).into(), 0.0),
            (None, None) => (0.0, 0.0),
        }
    }

    /// Returns the tokens that it was ever granted of the fleet's bucket.
    pub fn granted(&self) -> Tokens {
        self.rate().map_or(Tokens::ZERO, RateLimiter::granted)
    }

    /// Returns whether it draws each token or permit, and has no lease beyond these.
    pub fn only_draws(&self) -> bool {
        let draws_tokens = self.is_drawing();
        let draws_tokens = draws_tokens && self.has() == Capacity::ZERO;
        draws_tokens || self.limiter().is_some_and(ConcurrencyLimiter::is_drawn)
    }

    /// Returns whether permits of a worker that has trapped may be missing.
    pub fn misses_permits(&self) -> bool {
        let Some(at) = self.seen.trapped_at else {
            return false;
        };
        let unmissed = at.saturating_add(UNMISSED_AFTER);
        let missed_at = self.seen.missed_at;
        let looked_at = missed_at.map(|at| at.saturating_add(LOOKED_AT_AFTER));
        let looked_at = looked_at.map_or(unmissed, |looked_at| looked_at.min(unmissed));
        let until = looked_at.max(at.saturating_add(MISSED_AFTER));
        self.unit().is_concurrency() && self.clock() <= until
    }

    /// Returns the tokens that requests would take that come now, per second: zero while some of them
    /// may not use the limit, or use another as well.
    pub fn asked_for(&self) -> f64 {
        if self.client.limit_is_all {
            self.demand() * self.client.demand.usual as f64
        } else {
            0.0
        }
    }

    /// Returns the requests per second that come now.
    pub fn demand(&self) -> f64 {
        let parts = self.client.demand.parts.iter();
        let rates = parts.map(|(place, part)| {
            let stream = self.process.streams.get(*place);
            stream.map_or(0.0, RequestStream::rate) * part
        });
        rates.sum()
    }

    /// Returns the tokens that have passed and must be paid before more pass.
    pub fn owed(&self) -> f64 {
        let now = self.clock();
        self.rate().map_or(0.0, |rate| {
            let debt = -balance(rate, now, self.policy());
            tokens(rate.owed()) + debt.max(0.0)
        })
    }

    /// Returns the tokens of the fleet's bucket that it has spent and not drawn.
    pub fn on_credit(&self) -> f64 {
        self.rate().map_or(0.0, |rate| tokens(rate.owed()))
    }

    /// Returns whether it draws of the fleet's bucket.
    pub fn is_drawing(&self) -> bool {
        self.rate().is_some_and(RateLimiter::is_drawing)
    }

    /// Returns the capacity that it has because it draws and its calls fail.
    pub fn standby(&self) -> Option<Capacity> {
        let (now, policy) = (self.clock(), self.policy());
        self.rate().and_then(|rate| rate.standby(now, policy))
    }

    /// Returns the tokens that have passed and that the process's bucket does not know of.
    pub fn uncounted(&self) -> f64 {
        self.process.owed(self.resource())
    }

    /// Checks that all that workers remember adds up, and that the permits of these and the process's
    /// counts agree.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check_counts(&self) -> Result<(), String> {
        self.process.check(self.now, self.tally())?;
        if !self.unit().is_concurrency() {
            return Ok(());
        }
        let held = self.process.check_permits(self.resource())?;
        let counted = self.limiter().map_or(0, ConcurrencyLimiter::held);
        if counted < held || !self.misses_permits() && counted > held {
            Err(format!(
                "workers hold {held} permits, {counted} are counted"
            ))
        } else {
            Ok(())
        }
    }

    /// Returns the cases that its workers have reached.
    pub fn tally(&self) -> &'a Reached {
        &self.seen.tally
    }

    /// Returns the time by the clock of the process.
    fn clock(&self) -> Instant {
        self.process.clock.at(self.now)
    }

    fn rate(&self) -> Option<&'a RateLimiter> {
        let state = self.client.scope_state.as_ref()?;
        match self.unit() {
            Unit::Requests => Some(&state.requests),
            Unit::RequestBytes => state.request_bytes.as_deref(),
            Unit::ResponseBytes => state.response_bytes.as_deref(),
            Unit::Concurrency => None,
        }
    }

    fn limiter(&self) -> Option<&'a ConcurrencyLimiter> {
        let concurrency = self.client.scope_state.as_ref()?.concurrency.as_deref();
        concurrency.filter(|_| self.unit().is_concurrency())
    }
}

// === free functions ===

/// Returns the tokens in the bucket of `limiter`; negative while some are owed.
pub(super) fn balance(limiter: &RateLimiter, now: Instant, policy: &Policy) -> f64 {
    let mut limiter = limiter.clone();
    let draw = limiter.draw_at_once(now, policy, Tokens::ONE, 1);
    let (rate, _) = limiter.flow(now, policy);
    let left = limiter.level(now).left;
    match draw {
        DrawResult::Tokens(drawn) => tokens(left.saturating_add(drawn)),
        DrawResult::Denied { retry_at: Some(at) } => {
            1.0 - at.saturating_since(now).as_secs_f64() * rate.as_micros() as f64 / MICRO as f64
        }
        _ => tokens(left),
    }
}

/// Returns the largest debt allowed, in tokens: what the bucket pays within the policy's time. The
/// bucket of a process that has come back keeps the rate of its last lease until the first answer,
/// although the process has no more than the safe capacity without it.
pub(super) fn debt_max(limiter: &RateLimiter, now: Instant, policy: &Policy) -> f64 {
    let rate = match limiter.state(now) {
        LeaseState::Idle | LeaseState::Pending => limiter.earns(),
        LeaseState::Leased | LeaseState::NoLease => limiter.flow(now, policy).0,
    };
    tokens(rate.tokens_in(policy.max_debt))
}

/// Returns a number of tokens.
pub fn tokens(tokens: Tokens) -> f64 {
    tokens.as_micros() as f64 / MICRO as f64
}
