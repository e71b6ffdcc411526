//! One worker of a process: an engine, and the streams that it decides on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tollgate_core::lease::ResourceId;
use tollgate_core::message::Refreshed;
use tollgate_core::units::{Instant, Tokens};
use tollgate_engine::{
    Decision, Effect, Engine, EngineConfig, Identity, Refusal, RootSettings, RuleId, StreamEnd,
};

use super::Outcomes;
use super::host::WorkerHost;
use crate::demand::IncomingRequest;
use crate::ideal::FleetAdmission;
use crate::observer::RequestOutcome;
use crate::scopes::Scope;

/// The shortest interval of ticks: a host's timers are not finer.
const TICK_LEAST: Duration = Duration::from_millis(1);
/// gRPC's status of a stream whose coordinator is gone.
const UNAVAILABLE: u32 = 14;

/// Worker of a process. All times are by the process's clock.
#[derive(Debug)]
pub(super) struct Worker {
    number: u32,
    engine: Engine<WorkerHost>,
    root: RootSettings,
    rules: Vec<RuleId>,
    tick_at: Instant,
    period: Duration,
    last_stream: u32,
    /// Requests that wait.
    waiting: BTreeMap<u32, OpenStream>,
    /// Ends of streams that count until then.
    ends: BinaryHeap<Reverse<(Instant, u32)>>,
    bytes: BTreeMap<u32, [u64; 2]>,
    /// Numbers of requests that went on and that were refused.
    requests: [u64; 2],
}

/// Stream of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenStream {
    scope: u32,
    cost: u32,
    /// Time since when it waits.
    waits_since: Option<Instant>,
    takes: Duration,
    bytes: [u64; 2],
    /// Number of its demand, and the times that it comes again if it is refused.
    again: (u32, u32),
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(
        now: Instant,
        first_tick: Duration,
        host: WorkerHost,
        identity: Identity,
        config: &EngineConfig,
    ) -> Self {
        let number = host.worker;
        let mut engine = Engine::new(host, identity, config.clone());
        let root = engine.configure(config);
        Self {
            number,
            engine,
            root: root.settings,
            rules: root.rules,
            tick_at: now.saturating_add(first_tick),
            period: config.tick,
            last_stream: 0,
            waiting: BTreeMap::new(),
            ends: BinaryHeap::new(),
            bytes: BTreeMap::new(),
            requests: [0; 2],
        }
    }

    /// Returns the time at which it has something to do next.
    pub(super) fn due_at(&self) -> Instant {
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        end.map_or(self.tick_at, |at| at.min(self.tick_at))
    }

    /// Returns the numbers of requests that went on and that were refused.
    pub(super) fn requests(&self) -> [u64; 2] {
        self.requests
    }

    /// Returns the number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of requests that went on and have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.ends.len()
    }

    /// Does what is due at `now`.
    pub(super) fn run(&mut self, now: Instant, outcomes: &mut Outcomes<'_>) {
        while let Some(Reverse((at, stream))) = self.ends.peek().copied()
            && at <= now
        {
            self.ends.pop();
            self.end(stream);
        }
        if self.tick_at <= now {
            self.tick_at = now.saturating_add(self.period);
            self.engine.handle_tick();
            self.carry_out(now, outcomes);
            self.adjust_period(now);
        }
    }

    /// Decides on a request.
    pub(super) fn request(
        &mut self,
        now: Instant,
        incoming: &IncomingRequest,
        outcomes: &mut Outcomes<'_>,
    ) {
        outcomes.arrive(incoming);
        self.last_stream = self.last_stream.wrapping_add(1);
        let (stream, shape) = (self.last_stream, &incoming.shape);
        let open = OpenStream {
            scope: incoming.scope,
            cost: shape.cost,
            waits_since: None,
            takes: shape.takes,
            bytes: shape.bytes,
            again: (incoming.demand, incoming.left),
        };
        let named = outcomes.scopes.get(incoming.scope);
        let (rule, key) = (self.rules[named.rule], named.key());
        let engine = &mut self.engine;
        let mut request = engine.begin(self.root, stream, Tokens::from_whole(shape.cost.into()));
        let mut decision = None;
        if !engine.add(&mut request, rule, key.as_bytes()) {
            decision = engine.add_new(&mut request, rule, key).err();
        }
        let decision = decision.unwrap_or_else(|| engine.admit(&mut request, || None));
        match decision {
            Decision::Admit => self.admit(now, stream, open, outcomes),
            Decision::Hold | Decision::Queue(_) => {
                let waits_since = Some(now);
                let waiter = OpenStream {
                    waits_since,
                    ..open
                };
                self.waiting.insert(stream, waiter);
                self.count(now, open, RequestOutcome::Waits, outcomes);
            }
            Decision::Deny(refusal) => self.refuse(now, open, refusal, outcomes),
        }
        if self.engine.is_hurried() {
            self.adjust_period(now);
        }
    }

    /// Takes the answer to a call.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        token: u32,
        answer: Result<Refreshed, String>,
        outcomes: &mut Outcomes<'_>,
    ) {
        self.engine.handle_answer(token, answer);
        self.carry_out(now, outcomes);
        self.adjust_period(now);
    }

    /// Takes the name of a resource to ask for.
    pub(super) fn nudge(
        &mut self,
        now: Instant,
        token: u32,
        resource: ResourceId,
        outcomes: &mut Outcomes<'_>,
    ) {
        self.engine.handle_nudge(token, Ok(vec![resource]));
        self.carry_out(now, outcomes);
        self.adjust_period(now);
    }

    /// Takes the end of a stream.
    pub(super) fn end_watch(&mut self, token: u32) {
        self.engine.handle_watch_end(token, UNAVAILABLE);
    }

    fn carry_out(&mut self, now: Instant, outcomes: &mut Outcomes<'_>) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Resume { stream, .. } => {
                    if let Some(open) = self.waiting.remove(&stream) {
                        self.admit(now, stream, open, outcomes);
                    }
                }
                Effect::Deny {
                    stream, refusal, ..
                } => {
                    if let Some(open) = self.waiting.remove(&stream) {
                        self.refuse(now, open, refusal, outcomes);
                    }
                }
                Effect::CountBytes { .. } | Effect::Publish => {}
            }
        }
    }

    fn refuse(
        &mut self,
        now: Instant,
        open: OpenStream,
        refusal: Refusal,
        outcomes: &mut Outcomes<'_>,
    ) {
        self.requests[1] += 1;
        self.count(now, open, RequestOutcome::Refused, outcomes);
        if let Refusal::Denied { denial, .. } = refusal
            && let Some(at) = denial.retry_at
        {
            // Pauses are named in whole milliseconds.
            let pause = at.saturating_since(now).max(TICK_LEAST);
            outcomes.refuse(open.scope, pause, open.again);
        }
    }

    fn admit(&mut self, now: Instant, stream: u32, open: OpenStream, outcomes: &mut Outcomes<'_>) {
        self.requests[0] += 1;
        self.count(now, open, RequestOutcome::Admitted, outcomes);
        outcomes.admit(FleetAdmission {
            scope: open.scope as usize,
            cost: open.cost,
            takes: open.takes,
            bytes: open.bytes,
            is_leased: self.is_leased(now, outcomes.scopes.get(open.scope)),
        });
        if open.bytes != [0; 2] && self.engine.remembers(stream) {
            self.bytes.insert(stream, open.bytes);
        }
        match open.takes.is_zero() {
            true => self.end(stream),
            false => {
                let at = now.saturating_add(open.takes);
                self.ends.push(Reverse((at, stream)));
            }
        }
    }

    /// Returns whether the tokens of a scope were drawn under a lease that lasts.
    fn is_leased(&self, now: Instant, scope: &Scope) -> bool {
        let view = self
            .engine
            .scope(self.rules[scope.rule], scope.key().as_bytes());
        let expiry = view.and_then(|view| view.lease_expiry);
        expiry.is_some_and(|at| now < at)
    }

    fn count(
        &self,
        now: Instant,
        open: OpenStream,
        outcome: RequestOutcome,
        outcomes: &mut Outcomes<'_>,
    ) {
        let waited = open.waits_since.map(|since| now.saturating_since(since));
        outcomes.count(self.number, (open.scope, open.cost), outcome, waited);
    }

    fn end(&mut self, stream: u32) {
        if !self.engine.remembers(stream) {
            return;
        }
        let end = StreamEnd {
            bytes: self.bytes.remove(&stream),
            costs: Vec::new(),
        };
        self.engine.end_stream(stream, &end);
    }

    /// Makes ticks come as often as the engine needs them.
    fn adjust_period(&mut self, now: Instant) {
        let period = self.engine.tick_period().max(TICK_LEAST);
        if period != self.period {
            self.period = period;
            self.tick_at = now.saturating_add(period);
        }
    }
}
