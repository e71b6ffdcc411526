//! Simulated Envoy process: engines as its workers, its clock, and the requests that come to it.

use std::rc::Rc;
use std::time::Duration;

use tollgate_core::client::{Mode, Policy, ScopeState};
use tollgate_core::lease::ResourceId;
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Capacity, Instant};
use tollgate_engine::{EngineConfig, HostFailure, Identity, Overflow, RuleConfig, Shape};

mod clock;
mod host;
mod memory;
mod outcomes;
mod worker;

pub(crate) use self::clock::Clock;
pub(crate) use self::host::{OpenedWatch, OutgoingCall};
use self::host::{Surroundings, WorkerHost};
pub(crate) use self::outcomes::{Outcomes, Tally};
use self::worker::Worker;
use crate::demand::{IncomingRequest, RequestStream};
use crate::random::Random;
use crate::scenario::{EnvoyGroup, NoLease};
use crate::sizes::{TableSizes, debug_len};

/// Time by which requests may be decided late: those of so long are decided on together.
const BATCH: Duration = Duration::from_millis(1);
/// The most requests that a worker makes wait.
const WAITING_MAX: usize = 4000;

/// One process, as of one start.
#[derive(Debug)]
pub(crate) struct Process {
    clock: Clock,
    surroundings: Rc<Surroundings>,
    workers: Vec<Worker>,
    pub(crate) streams: Vec<RequestStream>,
    /// Requests that were sent to it.
    pub(crate) inbox: Vec<IncomingRequest>,
    random: Random,
    /// Time for which it is planned to run next.
    planned: Option<Instant>,
    /// Time until which it stands still.
    pub(crate) stopped_until: Instant,
    /// Time of its first request, until it has a lease.
    pub(crate) first_request: Option<Instant>,
    pub(crate) has_asked: bool,
    pub(crate) was_leased: bool,
    /// Scopes without a lease at the last sample.
    pub(crate) without_lease: u64,
}

/// Things that processes of one group have in common.
#[derive(Debug)]
pub(crate) struct ProcessKind {
    pub(crate) config: EngineConfig,
    pub(crate) workers: u32,
    pub(crate) drift_ppm: u32,
    /// Whether their coordinators have streams of nudges.
    pub(crate) nudged: bool,
}

// === impl ProcessKind ===

impl ProcessKind {
    /// Returns the kind of a group whose Envoys have a rule for each of `rules`, and streams of
    /// nudges if they are `nudged`.
    pub(crate) fn new(group: &EnvoyGroup, rules: &[String], nudged: bool) -> Self {
        let policy = Policy {
            no_lease: match group.no_lease {
                NoLease::Safe => Mode::Safe,
                NoLease::Optimistic => Mode::Optimistic,
                NoLease::Pessimistic => Mode::Pessimistic,
            },
            safe: Capacity::try_from_f64(group.safe.0).unwrap_or(Capacity::MAX),
            first_lease_wait: group.first_lease_wait.0,
            call_timeout: group.call_timeout.0,
            ..Policy::default()
        };
        let shape = (!group.max_wait.0.is_zero()).then_some(Shape {
            max_wait: group.max_wait.0,
            max_waiting: WAITING_MAX,
        });
        let rule = |name: &String| RuleConfig {
            name: name.clone(),
            policy: policy.clone(),
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost: false,
            shape,
        };
        Self {
            config: EngineConfig {
                coordinator: "coordinators".to_owned(),
                shards: Vec::new(),
                enabled: true,
                rules: rules.iter().map(rule).collect(),
                max_scopes: group.max_scopes,
                max_pending: 1000,
                max_waiting: WAITING_MAX,
                tick: group.tick.0,
                call_timeout: group.call_timeout.0,
                host_failure: HostFailure::Closed,
                reports_limits: false,
            },
            workers: group.workers,
            drift_ppm: group.drift_ppm,
            nudged,
        }
    }
}

// === impl Process ===

impl Process {
    /// Returns a process called `node` that starts at `now`.
    pub(crate) fn new(
        now: Instant,
        node: &str,
        kind: &ProcessKind,
        streams: Vec<RequestStream>,
        mut random: Random,
    ) -> Self {
        let clock = Clock::new(now, kind.drift_ppm, &mut random);
        let local = clock.at(now);
        let surroundings = Surroundings::new(local, kind.nudged);
        let process = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let tick = kind.config.tick.as_micros() as u64;
        let worker = |worker| {
            let host = WorkerHost {
                process: surroundings.clone(),
                worker,
            };
            let identity = Identity {
                worker: random.bits().max(1),
                node: node.to_owned(),
                plugin: String::new(),
                process,
            };
            let first_tick = Duration::from_micros(random.between(0, tick));
            Worker::new(local, first_tick, host, identity, &kind.config)
        };
        Self {
            workers: (0..kind.workers).map(worker).collect(),
            clock,
            surroundings,
            streams,
            inbox: Vec::new(),
            random,
            planned: None,
            stopped_until: now,
            first_request: None,
            has_asked: false,
            was_leased: false,
            without_lease: 0,
        }
    }

    /// Does what is due at `now`, `elapsed` since the world's start, if that was planned.
    pub(crate) fn wake(
        &mut self,
        (now, elapsed): (Instant, Duration),
        outcomes: &mut Outcomes<'_>,
    ) {
        if self.planned.is_none_or(|at| now < at) {
            return;
        }
        self.planned = None;
        if now < self.stopped_until {
            return;
        }
        let local = self.set_clock(now);
        let mut requests = std::mem::take(&mut self.inbox);
        for stream in &mut self.streams {
            while let Some(scope) = stream.take(elapsed) {
                requests.push(IncomingRequest::of_stream(stream.shape.clone(), scope));
            }
        }
        if !requests.is_empty() && !self.has_asked {
            self.has_asked = true;
            self.first_request = Some(now);
        }
        for request in requests {
            let worker = self.pick();
            self.workers[worker].request(local, &request, outcomes);
        }
        for worker in &mut self.workers {
            worker.run(local, outcomes);
        }
    }

    /// Returns the time at which the process is to run, unless that was planned before.
    pub(crate) fn plan(&mut self, now: Instant, elapsed: Duration) -> Option<Instant> {
        let workers = self.workers.iter().map(Worker::due_at);
        let workers = workers.min().map(|local| self.clock.world(local));
        let requests = self.streams.iter().filter_map(RequestStream::due);
        let requests = requests.min().map(|at| {
            let after = at.saturating_sub(elapsed);
            now.saturating_add(after.max(BATCH))
        });
        let inbox = (!self.inbox.is_empty()).then_some(now);
        let next = workers.into_iter().chain(requests).chain(inbox).min()?;
        let next = next.max(now).max(self.stopped_until);
        if self.planned.is_some_and(|planned| planned <= next) {
            return None;
        }
        self.planned = Some(next);
        Some(next)
    }

    /// Hands a worker the answer to its call.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        (worker, token): (u32, u32),
        answer: Result<Refreshed, String>,
        outcomes: &mut Outcomes<'_>,
    ) {
        let local = self.set_clock(now);
        self.workers[worker as usize].answer(local, token, answer, outcomes);
    }

    /// Hands a worker the name of a resource that came on one of its streams.
    pub(crate) fn nudge(
        &mut self,
        now: Instant,
        (worker, token): (u32, u32),
        resource: ResourceId,
        outcomes: &mut Outcomes<'_>,
    ) {
        let local = self.set_clock(now);
        self.workers[worker as usize].nudge(local, token, resource, outcomes);
    }

    /// Tells a worker that one of its streams has ended.
    pub(crate) fn end_watch(&mut self, now: Instant, (worker, token): (u32, u32)) {
        self.set_clock(now);
        self.workers[worker as usize].end_watch(token);
    }

    /// Returns the streams that its workers have opened.
    pub(crate) fn take_opened(&self) -> Vec<OpenedWatch> {
        self.surroundings.take_opened()
    }

    /// Returns the calls that its workers have made.
    pub(crate) fn take_calls(&self) -> Vec<OutgoingCall> {
        self.surroundings.take_calls()
    }

    /// Calls `look` with all scopes that it knows, and the time by its clock.
    pub(crate) fn scopes(&self, now: Instant, mut look: impl FnMut(Instant, &str, &ScopeState)) {
        let local = self.clock.at(now);
        let shared = self.surroundings.memory.borrow();
        memory::slots(&shared, |scope, state| look(local, scope, state));
    }

    /// Returns the numbers of requests that went on and that were refused.
    pub(crate) fn requests(&self) -> [u64; 2] {
        let workers = self.workers.iter().map(Worker::requests);
        workers.fold([0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
    }

    /// Returns the number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.workers.iter().map(Worker::waiting).sum()
    }

    /// Returns the number of requests that it has, decided on or not.
    pub(crate) fn load(&self) -> usize {
        let in_flight: usize = self.workers.iter().map(Worker::in_flight).sum();
        self.inbox.len() + self.waiting() + in_flight
    }

    /// Adds the sizes of its tables to `sizes`.
    pub(crate) fn add_sizes(&self, now: Instant, sizes: &mut TableSizes) {
        let shared = self.surroundings.memory.borrow();
        sizes.records += shared.records().count() as u64;
        sizes.dirty += memory::dirty(&shared) as u64;
        sizes.waiting += self.waiting() as u64;
        sizes.process_chars += debug_len(&self.workers);
        self.scopes(now, |local, _, state| {
            sizes.slots += u64::from(!state.is_reusable(local));
        });
    }

    fn set_clock(&self, now: Instant) -> Instant {
        let local = self.clock.at(now);
        self.surroundings.clock.set(local);
        local
    }

    fn pick(&mut self) -> usize {
        match self.workers.len() {
            1 => 0,
            count => self.random.between(0, count as u64 - 1) as usize,
        }
    }
}
