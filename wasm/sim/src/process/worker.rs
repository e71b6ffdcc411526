//! One worker of a process: an engine, and the streams that it decides on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tollgate_core::message::Refreshed;
use tollgate_core::units::{Instant, Tokens};
use tollgate_engine::{
    Decision, Effect, Engine, Identity, InUse, Refusal, Report, Root, ScopeView, StreamEnd,
};

use super::ProcessKind;
use super::host::WorkerHost;
use super::outcomes::{Decided, LoggedOutcome};
use super::workers::{Task, Workers};
use crate::demand::IncomingRequest;
use crate::ideal::FleetAdmission;
use crate::observer::RequestOutcome;
use crate::scopes::ScopeTable;
use crate::simulation::reached::Case;

/// gRPC's status of a stream whose coordinator is gone.
const UNAVAILABLE: u32 = 14;
/// The shortest pause that a refusal names: whole milliseconds.
const PAUSE_LEAST: Duration = Duration::from_millis(1);
/// Times as large as a usual body a bulky one is.
pub(super) const BULKY: u64 = 20;

/// Worker of a process. All times are by the process's clock.
#[derive(Debug)]
pub(super) struct Worker {
    number: u32,
    engine: Engine<WorkerHost>,
    root: Root,
    _user: InUse,
    /// Tokens of calls and streams of the worker that had its place before.
    tokens_before: u32,
    tick_at: Instant,
    period: Duration,
    last_stream: u32,
    /// Requests that wait.
    waiting: BTreeMap<u32, OpenStream>,
    /// Ends of streams that take time, and the scopes of those that the engine remembers.
    ends: BinaryHeap<Reverse<(Instant, u32, Option<u32>)>>,
    bodies: BTreeMap<u32, Body>,
    /// Costs that ends of streams will tell.
    costs: BTreeMap<u32, OpenCost>,
    /// Numbers of requests that went on and that were refused.
    requests: [u64; 2],
}

/// Stream of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenStream {
    pub(super) scope: u32,
    pub(super) cost: u32,
    /// Time since when it waits.
    pub(super) waits_since: Option<Instant>,
    takes: Duration,
    pub(super) bytes: [u64; 2],
    /// Tokens that its end tells it has cost, if that tells any.
    final_cost: Option<u32>,
    /// Whether a part of its bytes is counted on the way.
    is_bulky: bool,
    /// Number of its demand, and the times that it comes again if it is refused.
    again: (u32, u32),
}

/// Cost of a stream that goes on, which its end tells.
#[derive(Clone, Copy, Debug)]
struct OpenCost {
    scope: u32,
    taken: u32,
    taken_at: Instant,
    cost: u32,
}

/// Bodies of a stream that goes on.
#[derive(Clone, Copy, Debug)]
struct Body {
    scope: u32,
    bytes: [u64; 2],
    /// Bytes of these that have been counted.
    counted: [u64; 2],
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(
        tick_at: Instant,
        host: WorkerHost,
        identity: Identity,
        kind: &ProcessKind,
    ) -> Self {
        let number = host.worker;
        let mut engine = Engine::new(host, identity, kind.config.clone());
        let user = InUse::default();
        let root = engine.configure(&kind.config, &user);
        Self {
            number,
            engine,
            root,
            _user: user,
            tokens_before: 0,
            tick_at,
            period: kind.config.tick,
            last_stream: 0,
            waiting: BTreeMap::new(),
            ends: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            costs: BTreeMap::new(),
            requests: [0; 2],
        }
    }

    /// Takes the place of a worker that is lost: what comes for streams, and for calls up to
    /// `last_token`, was for that one.
    pub(super) fn take_place_of(&mut self, lost: &Self, last_token: u32) {
        self.last_stream = lost.last_stream;
        self.tokens_before = last_token;
    }

    /// Returns the time at which it has something to do next.
    pub(super) fn due_at(&self) -> Instant {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        end.map_or(self.tick_at, |at| at.min(self.tick_at))
    }

    /// Returns the numbers of requests that went on and that were refused.
    pub(super) fn requests(&self) -> [u64; 2] {
        self.requests
    }

    /// Returns the requests that wait, in the order in which they came.
    pub(super) fn waiting(&self) -> impl ExactSizeIterator<Item = &OpenStream> {
        self.waiting.values()
    }

    /// Returns the number of requests that wait by the engine's count.
    pub(super) fn known_waiting(&self) -> usize {
        self.engine.waiting()
    }

    /// Returns the number of requests that went on and have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of these that are for `scope` and that the engine remembers.
    pub(super) fn counted_in_flight(&self, scope: u32) -> usize {
        let ends = self.ends.iter();
        ends.filter(|Reverse((.., of))| *of == Some(scope)).count()
    }

    /// Returns what the engine remembers of a scope.
    pub(super) fn scope(&self, scopes: &ScopeTable, scope: u32) -> ScopeView {
        let named = scopes.get(scope);
        let rule = self.root.rules.get(named.rule);
        let found = rule.and_then(|rule| self.engine.scope(*rule, named.key().as_bytes()));
        found.unwrap_or_default()
    }

    /// Returns what is due at `now`: ends of streams, then a tick.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Task> {
        let mut due = Vec::new();
        while let Some(Reverse((at, stream, _))) = self.ends.peek().copied()
            && at <= now
        {
            self.ends.pop();
            due.push(Task::End(self.number, stream));
        }
        if self.tick_at <= now {
            due.push(Task::Tick(self.number));
        }
        due
    }

    pub(super) fn perform(&mut self, process: &Workers, task: Task) {
        match task {
            Task::Request(_, request, is_bulky) => self.request(process, request, is_bulky),
            Task::Tick(_) => self.tick(process),
            Task::End(_, stream) => self.end(process, stream),
            Task::Answer(_, token, answer) if token > self.tokens_before => {
                self.answer(process, token, answer);
            }
            Task::Nudge(_, token, resource) if token > self.tokens_before => {
                self.engine.handle_nudge(token, Ok(vec![resource]));
                self.carry_out(process);
                self.adjust_period(process);
            }
            Task::EndWatch(_, token) if token > self.tokens_before => {
                self.engine.handle_watch_end(token, UNAVAILABLE);
            }
            Task::Answer(..) | Task::Nudge(..) | Task::EndWatch(..) => {}
        }
    }

    /// Decides on a request.
    fn request(&mut self, process: &Workers, incoming: IncomingRequest, is_bulky: bool) {
        let shape = incoming.shape.clone();
        let times = if is_bulky { BULKY } else { 1 };
        let open = OpenStream {
            scope: incoming.scope,
            cost: shape.cost,
            waits_since: None,
            takes: shape.spec.takes.0,
            bytes: shape.spec.bytes.map(|bytes| bytes * times),
            final_cost: incoming.final_cost,
            is_bulky,
            again: (incoming.demand, incoming.left),
        };
        process.log(LoggedOutcome::Arrived(incoming));
        process.observe(|seen| seen.note_request(process.now()));
        self.last_stream = self.last_stream.wrapping_add(1);
        let stream = self.last_stream;
        let named = process.scopes.get(open.scope);
        let (rule, key) = (self.root.rules[named.rule], named.key());
        let engine = &mut self.engine;
        let mut request = engine.begin(
            self.root.settings,
            stream,
            Tokens::from_whole(shape.cost.into()),
        );
        let mut decision = None;
        if !engine.add(&mut request, rule, key.as_bytes()) {
            decision = engine.add_new(&mut request, rule, key).err();
        }
        let decision = decision.unwrap_or_else(|| engine.admit(&mut request, || None));
        match decision {
            Decision::Admit => {
                self.ensure_turn(process, stream, open.scope);
                let report = self.engine.report(&request);
                self.admit(process, stream, open, report.as_ref());
            }
            Decision::Hold | Decision::Queue(_) => {
                let waits_since = Some(process.now());
                let waiter = OpenStream {
                    waits_since,
                    ..open
                };
                self.waiting.insert(stream, waiter);
                process.observe(|seen| seen.tally.count(Case::Joined));
                self.count(process, open, RequestOutcome::Waits, None, None);
            }
            Decision::Deny(refusal) => self.refuse(process, open, refusal),
        }
        if self.engine.is_hurried() {
            self.adjust_period(process);
        }
    }

    fn tick(&mut self, process: &Workers) {
        self.tick_at = process.now().saturating_add(self.period);
        if !self.waiting.is_empty() && process.happens(process.kind.gives_up) {
            self.give_up(process);
        }
        self.engine.handle_tick();
        self.carry_out(process);
        self.adjust_period(process);
    }

    /// Ends the stream of a request that waits.
    fn give_up(&mut self, process: &Workers) {
        let index = process.roll(self.waiting.len());
        let stream = self.waiting.keys().nth(index).copied();
        if let Some((stream, open)) = stream.and_then(|stream| self.waiting.remove_entry(&stream)) {
            process.observe(|seen| seen.tally.count(Case::Left));
            self.count(process, open, RequestOutcome::Refused, None, None);
            self.engine.end_stream(stream, &StreamEnd::default(), None);
        }
    }

    /// Takes the answer to a call.
    fn answer(&mut self, process: &Workers, token: u32, answer: Result<Refreshed, String>) {
        if let Ok(answer) = &answer {
            process.observe(|seen| seen.begin_answer(self.number, answer));
        }
        self.engine.handle_answer(token, answer);
        process.observe(|seen| seen.end_answer(self.number));
        self.carry_out(process);
        self.adjust_period(process);
    }

    fn carry_out(&mut self, process: &Workers) {
        let mut resumed = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Resume { stream, report, .. } => {
                    let ended = self.end_wait(process, stream);
                    if let Some(open) = ended {
                        process.observe(|seen| seen.tally.count(Case::WentOn));
                        self.ensure_turn(process, stream, open.scope);
                        if self.admit(process, stream, open, Some(&report)) {
                            resumed.push(open);
                        }
                    }
                }
                Effect::Deny {
                    stream, refusal, ..
                } => {
                    if let Some(open) = self.end_wait(process, stream) {
                        process.observe(|seen| seen.tally.count(Case::TimedOut));
                        self.refuse(process, open, refusal);
                    }
                }
                Effect::CountBytes { .. } | Effect::Publish => {}
            }
        }
        process.observe(|seen| seen.note_together(&resumed));
    }

    fn end_wait(&mut self, process: &Workers, stream: u32) -> Option<OpenStream> {
        let ended = self.waiting.remove(&stream);
        let once = ended.is_some();
        process.ensure(
            || once,
            || format!("the wait of stream {stream} ends twice"),
        );
        ended
    }

    /// Checks that a stream that goes on came before all of its scope that still wait.
    fn ensure_turn(&self, process: &Workers, stream: u32, scope: u32) {
        let mut earlier = self.waiting.range(..stream);
        process.ensure(
            || !process.kind.is_shaped() || !earlier.any(|(_, waiting)| waiting.scope == scope),
            || {
                let scope = &process.scopes.get(scope).id;
                format!("stream {stream} of {scope} goes before one that came earlier")
            },
        );
    }

    fn refuse(&mut self, process: &Workers, open: OpenStream, refusal: Refusal) {
        self.requests[1] += 1;
        let retry_at = match refusal {
            Refusal::Denied { denial, .. } => denial.retry_at,
            _ => None,
        };
        let pause = retry_at.map(|at| {
            let pause = at.saturating_since(process.now());
            (pause.max(PAUSE_LEAST), open.again)
        });
        self.count(process, open, RequestOutcome::Refused, None, pause);
    }

    /// Lets a request go on. Returns whether its stream counts until it ends.
    fn admit(
        &mut self,
        process: &Workers,
        stream: u32,
        open: OpenStream,
        report: Option<&Report>,
    ) -> bool {
        self.requests[0] += 1;
        let admission = FleetAdmission {
            scope: open.scope as usize,
            cost: open.cost,
            takes: open.takes,
            bytes: open.bytes,
            final_cost: open.final_cost,
            is_leased: self.is_leased(process, open.scope),
        };
        self.count(
            process,
            open,
            RequestOutcome::Admitted,
            Some(admission),
            None,
        );
        process.observe(|seen| {
            // A request of a scope that is not known yet to share another's limit is not charged to that:
            // only its own bucket is in its report.
            let is_shared = report.is_some_and(|report| report.limits.len() > 1);
            seen.admit(&open, is_shared);
        });
        let is_remembered = self.engine.remembers(stream);
        if open.bytes != [0; 2] && is_remembered {
            self.begin_body(process, stream, &open);
        }
        if let Some(cost) = open.final_cost.filter(|_| is_remembered) {
            let cost = OpenCost {
                scope: open.scope,
                taken: open.cost,
                taken_at: process.now(),
                cost,
            };
            self.costs.insert(stream, cost);
        }
        if open.takes.is_zero() {
            self.end(process, stream)
        } else {
            let at = process.now().saturating_add(open.takes);
            let counted = is_remembered.then_some(open.scope);
            self.ends.push(Reverse((at, stream, counted)));
        }
        is_remembered
    }

    /// Lets the bodies of a stream begin; half of bulky ones is counted on the way.
    fn begin_body(&mut self, process: &Workers, stream: u32, open: &OpenStream) {
        let mut body = Body {
            scope: open.scope,
            bytes: open.bytes,
            counted: [0; 2],
        };
        if open.is_bulky {
            body.counted = open.bytes.map(|bytes| bytes / 2);
            process.observe(|seen| seen.pass(body.scope, body.counted));
            self.engine.count_bytes(stream, body.counted);
        }
        self.bodies.insert(stream, body);
    }

    /// Returns whether the tokens of a scope were drawn under a lease that lasts.
    fn is_leased(&self, process: &Workers, scope: u32) -> bool {
        let expiry = self.scope(&process.scopes, scope).lease_expiry;
        expiry.is_some_and(|at| process.now() < at)
    }

    fn count(
        &self,
        process: &Workers,
        open: OpenStream,
        outcome: RequestOutcome,
        admission: Option<FleetAdmission>,
        pause: Option<(Duration, (u32, u32))>,
    ) {
        let now = process.now();
        process.log(LoggedOutcome::Decided(Decided {
            worker: self.number,
            scope: open.scope,
            cost: open.cost,
            outcome,
            waited: open.waits_since.map(|since| now.saturating_since(since)),
            admission,
            pause,
        }));
    }

    fn end(&mut self, process: &Workers, stream: u32) {
        if !self.engine.remembers(stream) {
            return;
        }
        let body = self.bodies.remove(&stream);
        if let Some(body) = &body {
            let [sent, received] = body.bytes;
            let [counted_sent, counted_received] = body.counted;
            let left = [sent - counted_sent, received - counted_received];
            process.observe(|seen| seen.pass(body.scope, left));
        }
        let mut end = StreamEnd {
            bytes: body.map(|body| body.bytes),
            ..StreamEnd::default()
        };
        if let Some(open) = self.costs.remove(&stream) {
            let rules = self.engine.stream_needs(stream).costs.into_iter();
            let cost = Tokens::from_whole(open.cost.into());
            end.costs.extend(rules.map(|rule| (rule, cost)));
            let age = process.now().saturating_since(open.taken_at);
            let surplus = open.taken.saturating_sub(open.cost);
            process.observe(|seen| seen.come_back(open.scope, age, surplus.into()));
        }
        self.engine.end_stream(stream, &end, None);
    }

    /// Makes ticks come as often as the engine needs them.
    fn adjust_period(&mut self, process: &Workers) {
        let period = self.engine.tick_period().max(process.kind.resolution);
        if period != self.period {
            self.period = period;
            self.tick_at = process.now().saturating_add(period);
        }
    }
}
