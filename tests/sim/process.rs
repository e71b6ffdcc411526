//! A simulated Envoy process: the real holding of one scope, with workers that use it as the filter
//! does.

use std::num::NonZeroU64;
use std::time::Duration;

use tollgate_core::client::{
    ConcurrencyLimiter, LeaseMessage, LeaseState, Policy, RateLimiter, ScopeState,
};
use tollgate_core::lease::{Answer, ClientId, ClientRun, Origin, Run, Unit, UnitAnswer};
use tollgate_core::units::{Capacity, Instant, MICRO};

use self::work::{Crew, Desk, balance};
pub(crate) use self::work::{Tally, Work};
use crate::random::Random;

mod bytes;
mod in_flight;
mod requests;
mod waiting;
mod work;

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
    /// The safe capacity of the last answer that was applied.
    pub(crate) safe_sent: Option<Capacity>,
    /// What its workers saw that must not be.
    pub(crate) broken: Option<String>,
    /// Tokens that were owed and need not be paid, since the last look of a law.
    pub(crate) forgiven: f64,
    work: Work,
    scope_state: ScopeState,
    crew: Crew,
    clock_offset: Duration,
    attempts_due: u64,
}

// === impl Process ===

impl Process {
    pub(crate) fn new(
        now: Instant,
        random: &mut Random,
        (name, incarnation): (u64, u64),
        policy: &Policy,
        work: Work,
        workers: u32,
        demand: u64,
    ) -> Self {
        let clock_offset = Duration::from_nanos(random.next() >> 8);
        let started_at = now.saturating_add(clock_offset);
        let mut scope_state = ScopeState::new(started_at, policy);
        scope_state.set_terms(started_at, policy, &[work.unit()], None);
        Self {
            id: ClientId::new(&format!("envoy/{name}")).expect("a valid id"),
            policy: policy.clone(),
            demand,
            incarnation,
            deaf_until: now,
            mute_until: now,
            admitted: 0,
            admitted_total: 0,
            safe_sent: None,
            broken: None,
            forgiven: 0.0,
            work,
            scope_state,
            crew: Crew::new(work, workers),
            clock_offset,
            attempts_due: 0,
        }
    }

    /// As which client the coordinators count it.
    pub(crate) fn run(&self) -> ClientRun {
        let incarnation = NonZeroU64::new(self.incarnation);
        ClientRun {
            id: self.id.clone(),
            run: Run::Incarnation(incarnation.expect("they are counted from 1")),
        }
    }

    /// What this process's clock shows when the world's shows `now`.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now.saturating_add(self.clock_offset)
    }

    /// The requests of one tick, then what there is to say to the coordinator.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        random: &mut Random,
        tick: Duration,
    ) -> LeaseMessage {
        let now = self.clock(now);
        // Micro-attempts, so that slow demand arrives too.
        self.attempts_due += self.demand * tick.as_micros() as u64;
        let attempts = self.attempts_due / 1_000_000;
        self.attempts_due %= 1_000_000;
        let admitted = self.at_work(now, |crew, desk| crew.work(desk, random, attempts));
        self.admitted += admitted;
        self.admitted_total += admitted;
        let todo = self.scope_state.ask(now, &self.policy).pop();
        todo.map_or(LeaseMessage::Nothing, |(_, todo)| todo)
    }

    /// A worker's VM traps: what it knew is gone, and a new one takes its place.
    pub(crate) fn trap(&mut self, random: &mut Random) {
        self.crew.trap(random);
    }

    /// Until then nobody hears what it says, it hears nothing, or both.
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
        (self.admitted, self.forgiven) = (0, 0.0);
    }

    /// From now on all requests are alike.
    pub(crate) fn calm(&mut self) {
        self.crew.calm();
    }

    pub(crate) fn answer(
        &mut self,
        now: Instant,
        sequence: u64,
        origin: Origin,
        answer: &Answer,
    ) -> bool {
        let (now, unit) = (self.clock(now), self.unit());
        let unit_answer = UnitAnswer {
            unit,
            sequence,
            answer: *answer,
        };
        let applied = self
            .scope_state
            .handle_answer(now, &self.policy, origin, &unit_answer);
        if applied {
            self.safe_sent = answer.safe;
            self.crew.hurry(now);
        }
        applied
    }

    pub(crate) fn fail(&mut self, now: Instant, sequence: u64, seed: u64) {
        let (now, unit) = (self.clock(now), self.unit());
        self.scope_state.handle_failure(now, unit, sequence, seed);
    }

    // What the laws look at; `now` is the world's.

    pub(crate) fn unit(&self) -> Unit {
        self.work.unit()
    }

    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// What its lease says that it may use.
    pub(crate) fn has(&self, now: Instant) -> Capacity {
        let now = self.clock(now);
        match self.rate() {
            Some(rate) => rate.has(now),
            None if self.limiter().state(now) == LeaseState::Leased => {
                Capacity::from_whole(self.limiter().limit(now, &self.policy).into())
            }
            None => Capacity::ZERO,
        }
    }

    /// What it says that it has, which is more than it may use while more is in flight.
    pub(crate) fn claims(&self, now: Instant) -> Capacity {
        match self.rate() {
            Some(_) => self.has(now),
            None => self.limiter().has(self.clock(now)),
        }
    }

    /// The safe capacity in force: the one last sent to this process, else its own.
    pub(crate) fn safe(&self) -> Capacity {
        self.safe_sent
            .unwrap_or_else(|| self.policy.safe_of(self.unit()))
    }

    /// What it wants, unless it has only just begun to ask.
    pub(crate) fn wants(&self, now: Instant) -> f64 {
        match self.state(now) {
            LeaseState::Idle | LeaseState::Pending => 0.0,
            LeaseState::Leased | LeaseState::NoLease => self.wanted().as_f64(),
        }
    }

    pub(crate) fn wanted(&self) -> Capacity {
        match self.rate() {
            Some(rate) => rate.wants(),
            None => Capacity::from_whole(self.limiter().wants().into()),
        }
    }

    pub(crate) fn state(&self, now: Instant) -> LeaseState {
        let now = self.clock(now);
        match self.rate() {
            Some(rate) => rate.state(now),
            None => self.limiter().state(now),
        }
    }

    /// What passes, in millionths: a rate and a burst, or a number in flight.
    pub(crate) fn flow(&self, now: Instant) -> (u64, u64) {
        let now = self.clock(now);
        match self.rate() {
            Some(rate) => {
                let (rate, burst) = rate.flow(now, &self.policy);
                (rate.as_micros(), burst.as_micros())
            }
            None => {
                let limit = self.limiter().limit(now, &self.policy);
                (u64::from(limit).saturating_mul(MICRO), 0)
            }
        }
    }

    /// Whether it was ever lent anything.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        match self.rate() {
            Some(rate) => rate.lease_expiry().is_some(),
            None => self.state(now) == LeaseState::Leased,
        }
    }

    /// Whether permits of a worker that has trapped may be missing.
    pub(crate) fn misses_permits(&self, now: Instant) -> bool {
        self.unit().is_concurrency() && self.crew.misses(self.clock(now))
    }

    pub(crate) fn workers(&self) -> u64 {
        self.crew.count()
    }

    /// What became of requests that had to wait.
    pub(crate) fn tally(&self) -> Tally {
        self.crew.tally()
    }

    /// Whether what workers hold and what the process counts agree.
    pub(crate) fn check_books(&self, now: Instant) -> Result<(), String> {
        let limiter = self.scope_state.concurrency.as_ref();
        self.crew.check(self.clock(now), limiter)
    }

    /// How many tokens it is asked for, per second.
    pub(crate) fn asked_for(&self) -> f64 {
        self.demand as f64 * self.work.usual() as f64
    }

    /// How many tokens have passed and must be paid before others pass.
    pub(crate) fn owed(&self, now: Instant) -> f64 {
        let now = self.clock(now);
        let balance = |rate| balance(rate, now, &self.policy);
        self.rate().map_or(0.0, |rate| (-balance(rate)).max(0.0))
    }

    fn rate(&self) -> Option<&RateLimiter> {
        match self.unit() {
            Unit::Requests => Some(&self.scope_state.requests),
            Unit::RequestBytes => self.scope_state.request_bytes.as_ref(),
            Unit::ResponseBytes => self.scope_state.response_bytes.as_ref(),
            Unit::Concurrency => None,
        }
    }

    fn limiter(&self) -> &ConcurrencyLimiter {
        self.scope_state
            .concurrency
            .as_ref()
            .expect("it was told of it")
    }

    fn at_work(&mut self, now: Instant, work: impl FnOnce(&mut Crew, &mut Desk<'_>) -> u64) -> u64 {
        let mut desk = Desk {
            now,
            policy: &self.policy,
            unit: self.work.unit(),
            workers: self.crew.count() as u32,
            scope_state: &mut self.scope_state,
            broken: &mut self.broken,
            forgiven: &mut self.forgiven,
        };
        work(&mut self.crew, &mut desk)
    }
}
