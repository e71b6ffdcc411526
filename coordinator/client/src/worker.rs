//! The engine of this process, and the requests that wait in it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tollgate_core::lease::ResourceId;
use tollgate_core::message::Refreshed;
use tollgate_core::units::Tokens;
use tollgate_engine::{
    Decision, Effect, Engine, Formats, Host as _, InUse, LimitStatus, Refusal, Refuser, Reply,
    Report, Request, Root, RuleId, ScopeLevel, StreamEnd,
};

use crate::charge::Charge;
use crate::error::{AcquireError, Refused};
use crate::host::{ClientHost, Order};
use crate::settings::Settings;

/// The longest key of a scope, in bytes; as in the Envoy filter.
const KEY_LEN_MAX: usize = 200;
/// The most scopes of a request.
const SCOPES_MAX: usize = tollgate_engine::RULES_MAX;

/// A worker that tasks share. It is locked for a decision only, never while anything is awaited.
#[derive(Debug)]
pub(crate) struct Shared {
    worker: Mutex<Worker>,
    /// Notification that ticks are needed sooner than they were.
    pub(crate) hurry: Notify,
}

/// Engine of this process.
#[derive(Debug)]
pub(crate) struct Worker {
    engine: Engine<ClientHost>,
    root: Root,
    _user: InUse,
    /// Names of the rules, in the order of `root.rules`.
    names: Vec<String>,
    formats: Formats,
    waiting: HashMap<u32, oneshot::Sender<Outcome>>,
    last_stream: u32,
}

/// Outcome of a request.
pub(crate) type Outcome = Result<Admitted, Box<Refused>>;

/// Request that goes on.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) stream: u32,
    /// True if its end is to be told.
    pub(crate) is_counted: bool,
    pub(crate) waited: Duration,
    pub(crate) limits: Vec<(String, LimitStatus)>,
}

/// First decision on a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Now(Outcome),
    /// The request of this stream waits.
    Later(u32, oneshot::Receiver<Outcome>),
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(worker: Worker) -> Self {
        Self {
            worker: Mutex::new(worker),
            hurry: Notify::new(),
        }
    }

    /// Locks the worker.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Worker ===

impl Worker {
    /// Returns a worker for `settings`, which have been checked.
    pub(crate) fn new(settings: &Settings, random: [u8; 24]) -> Self {
        let config = settings.engine_config();
        let mut engine = Engine::new(ClientHost::new(), settings.identity(random), config.clone());
        let user = InUse::default();
        let root = engine.configure(&config, &user);
        Self {
            engine,
            root,
            _user: user,
            names: config.rules.into_iter().map(|rule| rule.name).collect(),
            formats: settings.formats,
            waiting: HashMap::new(),
            last_stream: 0,
        }
    }

    /// Decides on a request. One that `may_wait` may be answered later.
    pub(crate) fn decide(
        &mut self,
        charge: &Charge,
        may_wait: bool,
    ) -> Result<Answer, AcquireError> {
        if charge.scopes.len() > SCOPES_MAX {
            return Err(AcquireError::TooManyScopes(charge.scopes.len()));
        }
        let stream = self.next_stream();
        let cost = Tokens::from_whole(charge.cost);
        let mut request = self.engine.begin(self.root.settings, stream, cost);
        let mut decision = None;
        for scope in &charge.scopes {
            let (rule, key) = self.parse(scope)?;
            if decision.is_none() && !self.engine.add(&mut request, rule, key.as_bytes()) {
                decision = self.engine.add_new(&mut request, rule, key).err();
            }
        }
        let max_wait = if may_wait {
            charge.max_wait
        } else {
            Some(Duration::ZERO)
        };
        let decision = decision.unwrap_or_else(|| self.engine.admit(&mut request, || max_wait));
        Ok(self.answer(&request, stream, decision))
    }

    fn answer(&mut self, request: &Request, stream: u32, decision: Decision) -> Answer {
        match decision {
            Decision::Admit => {
                let report = self.engine.report(request).unwrap_or_default();
                Answer::Now(Ok(self.admitted(stream, Duration::ZERO, report)))
            }
            Decision::Deny(refusal) => Answer::Now(Err(self.refused(refusal))),
            Decision::Hold | Decision::Queue(_) => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.insert(stream, sender);
                Answer::Later(stream, receiver)
            }
        }
    }

    /// Returns how the limits of requests of a scope stand.
    pub(crate) fn levels(&mut self, scope: &str) -> Result<Vec<ScopeLevel>, AcquireError> {
        let (rule, key) = self.parse(scope)?;
        Ok(self.engine.levels(rule, key))
    }

    /// Gives tokens back to a scope.
    pub(crate) fn give_back(&mut self, scope: &str, tokens: Tokens) -> Result<(), AcquireError> {
        let (rule, key) = self.parse(scope)?;
        self.engine.give_back(rule, key, tokens);
        Ok(())
    }

    /// Charges a scope for tokens that have been spent.
    pub(crate) fn charge(&mut self, scope: &str, tokens: Tokens) -> Result<(), AcquireError> {
        let (rule, key) = self.parse(scope)?;
        self.engine.charge(rule, key, tokens);
        Ok(())
    }

    /// Returns the rule and the key of a scope.
    fn parse<'a>(&self, scope: &'a str) -> Result<(RuleId, &'a str), AcquireError> {
        let wrong = |rule| AcquireError::Scope {
            scope: scope.to_owned(),
            rule,
        };
        let parts = scope.split_once('/');
        let (name, key) = parts.ok_or_else(|| wrong("must be a rule's name, a slash and a key"))?;
        let known = self.names.iter().position(|known| known == name);
        let rule = known.and_then(|index| self.root.rules.get(index));
        let rule = rule.ok_or_else(|| wrong("the settings have no rule of that name"))?;
        if key.is_empty() || key.len() > KEY_LEN_MAX || key.chars().any(char::is_control) {
            return Err(wrong("the key must have 1 to 200 bytes, none of control"));
        }
        Ok((*rule, key))
    }

    /// Ends a request: one that goes on, or one that waits and whose task has left.
    pub(crate) fn end(&mut self, stream: u32, cost: Option<Tokens>) {
        self.waiting.remove(&stream);
        let mut end = StreamEnd::default();
        if let Some(cost) = cost {
            let rules = self.engine.stream_needs(stream).costs.into_iter();
            end.costs.extend(rules.map(|rule| (rule, cost)));
        }
        self.engine.end_stream(stream, &end, None);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        self.engine.handle_tick();
        self.carry_out();
    }

    /// Hands over the answer to a call.
    pub(crate) fn handle_answer(&mut self, token: u32, answer: Result<Refreshed, String>) {
        self.engine.handle_answer(token, answer);
        self.carry_out();
    }

    /// Hands over what a coordinator has named.
    pub(crate) fn handle_nudge(&mut self, token: u32, resources: Vec<ResourceId>) {
        self.engine.handle_nudge(token, Ok(resources));
        self.carry_out();
    }

    /// Hands over that the stream of nudges has ended.
    pub(crate) fn handle_watch_end(&mut self, token: u32, status: u32) {
        self.engine.handle_watch_end(token, status);
    }

    /// Returns the time until the next tick.
    pub(crate) fn tick_period(&self) -> Duration {
        self.engine.tick_period()
    }

    /// Returns what the driver is to do.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        self.engine.host().take_orders()
    }

    /// Answers those that wait, as the engine has decided.
    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Resume {
                    stream,
                    waited,
                    report,
                } => {
                    let admitted = self.admitted(stream, waited.time, report);
                    self.finish(stream, Ok(admitted));
                }
                Effect::Deny {
                    stream, refusal, ..
                } => {
                    let refused = self.refused(refusal);
                    self.finish(stream, Err(refused));
                }
                Effect::CountBytes { .. } | Effect::Publish => {}
            }
        }
    }

    fn finish(&mut self, stream: u32, outcome: Outcome) {
        let waiting = self.waiting.remove(&stream);
        let is_told = waiting.is_some_and(|waiting| waiting.send(outcome).is_ok());
        if !is_told {
            self.engine.end_stream(stream, &StreamEnd::default(), None);
        }
    }

    fn admitted(&self, stream: u32, waited: Duration, report: Report) -> Admitted {
        let limits = report.limits.into_iter();
        Admitted {
            stream,
            is_counted: self.engine.remembers(stream),
            waited,
            limits: limits
                .map(|(rule, status)| (self.name(rule).to_owned(), status))
                .collect(),
        }
    }

    fn refused(&self, refusal: Refusal) -> Box<Refused> {
        let rule = refusal.rule().map_or("", |rule| self.name(rule));
        let refuser = Refuser {
            rule,
            wanted: "key",
            formats: self.formats,
            status: 429,
        };
        let now = self.engine.host().now();
        Box::new(Refused {
            rule: rule.to_owned(),
            reply: Reply::new(refusal, now, refuser),
        })
    }

    /// Returns the name of a rule; the limits of no rule are those of groups.
    fn name(&self, rule: RuleId) -> &str {
        let known = self.root.rules.iter().position(|known| *known == rule);
        let name = known.and_then(|index| self.names.get(index));
        name.map_or("group", String::as_str)
    }

    /// Returns the number of a stream that none has now.
    fn next_stream(&mut self) -> u32 {
        loop {
            self.last_stream = self.last_stream.wrapping_add(1);
            let stream = self.last_stream;
            if !self.waiting.contains_key(&stream) && !self.engine.remembers(stream) {
                return stream;
            }
        }
    }

    /// Returns whether ticks are needed more often than usual.
    pub(crate) fn is_hurried(&self) -> bool {
        self.engine.is_hurried()
    }
}
