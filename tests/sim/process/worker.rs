//! One worker: the real engine, and its streams.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Instant, MICRO, Tokens};
use tollgate_engine::{
    Decision, Effect, Engine, EngineConfig, HostFailure, Identity, Overflow, Report, RootSettings,
    RuleConfig, RuleId, Shape, StreamEnd,
};
use tollgate_sim::random::Random;

use super::host::{CallId, WorkerHost};
use super::work::{Tally, Work};
use super::workers::{HandedAnswer, Setup, Task, Workers};
use crate::watches::UNAVAILABLE;

/// The rule of all scopes.
pub(super) const RULE: &str = "tenant";
/// Interval of a worker's ticks while nothing is urgent.
const TICK: Duration = Duration::from_millis(20);
/// Shortest interval of ticks: Envoy's timers may be faster, which takes the simulator longer.
pub(super) const TICK_LEAST: Duration = Duration::from_millis(5);
/// The most requests of one key that wait.
const MAX_WAITING: usize = 200;
/// The most that an answer to a waiting request may be late: the tick, and the one before it.
const LATE: Duration = Duration::from_millis(25);

/// Worker with a real engine.
pub(super) struct Worker {
    engine: Engine<WorkerHost>,
    rule: RuleId,
    root: RootSettings,
    /// Number drawn at its start.
    number: u64,
    period: Duration,
    tick_at: Instant,
    streams: u32,
    waiting: BTreeMap<u32, WaitingStream>,
    open: BTreeSet<u32>,
    /// End times of open streams.
    ends: BTreeSet<(Instant, u32)>,
    key: String,
    tally: Tally,
}

/// Stream whose request waits.
#[derive(Debug)]
struct WaitingStream {
    key: String,
    since: Instant,
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(now: Instant, host: WorkerHost, setup: &Setup, random: &mut Random) -> Self {
        let number = random.bits().max(1);
        let identity = Identity {
            worker: number,
            node: "envoy".to_owned(),
            plugin: String::new(),
            process: u128::from(random.bits()) << 64 | u128::from(setup.incarnation),
        };
        let config = config(setup);
        let mut engine = Engine::new(host, identity, config.clone());
        let root = engine.configure(&config);
        let first = Duration::from_micros(random.between(0, TICK.as_micros() as u64));
        let (_, key) = setup.scope.split_once('/').expect("a rule and a key");
        Self {
            engine,
            rule: root.rules[0],
            root: root.settings,
            number,
            period: TICK,
            tick_at: now.saturating_add(first),
            streams: 0,
            waiting: BTreeMap::new(),
            open: BTreeSet::new(),
            ends: BTreeSet::new(),
            key: key.to_owned(),
            tally: Tally::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Adds what is due at `now` to `tasks`.
    pub(super) fn due(&mut self, now: Instant, index: usize, tasks: &mut Vec<Task>) {
        if self.tick_at <= now {
            tasks.push(Task::Tick(index));
        }
        while self.ends.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, stream)) = self.ends.pop_first() {
                tasks.push(Task::End(index, stream));
            }
        }
    }

    pub(super) fn due_at(&self) -> Instant {
        let ends = self.ends.first().map(|(at, _)| *at);
        ends.map_or(self.tick_at, |at| at.min(self.tick_at))
    }

    pub(super) fn perform(&mut self, process: &Rc<Workers>, index: usize, task: Task) {
        match task {
            Task::Request(_) => self.request(process),
            Task::Tick(_) => self.tick(process),
            Task::End(_, stream) => {
                if self.open.remove(&stream) {
                    self.engine.end_stream(stream, &StreamEnd::default());
                }
            }
            Task::Answer(id, answer) => self.answer(process, index, id, answer),
            Task::Nudge(_, token, resource) => self.nudge(process, token, resource),
            Task::EndWatch(_, token) => self.engine.handle_watch_end(token, UNAVAILABLE),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            waiting: self.waiting.len() as u64,
            ..self.tally
        }
    }

    /// Returns the bytes that have passed and that the shared table does not know of.
    pub(super) fn owed(&self) -> f64 {
        let scope = self.engine.scope(self.rule, self.key.as_bytes());
        scope.map_or(0.0, |scope| scope.owed.as_micros() as f64 / MICRO as f64)
    }

    pub(super) fn permits_held(&self) -> u32 {
        let scope = self.engine.scope(self.rule, self.key.as_bytes());
        scope.map_or(0, |scope| scope.permits_held)
    }

    /// Checks that the engine knows the streams that there are, and that none waits for longer than
    /// it may.
    pub(super) fn check(&self, now: Instant, setup: &Setup) -> Result<(), String> {
        let (known, waiting) = (self.engine.waiting(), self.waiting.len());
        if known != waiting {
            return Err(format!("{waiting} wait, the engine knows of {known}"));
        }
        if setup.work.unit().is_concurrency() {
            let scope = self.engine.scope(self.rule, self.key.as_bytes());
            let used = scope.map_or(0, |scope| scope.permits_used);
            if used as usize != self.open.len() {
                let open = self.open.len();
                return Err(format!("{open} are in flight with {used} permits"));
            }
        }
        let most = setup.policy.first_lease_wait;
        let most = match setup.work {
            Work::Waiting { max_wait, .. } => most.max(max_wait),
            _ => most,
        };
        let late = |waiting: &&WaitingStream| now.saturating_since(waiting.since) > most + LATE;
        match self.waiting.values().find(late) {
            Some(waiting) => Err(format!(
                "a request waits at {now:?} for {most:?}: {waiting:?}"
            )),
            None => Ok(()),
        }
    }

    fn request(&mut self, process: &Workers) {
        process.note_request();
        self.streams += 1;
        let stream = self.streams;
        let key = match members(&process.setup) {
            1 => self.key.clone(),
            members => format!("member-{}", process.roll(members)),
        };
        let engine = &mut self.engine;
        let mut request = engine.begin(self.root, stream, Tokens::ONE);
        let mut decision = None;
        if !engine.add(&mut request, self.rule, key.as_bytes()) {
            decision = engine.add_new(&mut request, self.rule, &key).err();
        }
        let decision = decision.unwrap_or_else(|| engine.admit(&mut request, || None));
        match decision {
            Decision::Admit => {
                let overtaken = self.waiting.values().any(|waiting| waiting.key == key);
                process.ensure(!overtaken || !is_shaped(process), || {
                    format!("a request of {key} overtakes those that wait")
                });
                let report = self.engine.report(&request);
                if uses_limit(process, report.as_ref()) {
                    self.pass(process, stream);
                }
            }
            Decision::Hold | Decision::Queue(_) => {
                self.tally.joined += 1;
                let since = process.now();
                self.waiting.insert(stream, WaitingStream { key, since });
            }
            Decision::Deny(_) => {}
        }
        if self.engine.is_hurried() {
            self.adjust_period(process);
        }
    }

    fn tick(&mut self, process: &Rc<Workers>) {
        self.tick_at = process.now().saturating_add(self.period);
        if !self.waiting.is_empty() && process.roll(50) == 0 {
            let index = process.roll(self.waiting.len() as u64) as usize;
            let stream = *self.waiting.keys().nth(index).expect("one that waits");
            self.waiting.remove(&stream);
            self.tally.left += 1;
            self.engine.end_stream(stream, &StreamEnd::default());
        }
        self.engine.handle_tick();
        self.carry_out(process);
        self.adjust_period(process);
    }

    fn answer(
        &mut self,
        process: &Rc<Workers>,
        index: usize,
        id: CallId,
        answer: Result<Refreshed, String>,
    ) {
        if id.number != self.number {
            return;
        }
        let unit = process.setup.work.unit();
        let answered = answer.as_ref().ok();
        let answered = answered.and_then(|answer| unit_answer(answer, &process.setup.scope, unit));
        process.hand(index, answered);
        self.engine.handle_answer(id.token, answer);
        process.hand(index, None);
        self.carry_out(process);
        self.adjust_period(process);
    }

    /// Hands over that a coordinator has named a resource on the stream of `token`, which may be that
    /// of an earlier worker.
    fn nudge(&mut self, process: &Rc<Workers>, token: u32, resource: ResourceId) {
        self.engine.handle_nudge(token, Ok(vec![resource]));
        self.carry_out(process);
        self.adjust_period(process);
    }

    fn carry_out(&mut self, process: &Rc<Workers>) {
        let mut bodies = 0;
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Resume { stream, report, .. } => {
                    let ended = self.end_wait(process, stream);
                    self.tally.went += u64::from(ended.is_some());
                    self.ensure_turn(process, stream, ended);
                    if uses_limit(process, Some(&report)) {
                        bodies += self.pass(process, stream);
                    }
                }
                Effect::Deny { stream, .. } => {
                    let ended = self.end_wait(process, stream);
                    self.tally.timed_out += u64::from(ended.is_some());
                }
                Effect::CountBytes { .. } | Effect::Publish => {}
            }
        }
        let more = bodies.saturating_sub(process.setup.work.largest());
        process.seen.borrow_mut().together += more;
    }

    /// Ends the wait of a stream.
    fn end_wait(&mut self, process: &Workers, stream: u32) -> Option<WaitingStream> {
        let ended = self.waiting.remove(&stream);
        process.ensure(ended.is_some(), || {
            format!("the wait of stream {stream} ends twice")
        });
        ended
    }

    /// Checks that a stream that goes on came before all of the same key that still wait.
    fn ensure_turn(&self, process: &Workers, stream: u32, ended: Option<WaitingStream>) {
        let Some(ended) = ended.filter(|_| is_shaped(process)) else {
            return;
        };
        let mut earlier = self.waiting.range(..stream);
        let passed = earlier.find(|(_, waiting)| waiting.key == ended.key);
        process.ensure(passed.is_none(), || {
            format!("stream {stream} of {} goes before {passed:?}", ended.key)
        });
    }

    /// Lets a request go on. Returns the bytes that pass with it.
    fn pass(&mut self, process: &Workers, stream: u32) -> u64 {
        match process.setup.work {
            Work::Requests | Work::Waiting { .. } => process.seen.borrow_mut().admitted += 1,
            Work::InFlight { takes } => {
                process.seen.borrow_mut().admitted += 1;
                if self.engine.remembers(stream) {
                    self.open.insert(stream);
                    let ends = process.now().saturating_add(takes);
                    self.ends.insert((ends, stream));
                }
            }
            Work::Bytes { unit, usual } if self.engine.remembers(stream) => {
                return self.pass_body(process, stream, unit, usual);
            }
            Work::Bytes { .. } => {}
        }
        0
    }

    /// Lets a body pass, which is counted then. Returns its size.
    fn pass_body(&mut self, process: &Workers, stream: u32, unit: Unit, usual: u64) -> u64 {
        let count = |more| process.seen.borrow_mut().admitted += more;
        let mut size = usual;
        if process.is_bulky() {
            size = usual * Work::BULKY;
            // The part of a large body that has passed is counted on the way.
            let half = size / 2;
            count(half);
            self.engine.count_bytes(stream, bytes(unit, half));
            count(size - half);
        } else {
            count(size);
        }
        let end = StreamEnd {
            bytes: Some(bytes(unit, size)),
            costs: Vec::new(),
        };
        self.engine.end_stream(stream, &end);
        size
    }

    /// Makes ticks come as often as the engine needs them.
    fn adjust_period(&mut self, process: &Workers) {
        let period = self.engine.tick_period().max(TICK_LEAST);
        if period != self.period {
            self.period = period;
            self.tick_at = process.now().saturating_add(period);
        }
    }
}

// === free functions ===

/// Returns the number of scopes that share the limit; one has it for itself.
pub(super) fn members(setup: &Setup) -> u64 {
    match setup.work {
        Work::Waiting { members, .. } => members,
        _ => 1,
    }
}

/// Returns whether a request that goes on has been charged to the limit. A request of a member that
/// the coordinators have not named as one yet is not: only its own bucket is in its report.
fn uses_limit(process: &Workers, report: Option<&Report>) -> bool {
    let buckets = report.map_or(0, |report| report.limits.len());
    members(&process.setup) == 1 || buckets > 1
}

fn is_shaped(process: &Workers) -> bool {
    matches!(process.setup.work, Work::Waiting { .. })
}

fn bytes(unit: Unit, bytes: u64) -> [u64; 2] {
    match unit {
        Unit::RequestBytes => [bytes, 0],
        _ => [0, bytes],
    }
}

fn unit_answer(answer: &Refreshed, scope: &str, unit: Unit) -> Option<HandedAnswer> {
    let mut scopes = answer.scopes.iter().flatten();
    let found = scopes.find(|answer| &*answer.scope == scope)?;
    let units = found.outcome.as_ref().ok()?;
    Some(HandedAnswer {
        origin: found.origin,
        answer: *units.iter().find(|answer| answer.unit == unit)?,
    })
}

fn config(setup: &Setup) -> EngineConfig {
    let shape = match setup.work {
        Work::Waiting { max_wait, .. } => Some(Shape {
            max_wait,
            max_waiting: MAX_WAITING,
        }),
        _ => None,
    };
    EngineConfig {
        coordinator: "coordinators".to_owned(),
        shards: Vec::new(),
        enabled: true,
        rules: vec![RuleConfig {
            name: RULE.to_owned(),
            policy: setup.policy.clone(),
            enforced: 100,
            on_overflow: Overflow::Share,
            final_cost: false,
            shape,
        }],
        max_scopes: 8,
        max_pending: 1000,
        max_waiting: 1000,
        tick: TICK,
        call_timeout: setup.policy.call_timeout,
        host_failure: HostFailure::Closed,
        reports_limits: members(setup) > 1,
    }
}
