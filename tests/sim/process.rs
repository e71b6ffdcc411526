//! Simulated Envoy process, with real engines as its workers.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::client::{
    ConcurrencyLimiter, KnownLimit, LeaseState, Policy, RateLimiter, ScopeState,
};
use tollgate_core::lease::{ClientId, ClientRun, ResourceId, Run, Unit};
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Capacity, Instant, MICRO};
use tollgate_engine::Call;
use tollgate_sim::random::Random;

pub(crate) use self::host::{CallId, OutgoingCall};
use self::view::balance;
pub(crate) use self::work::{Tally, Work};
use self::worker::TICK_LEAST;
pub(crate) use self::workers::Setup;
use self::workers::Workers;
use crate::watches::Stream;

mod host;
mod shared_data;
mod view;
mod work;
mod worker;
mod workers;

/// Interval at which requests come, all of that time at once.
const BATCH: Duration = Duration::from_millis(10);
/// Time for which permits of a lost worker may be counted: until they are missed after three
/// seconds, and the sync leader, which may be lost as well, looks at the scope.
const MISSED_AFTER: Duration = Duration::from_secs(5);
/// The same for a scope without requests, which miss nothing: until it is asked for again, after the
/// longest back-off where no coordinator answers.
const UNMISSED_AFTER: Duration = Duration::from_secs(8);
/// Time after the first request that misses permits in which the sync leader looks at the scope.
const LOOKED_AT_AFTER: Duration = Duration::from_secs(2);

/// One process. Its clock has an epoch of its own, like that of every machine.
pub(crate) struct Process {
    pub(crate) id: ClientId,
    pub(crate) policy: Policy,
    /// Requests per second that it is asked for.
    pub(crate) demand: u64,
    /// Counts the processes that were started, to tell messages of a dead one and for it.
    pub(crate) incarnation: u64,
    pub(crate) deaf_until: Instant,
    pub(crate) mute_until: Instant,
    /// Tokens that were spent since the last look of a law.
    pub(crate) admitted: u64,
    pub(crate) admitted_total: u64,
    /// The limit of the last answer that was applied and told one.
    pub(crate) limit_sent: Option<KnownLimit>,
    /// The first broken invariant that its workers saw.
    pub(crate) broken: Option<String>,
    /// Tokens that were owed and need not be paid, since the last look of a law.
    pub(crate) forgiven: f64,
    /// Bytes of requests that went on together with others beyond one body each time, since then.
    pub(crate) together: u64,
    /// Whether a debt was cut to what may be owed, since then.
    pub(crate) debt_cut: bool,
    work: Work,
    workers: Rc<Workers>,
    /// The scope's record in shared data.
    scope_state: Option<ScopeState>,
    /// Whether all requests use the limit, and nothing but that.
    limit_is_all: bool,
    /// Whether anything was done since the last look of a law.
    touched: bool,
    clock_offset: Duration,
    attempts_due: u64,
    /// Time at which requests came last.
    batch_at: Instant,
    /// Time at which the process is planned to run next.
    planned: Option<Instant>,
}

// === impl Process ===

impl Process {
    pub(crate) fn new(
        now: Instant,
        random: &mut Random,
        name: u64,
        setup: Setup,
        demand: u64,
    ) -> Self {
        let clock_offset = Duration::from_nanos(random.bits() >> 8);
        let clock = now.saturating_add(clock_offset);
        Self {
            id: ClientId::new(&format!("envoy/{name}")).expect("a valid id"),
            policy: setup.policy.clone(),
            demand,
            incarnation: setup.incarnation,
            deaf_until: now,
            mute_until: now,
            admitted: 0,
            admitted_total: 0,
            limit_sent: None,
            broken: None,
            forgiven: 0.0,
            together: 0,
            debt_cut: false,
            work: setup.work,
            workers: Workers::new(clock, setup, Random::new(random.bits())),
            scope_state: None,
            limit_is_all: false,
            touched: true,
            clock_offset,
            attempts_due: 0,
            batch_at: now,
            planned: None,
        }
    }

    /// Returns the client as which the coordinators count it.
    pub(crate) fn run(&self) -> ClientRun {
        let incarnation = NonZeroU64::new(self.incarnation);
        ClientRun {
            id: self.id.clone(),
            run: Run::Incarnation(incarnation.expect("they are counted from 1")),
        }
    }

    /// Returns the time on this process's clock when the world's shows `now`.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.clock_offset)
    }

    /// Does what is due at `now`, if that was planned: requests come, workers tick, streams end.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.planned.is_none_or(|at| now < at) {
            return;
        }
        self.planned = None;
        let elapsed = now.saturating_since(self.batch_at);
        if elapsed >= BATCH {
            self.batch_at = now;
            // Micro-attempts, so that slow demand arrives too.
            self.attempts_due += self.demand * elapsed.as_micros() as u64;
            for _ in 0..self.attempts_due / 1_000_000 {
                self.workers.attempt();
            }
            self.attempts_due %= 1_000_000;
        }
        self.workers.set_now(self.clock(now));
        self.workers.run();
        self.look();
    }

    /// Returns how long it is until the process is to run, unless that was said before.
    pub(crate) fn plan(&mut self, now: Instant) -> Option<Duration> {
        let batch = self.batch_at.saturating_add(BATCH);
        let due = self.workers.due_at();
        let due = due.map_or(batch, |due| due.saturating_sub(self.clock_offset));
        let next = match self.demand {
            0 => due,
            _ => due.min(batch),
        };
        let next = next.max(now.saturating_add(TICK_LEAST));
        if self.planned.is_some_and(|planned| planned <= next) {
            return None;
        }
        self.planned = Some(next);
        Some(next.saturating_since(now))
    }

    /// Returns the calls that its workers have made, in the name under which it is known.
    pub(crate) fn take_calls(&self) -> Vec<OutgoingCall> {
        let mut calls = self.workers.take_calls();
        for call in &mut calls {
            match &mut call.call {
                Call::Refresh(refresh) => refresh.client = self.run(),
                Call::Release(release) => release.client = self.run(),
            }
        }
        calls
    }

    /// Traps a worker's VM: its state is lost, and a new worker takes its place.
    pub(crate) fn trap(&mut self, now: Instant) {
        self.workers.set_now(self.clock(now));
        self.workers.trap();
        self.look();
    }

    /// Cuts the process off until then: its messages are lost, those to it, or both.
    pub(crate) fn cut_off(&mut self, until: Instant, sends: bool, receives: bool) {
        if sends {
            self.mute_until = until;
        }
        if receives {
            self.deaf_until = until;
        }
    }

    /// Begins to count anew what it admits between two events.
    pub(crate) fn forget_admitted(&mut self) {
        (self.admitted, self.forgiven, self.together) = (0, 0.0, 0);
        (self.debt_cut, self.touched) = (false, false);
    }

    /// Makes all requests alike from now on.
    pub(crate) fn calm(&mut self) {
        self.workers.calm();
    }

    /// Hands a worker the answer to its call. Returns whether it changed the lease under test.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        call: CallId,
        mut answer: Result<Refreshed, String>,
    ) -> bool {
        if let (Some(defect), Ok(answer)) = (self.workers.setup.defect, &mut answer) {
            defect.change(answer);
        }
        self.workers.set_now(self.clock(now));
        self.workers.answer(call, answer);
        self.look()
    }

    /// Returns the streams for nudges that its workers have opened.
    pub(crate) fn take_streams(&self) -> Vec<u32> {
        self.workers.take_streams()
    }

    /// Returns whether `stream` is one of this process that a worker wants to hear of.
    pub(crate) fn watches(&self, stream: &Stream) -> bool {
        self.incarnation == stream.incarnation && self.workers.watches(stream.token)
    }

    /// Hands a worker a nudge that has come on its stream. Returns whether there is one.
    pub(crate) fn nudge(&mut self, now: Instant, stream: Stream, resource: &ResourceId) -> bool {
        if !self.watches(&stream) || self.deaf_until > now {
            return false;
        }
        self.workers.set_now(self.clock(now));
        self.workers.nudge(stream.token, resource);
        self.look();
        true
    }

    /// Tells a worker that its stream has ended. Returns whether there is one.
    pub(crate) fn end_watch(&mut self, now: Instant, stream: Stream) -> bool {
        if !self.watches(&stream) {
            return false;
        }
        self.workers.set_now(self.clock(now));
        self.workers.end_watch(stream.token);
        self.look();
        true
    }

    /// Collects the workers' observations. Returns whether an answer was applied.
    fn look(&mut self) -> bool {
        let mut seen = self.workers.seen.borrow_mut();
        let admitted = std::mem::take(&mut seen.admitted);
        self.admitted += admitted;
        self.admitted_total += admitted;
        self.forgiven += std::mem::take(&mut seen.forgiven);
        self.together += std::mem::take(&mut seen.together);
        self.debt_cut |= std::mem::take(&mut seen.debt_cut);
        self.limit_sent = seen.limit_sent;
        self.broken.clone_from(&seen.broken);
        let applied = std::mem::take(&mut seen.applied) > 0;
        drop(seen);
        self.scope_state = self.workers.scope_state();
        self.limit_is_all =
            self.workers.members_are_known() && self.workers.members_are_unlimited();
        self.touched = true;
        applied
    }

    // Observations for the laws; `now` is the world's.

    pub(crate) fn unit(&self) -> Unit {
        self.work.unit()
    }

    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// Returns the capacity that its lease lets it use.
    pub(crate) fn has(&self, now: Instant) -> Capacity {
        let now = self.clock(now);
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.has(now),
            (None, Some(limiter)) if limiter.state(now) == LeaseState::Leased => {
                Capacity::from_whole(limiter.limit(now, &self.policy).into())
            }
            (None, _) => Capacity::ZERO,
        }
    }

    /// Returns the capacity that it reports; that is more than it may use while more is in flight.
    pub(crate) fn claims(&self, now: Instant) -> Capacity {
        match self.limiter() {
            Some(limiter) => limiter.has(self.clock(now)),
            None => self.has(now),
        }
    }

    /// Returns the safe capacity in force: the one last sent to this process, else its own, but no
    /// more than the limit.
    pub(crate) fn safe(&self) -> Capacity {
        let sent = self.limit_sent.and_then(|limit| limit.safe);
        let safe = sent.unwrap_or_else(|| self.policy.safe_of(self.unit()));
        safe.min(self.limit())
    }

    /// Returns the limit that was last sent to this process.
    pub(crate) fn limit(&self) -> Capacity {
        self.limit_sent
            .map_or(Capacity::UNLIMITED, |limit| limit.capacity)
    }

    /// Returns its wants, or zero if it has only just begun to ask.
    pub(crate) fn wants(&self, now: Instant) -> f64 {
        match self.state(now) {
            LeaseState::Idle | LeaseState::Pending => 0.0,
            LeaseState::Leased | LeaseState::NoLease => self.wanted().as_f64(),
        }
    }

    pub(crate) fn wanted(&self) -> Capacity {
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.wants(),
            (None, Some(limiter)) => Capacity::from_whole(limiter.wants().into()),
            (None, None) => Capacity::ZERO,
        }
    }

    pub(crate) fn state(&self, now: Instant) -> LeaseState {
        let now = self.clock(now);
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => rate.state(now),
            (None, Some(limiter)) => limiter.state(now),
            (None, None) => LeaseState::Idle,
        }
    }

    /// Returns the flow in millionths: a rate and a burst, or a number in flight.
    pub(crate) fn flow(&self, now: Instant) -> (u64, u64) {
        let now = self.clock(now);
        match (self.rate(), self.limiter()) {
            (Some(rate), _) => {
                let (rate, burst) = rate.flow(now, &self.policy);
                (rate.as_micros(), burst.as_micros())
            }
            (None, Some(limiter)) => {
                let limit = limiter.limit(now, &self.policy);
                (u64::from(limit).saturating_mul(MICRO), 0)
            }
            (None, None) => (0, 0),
        }
    }

    /// Returns whether it was ever lent anything.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        match self.rate() {
            Some(rate) => rate.lease_expiry().is_some(),
            None => self.state(now) == LeaseState::Leased,
        }
    }

    /// Returns whether permits of a worker that has trapped may be missing.
    pub(crate) fn misses_permits(&self, now: Instant) -> bool {
        let seen = self.workers.seen.borrow();
        let Some(at) = seen.trapped_at.filter(|_| self.unit().is_concurrency()) else {
            return false;
        };
        let unmissed = at.saturating_add(UNMISSED_AFTER);
        let looked_at = seen.missed_at.map(|at| at.saturating_add(LOOKED_AT_AFTER));
        let looked_at = looked_at.map_or(unmissed, |looked_at| looked_at.min(unmissed));
        self.clock(now) <= looked_at.max(at.saturating_add(MISSED_AFTER))
    }

    pub(crate) fn workers(&self) -> u64 {
        self.workers.count() as u64
    }

    /// Returns the counts of its workers' events, such as waits and traps.
    pub(crate) fn tally(&self) -> Tally {
        self.workers.tally()
    }

    /// Checks that the permits of its workers and the process's counts agree.
    pub(crate) fn check_counts(&self, now: Instant) -> Result<(), String> {
        if !self.touched {
            return Ok(());
        }
        self.workers.check()?;
        if !self.unit().is_concurrency() {
            return Ok(());
        }
        let held = self.workers.permits_held();
        let counted = self.limiter().map_or(0, ConcurrencyLimiter::held);
        match counted < held || !self.misses_permits(now) && counted > held {
            true => Err(format!(
                "workers hold {held} permits, {counted} are counted"
            )),
            false => Ok(()),
        }
    }

    /// Returns the least demand for tokens of the limit, per second: some scopes that share it may
    /// not be known to do so, or have fallen back to a limit of their own.
    pub(crate) fn asked_for(&self) -> f64 {
        match self.limit_is_all {
            true => self.demand as f64 * self.work.usual() as f64,
            false => 0.0,
        }
    }

    /// Returns the tokens that have passed and must be paid before more pass.
    pub(crate) fn owed(&self, now: Instant) -> f64 {
        let now = self.clock(now);
        let balance = |rate| balance(rate, now, &self.policy);
        self.rate().map_or(0.0, |rate| (-balance(rate)).max(0.0))
    }

    /// Returns the tokens that have passed and that the process's bucket does not know of.
    pub(crate) fn uncounted(&self) -> f64 {
        self.workers.owed()
    }

    fn rate(&self) -> Option<&RateLimiter> {
        let scope_state = self.scope_state.as_ref()?;
        match self.unit() {
            Unit::Requests => Some(&scope_state.requests),
            Unit::RequestBytes => scope_state.request_bytes.as_deref(),
            Unit::ResponseBytes => scope_state.response_bytes.as_deref(),
            Unit::Concurrency => None,
        }
    }

    fn limiter(&self) -> Option<&ConcurrencyLimiter> {
        let concurrency = self.scope_state.as_ref()?.concurrency.as_deref();
        concurrency.filter(|_| self.unit().is_concurrency())
    }
}
