//! One worker of a process: its decisions on requests, and what ticks and answers do.
//!
//! A worker belongs to a cluster of coordinators and outlives configurations, whose balances a new one
//! finds here. The request path reads memory of its own only; when a token cache is empty it goes to the
//! shared table ([`draw`]). Requests that wait for a first answer are in [`held`], those that wait for their
//! turn in [`turns`]; [`tick`] does the housekeeping, and [`lock`] and [`calls`] speak to the coordinator.
//!
//! The clock is the host's, read when a callback needs it and at most a few times: a request whose
//! token caches suffice reads none.

use core::fmt::Display;
use core::time::Duration;
use std::collections::VecDeque;

use tollgate_core::units::{Instant, Tokens};

use crate::codec::{DirtyQueue, Heartbeat, Levels};
use crate::config::{EngineConfig, HostFailure, Identity, RuleConfig};
use crate::effect::{Effect, Report};
use crate::host::{Host, Level};
use crate::refusal::{Denial, Refusal, Verdict};
use crate::scopes::{Entry, OVERFLOW, Scopes};
use crate::shared_table::SharedTable;
use crate::stats::{ProcessStats, RuleStats, Stats};
use crate::upstreams::Upstreams;

mod call_budget;
mod calls;
mod conditions;
mod decide;
mod draw;
mod failure;
mod final_cost;
mod held;
#[cfg(any(test, fuzzing, feature = "testing"))]
mod inspect;
mod leader;
mod lines;
mod report;
mod request;
mod resolve;
mod scope_terms;
mod shadow;
mod streams;
mod tick;
mod turns;
mod units;

use calls::{Calls, EpochWarnings};
use conditions::Conditions;
use held::Waiting;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub use inspect::ScopeView;
use leader::Schedule;
use lines::Lines;
pub use request::Request;
use request::Target;
use shadow::Shadow;
use streams::Streams;

/// The name of the table for canonical scopes of no rule; no rule can have it.
const CANONICAL: &str = "~canonical";

/// One worker of a process.
#[derive(Debug)]
pub struct Engine<H> {
    host: H,
    identity: Identity,
    /// The settings of the latest configuration.
    config: EngineConfig,
    /// Whom calls go to.
    upstreams: Upstreams,
    shared_table: Option<SharedTable>,
    tables: Vec<Table>,
    /// Entries with attempts that are not counted yet, oldest first, and when they were queued.
    queue: VecDeque<(Target, u64)>,
    waiting: Waiting,
    lines: Lines,
    streams: Streams,
    /// Slots that became due, for the sync leader.
    dirty: DirtyQueue,
    calls: Calls,
    conditions: Conditions,
    /// What is due when; only while the worker holds the leader lock.
    schedule: Option<Schedule>,
    /// How many workers of the process live.
    workers: u32,
    /// Which ones, as the sync leader saw it at `living_at`.
    living: Vec<Heartbeat>,
    living_at: Option<Instant>,
    stats: Stats,
    shadow: Shadow,
    /// For the embedder, oldest first.
    effects: VecDeque<Effect>,
    /// Rounds of housekeeping so far; a clock that costs nothing to read.
    rounds: u64,
    last_round: Instant,
    /// When the worker last said that it lives, and which levels it told then.
    last_heartbeat: Option<(Instant, Levels)>,
    /// Searches for a slot since the last round that found none.
    searches_failed: u32,
    overflow_logged: bool,
    /// A warning about the configuration, which one worker of the process gives.
    warning: Option<String>,
    last_complaint: Option<Instant>,
    epoch_warnings: EpochWarnings,
}

/// A rule of an engine, for as long as the engine lives: one with the same name in a later
/// configuration is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// A rule's scopes.
#[derive(Debug)]
struct Table {
    config: RuleConfig,
    scopes: Scopes,
    stats: RuleStats,
}

/// What came of looking for all that a request needs.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// The stream whose request it is.
    stream: u32,
    held: bool,
    /// By rules that only pretend to refuse; and whether these have been counted before.
    shadow_counted: bool,
    counted: bool,
    /// By rules that refuse.
    denied: Option<Refusal>,
    /// By rules that make requests wait.
    short: Option<Short>,
}

/// A bucket that has too little for a request, which may wait there.
#[derive(Clone, Copy, Debug)]
struct Short {
    place: Target,
    denial: Denial,
}

/// What a request may still be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It may be held for first answers.
    New,
    /// Not any more.
    Unheld,
    /// It has waited and it is its turn: it goes before those who wait, and has been counted.
    Turn,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug)]
enum Decision {
    Pass,
    Hold,
    Wait(Short),
    Refuse(Refusal),
}

// === impl RuleId ===

impl RuleId {
    /// Returns its place among the rules of its engine.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns an engine for `config` that has seen nothing yet.
    pub fn new(host: H, identity: Identity, config: EngineConfig) -> Self {
        Self {
            host,
            upstreams: Upstreams::new(&config.coordinator, &config.shards),
            shadow: Shadow::new(identity.worker),
            identity,
            config,
            shared_table: None,
            tables: Vec::new(),
            queue: VecDeque::new(),
            waiting: Waiting::default(),
            lines: Lines::default(),
            streams: Streams::default(),
            dirty: DirtyQueue::default(),
            calls: Calls::default(),
            conditions: Conditions::default(),
            schedule: None,
            workers: 1,
            living: Vec::new(),
            living_at: None,
            stats: Stats::default(),
            effects: VecDeque::new(),
            rounds: 0,
            last_round: Instant::ZERO,
            last_heartbeat: None,
            searches_failed: 0,
            overflow_logged: false,
            warning: None,
            last_complaint: None,
            epoch_warnings: EpochWarnings::default(),
        }
    }

    /// Takes over the settings of a configuration and returns its rules' ids, in order. The scopes of
    /// a rule whose name is known already stay as they are. No effects outside of the engine.
    pub fn configure(&mut self, config: &EngineConfig) -> Vec<RuleId> {
        self.config = config.clone();
        self.upstreams = Upstreams::new(&config.coordinator, &config.shards);
        self.conditions = Conditions::default();
        if !config.enabled {
            return Vec::new();
        }
        if let (Some(groups), Some(rule)) = (self.canonical_table(), config.rules.first()) {
            groups.config.policy = rule.policy.clone();
        }
        config.rules.iter().map(|rule| self.bind(rule)).collect()
    }

    /// The limits of groups that are those of no rule, if there are any.
    fn canonical_table(&mut self) -> Option<&mut Table> {
        let mut tables = self.tables.iter_mut();
        tables.find(|table| table.config.name == CANONICAL)
    }

    /// Leaves a warning to whichever worker of the process holds the leader lock, so that it is logged once.
    pub fn warn_once(&mut self, warning: String) {
        self.warning = Some(warning);
    }

    fn bind(&mut self, rule: &RuleConfig) -> RuleId {
        let known = self.table_named(&rule.name);
        match known.and_then(|index| self.tables.get_mut(index)) {
            Some(table) => table.config = rule.clone(),
            None => return self.add_table(rule.clone()),
        }
        RuleId(known.unwrap_or_default() as u16)
    }

    fn add_table(&mut self, config: RuleConfig) -> RuleId {
        let id = RuleId(self.tables.len() as u16);
        self.tables.push(Table {
            config,
            scopes: Scopes::new(self.identity.worker),
            stats: RuleStats::default(),
        });
        id
    }

    fn table_named(&self, name: &str) -> Option<usize> {
        let mut tables = self.tables.iter();
        tables.position(|table| table.config.name == name)
    }

    /// Returns the next thing to be done, until there is none. Ticks and answers bring effects, in whose
    /// callback they are to be carried out; nothing else does.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Returns the counters of this worker.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the counters of each rule, in the order of their ids, with the rule's name. That of
    /// the limits of no rule, such as groups, is `canonical`.
    pub fn rule_stats(&self) -> impl Iterator<Item = (&str, &RuleStats)> {
        self.tables.iter().map(|table| {
            let name = match table.config.name.as_str() {
                CANONICAL => "canonical",
                name => name,
            };
            (name, &table.stats)
        })
    }

    /// Returns how the process stands, if this is the worker that speaks for it.
    pub fn process_stats(&self) -> Option<ProcessStats> {
        self.schedule.is_some().then(|| self.survey())
    }

    /// Starts the request of `stream`, which costs so many tokens. One that costs nothing goes on.
    #[inline]
    pub fn begin(&mut self, stream: u32, cost: Tokens) -> Request {
        self.shadow.clear();
        Request::new(cost, stream)
    }

    /// Decides on a request, for which all scopes have been added. `max_wait` says how long its
    /// client would wait, and is only asked if it may have to.
    #[inline]
    pub fn admit(
        &mut self,
        request: &mut Request,
        max_wait: impl FnOnce() -> Option<Duration>,
    ) -> Verdict {
        request.own = request.len;
        for target in request.as_slice() {
            self.count_attempts_of(*target, request.attempts());
        }
        let decision = match self.is_behind_held(request) {
            true => Ok(Decision::Hold),
            false => self.decide(request, Attempt::New),
        };
        match decision {
            Ok(Decision::Pass) => {
                self.start_stream(request);
                Verdict::Pass
            }
            Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
            Ok(Decision::Hold) => self.hold(request, max_wait()),
            Ok(Decision::Wait(short)) => self.begin_to_wait(request, short, max_wait()),
            Err(error) => self.complain(&error),
        }
    }

    /// Returns what there is to tell of the request that was decided last, if it goes on.
    #[inline]
    pub fn report(&mut self, request: &Request) -> Option<Report> {
        let told = self.shadow.is_pretended() || self.config.reports_limits;
        told.then(|| self.take_report(request))
    }

    /// Remembers the stream of a request that goes on, if it must be.
    #[inline]
    fn start_stream(&mut self, request: &Request) {
        if request.watched || request.priced_late {
            self.watch(request);
        }
    }

    #[inline]
    fn count_attempts_of(&mut self, target: Target, attempts: u32) {
        let Some(entry) = entry(&mut self.tables, target) else {
            return;
        };
        entry.attempts = entry.attempts.saturating_add(attempts);
        if !entry.queued {
            self.enqueue(target);
        }
    }

    /// Puts an entry into the queue of those whose books are settled on ticks.
    fn enqueue(&mut self, target: Target) {
        let round = self.rounds;
        let entry = entry(&mut self.tables, target);
        if entry.is_some_and(|entry| !core::mem::replace(&mut entry.queued, true)) {
            self.queue.push_back((target, round));
        }
    }

    fn scopes(&self, table: u16) -> Option<&Scopes> {
        self.tables
            .get(usize::from(table))
            .map(|table| &table.scopes)
    }

    /// Decides on a request that the host or the shared table let down, and logs that now and then.
    #[cold]
    pub fn complain(&mut self, error: &dyn Display) -> Verdict {
        self.stats.host_failures.add_one();
        let now = self.host.now();
        let fresh = |last| now.saturating_since(last) >= tick::COMPLAINT_INTERVAL;
        if self.last_complaint.is_none_or(fresh) {
            self.last_complaint = Some(now);
            self.host.log(Level::Error, &format!("tollgate: {error}"));
        }
        match self.config.host_failure {
            HostFailure::Open => Verdict::Pass,
            HostFailure::Closed => Verdict::Refuse(Refusal::HostFailure),
        }
    }
}

// === free functions ===

/// The entry of `target`; free, so that it borrows the tables alone.
#[inline]
fn entry(tables: &mut [Table], target: Target) -> Option<&mut Entry> {
    tables
        .get_mut(usize::from(target.table))?
        .scopes
        .get_mut(target.index)
}

/// The scope id of an entry.
fn scope_id(rule: &str, entry: &Entry) -> String {
    scope_of_key(rule, &String::from_utf8_lossy(entry.key()))
}

/// The scope id of a rule's key; the keys of canonical scopes are ids themselves.
fn scope_of_key(rule: &str, key: &str) -> String {
    match rule == CANONICAL && key != OVERFLOW {
        true => key.to_owned(),
        false => format!("{rule}/{key}"),
    }
}
