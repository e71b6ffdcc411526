//! What the workers of a process do with what it holds.

use std::time::Duration;

use tollgate_core::client::{ConcurrencyLimiter, DrawResult, Policy, RateLimiter, ScopeState};
use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::bytes::Meter;
use super::in_flight::Permits;
use super::requests::Counter;
use super::waiting::Queue;
use crate::random::Random;

/// For how long permits may be counted that a worker held whose VM trapped: until they are missed,
/// and a window more.
const MISSED_AFTER: Duration = Duration::from_secs(5);

/// What is counted, and what becomes of requests beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Requests, refused beyond the limit.
    Requests,
    /// Requests that wait for their turn for so long, of so many members.
    Waiting { max_wait: Duration, members: u64 },
    /// Bytes in one direction, usually so many a request.
    Bytes { unit: Unit, usual: u64 },
    /// Requests in flight, each for so long.
    InFlight { takes: Duration },
}

/// One worker.
pub(super) trait Worker {
    /// A request comes. Says how many tokens were spent.
    fn attempt(&mut self, desk: &mut Desk<'_>, random: &mut Random) -> u64;

    /// Does what is done on a tick, now and then `tidy`. Says how many tokens were spent.
    fn tick(&mut self, desk: &mut Desk<'_>, random: &mut Random, tidy: bool) -> u64;

    /// An answer has come.
    fn hurry(&mut self, _now: Instant) {}

    /// From now on all requests are alike.
    fn calm(&mut self) {}

    /// Its number, and the permits that it holds.
    fn permits(&self) -> Option<(u64, u32)> {
        None
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }

    /// Whether all that it remembers adds up.
    fn check(&self, _now: Instant) -> Result<(), String> {
        Ok(())
    }
}

/// All workers of a process.
pub(super) struct Crew {
    work: Work,
    workers: Vec<Box<dyn Worker>>,
    /// Of workers that have trapped.
    past: Tally,
    trapped_at: Option<Instant>,
    now: Instant,
}

/// What a worker finds at its process.
pub(super) struct Desk<'a> {
    /// By the clock of the process.
    pub(super) now: Instant,
    pub(super) policy: &'a Policy,
    pub(super) unit: Unit,
    pub(super) workers: u32,
    pub(super) scope_state: &'a mut ScopeState,
    pub(super) broken: &'a mut Option<String>,
    /// Tokens that were owed and need not be paid.
    pub(super) forgiven: &'a mut f64,
}

/// What became of requests that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) joined: u64,
    pub(crate) went: u64,
    pub(crate) timed_out: u64,
    /// Their streams were closed.
    pub(crate) left: u64,
    pub(crate) waiting: u64,
    /// Debts that were larger than may be owed.
    pub(crate) forgiven: u64,
    /// Workers whose VMs trapped.
    pub(crate) traps: u64,
}

// === impl Work ===

impl Work {
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Requests | Self::Waiting { .. } => Unit::Requests,
            Self::Bytes { unit, .. } => unit,
            Self::InFlight { .. } => Unit::Concurrency,
        }
    }

    /// Tokens of a request.
    pub(crate) fn usual(self) -> u64 {
        match self {
            Self::Bytes { usual, .. } => usual,
            _ => 1,
        }
    }

    /// Tokens of the largest request.
    pub(crate) fn largest(self) -> u64 {
        match self {
            Self::Bytes { usual, .. } => usual * Meter::BULKY,
            _ => 1,
        }
    }

    /// Tokens per second that can be spent where `flow` passes.
    pub(crate) fn throughput(self, flow: f64) -> f64 {
        match self {
            // A tick until its end is seen, and one until another comes.
            Self::InFlight { takes } => flow / (takes.as_secs_f64() + 0.02),
            _ => flow,
        }
    }

    /// How long what was begun under an earlier lease may stand in the way of new requests.
    pub(crate) fn lingers(self) -> Duration {
        match self {
            Self::InFlight { takes } => takes,
            _ => Duration::ZERO,
        }
    }
}

// === impl Crew ===

impl Crew {
    pub(super) fn new(work: Work, count: u32) -> Self {
        let workers = (0..count).map(|index| worker(work, index.into()));
        Self {
            work,
            workers: workers.collect(),
            past: Tally::default(),
            trapped_at: None,
            now: Instant::ZERO,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.workers.len() as u64
    }

    /// `attempts` requests, each at some worker, then a tick. Says how many tokens were spent.
    pub(super) fn work(&mut self, desk: &mut Desk<'_>, random: &mut Random, attempts: u64) -> u64 {
        self.now = desk.now;
        let mut spent = 0;
        for _ in 0..attempts {
            let index = random.between(0, self.count() - 1) as usize;
            spent += self.workers[index].attempt(desk, random);
        }
        let tidy = random.chance(20);
        for worker in &mut self.workers {
            spent += worker.tick(desk, random, tidy);
        }
        if let Some(limiter) = &mut desk.scope_state.concurrency {
            let workers = self.workers.iter().filter_map(|worker| worker.permits());
            let living: Vec<u64> = workers.map(|(id, _)| id).collect();
            limiter.sweep(desk.now, &living);
        }
        spent
    }

    /// One worker starts again without what it knew.
    pub(super) fn trap(&mut self, random: &mut Random) {
        let index = random.between(0, self.count() - 1) as usize;
        let tally = self.workers[index].tally();
        self.past += Tally {
            left: tally.left + tally.waiting,
            waiting: 0,
            traps: 1,
            ..tally
        };
        self.workers[index] = worker(self.work, random.next());
        self.trapped_at = Some(self.now);
    }

    /// Whether permits of a worker that has trapped may still be counted.
    pub(super) fn misses(&self, now: Instant) -> bool {
        let missed = |at: Instant| now <= at.saturating_add(MISSED_AFTER);
        self.trapped_at.is_some_and(missed)
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        for worker in &mut self.workers {
            worker.hurry(now);
        }
    }

    pub(super) fn calm(&mut self) {
        for worker in &mut self.workers {
            worker.calm();
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let mut sum = self.past;
        for worker in &self.workers {
            sum += worker.tally();
        }
        sum
    }

    /// Whether nobody and nothing is forgotten or counted twice.
    pub(super) fn check(
        &self,
        now: Instant,
        limiter: Option<&ConcurrencyLimiter>,
    ) -> Result<(), String> {
        self.workers
            .iter()
            .try_for_each(|worker| worker.check(now))?;
        let all = self.tally();
        let ended = all.went + all.timed_out + all.left + all.waiting;
        if all.joined != ended {
            return Err(format!("{all:?} do not add up"));
        }
        let permits = self.workers.iter().filter_map(|worker| worker.permits());
        let held: u32 = permits.map(|(_, held)| held).sum();
        let counted = limiter.map_or(0, ConcurrencyLimiter::held);
        if counted < held || !self.misses(now) && counted > held {
            return Err(format!(
                "workers hold {held} permits, {counted} are counted"
            ));
        }
        Ok(())
    }
}

// === impl Desk ===

impl Desk<'_> {
    pub(super) fn rate(&mut self) -> &mut RateLimiter {
        self.scope_state
            .rate_mut(self.unit)
            .expect("a unit per second")
    }

    pub(super) fn limiter(&mut self) -> &mut ConcurrencyLimiter {
        self.scope_state.concurrency.as_mut().expect("a limiter")
    }

    /// Notes what must not be; the first stays.
    pub(super) fn ensure(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken.get_or_insert_with(otherwise);
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Whether everything happened at least once.
    pub(crate) fn all(&self) -> bool {
        let Self {
            joined,
            went,
            timed_out,
            left,
            forgiven,
            traps,
            waiting: _,
        } = *self;
        let counts = [joined, went, timed_out, left, forgiven, traps];
        counts.iter().all(|count| *count > 0)
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.joined += other.joined;
        self.went += other.went;
        self.timed_out += other.timed_out;
        self.left += other.left;
        self.waiting += other.waiting;
        self.forgiven += other.forgiven;
        self.traps += other.traps;
    }
}

// === free functions ===

fn worker(work: Work, id: u64) -> Box<dyn Worker> {
    match work {
        Work::Requests => Box::new(Counter::default()),
        Work::Waiting { max_wait, members } => Box::new(Queue::new(max_wait, members)),
        Work::Bytes { usual, .. } => Box::new(Meter::new(usual)),
        Work::InFlight { takes } => Box::new(Permits::new(id, takes)),
    }
}

/// What is in the bucket of `holder`, in tokens; less than nothing while some are owed.
pub(super) fn balance(limiter: &RateLimiter, now: Instant, policy: &Policy) -> f64 {
    let mut limiter = limiter.clone();
    let draw = limiter.draw_at_once(now, policy, Tokens::ONE, 1);
    let (rate, _) = limiter.flow(now, policy);
    let left = limiter.level(now).left;
    match draw {
        DrawResult::Tokens(drawn) => left.saturating_add(drawn).as_micros() as f64 / 1e6,
        DrawResult::Denied { retry_at: Some(at) } => {
            1.0 - at.saturating_since(now).as_secs_f64() * rate.as_micros() as f64 / 1e6
        }
        _ => left.as_micros() as f64 / 1e6,
    }
}
