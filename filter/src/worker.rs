//! One worker's share of the filter: what a request meets, and what ticks and answers do.
//!
//! A worker belongs to a VM and a cluster of coordinators, and outlives configurations: a new one
//! is a new root context in the same VM, and finds its balances here. The request path reads
//! memory of its own only; when a slab is empty it goes to the ledger ([`draw`]). Requests that wait
//! for a first answer are in [`held`], those that wait for their turn in [`turns`]; [`tick`] does the housekeeping, and [`pen`] and [`calls`]
//! speak to the coordinator.

use std::collections::VecDeque;

use tollgate_core::client::Policy;
use tollgate_core::units::{Instant, Tokens};

use crate::condition::Condition;
use crate::config::{Config, HostFailure, Missing, Overflow, Rule, Shape, Terms};
use crate::host::{Host, HostError, Level};
use crate::key::{Key, OVERFLOW};
use crate::ledger::{Ledger, LedgerError};
use crate::record::{Heartbeat, Levels, Notes};
use crate::refusal::{Refusal, Refuser};
use crate::scopes::{Denial, Entry, Scopes};
use crate::stats::{RuleStats, Stats};
use crate::upstreams::Upstreams;

mod calls;
mod decide;
mod draw;
mod failure;
mod final_cost;
mod held;
mod lines;
mod outline;
mod pen;
mod resolve;
mod room;
mod shadow;
mod standing;
mod streams;
mod targets;
mod tick;
mod trouble;
mod turns;
mod units;

use calls::{Calls, EpochWarnings};
use held::Waiting;
use lines::Lines;
use pen::Schedule;
use resolve::Resolved;
use shadow::Shadow;
use streams::Streams;
pub(crate) use targets::{Target, Targets};
use trouble::Trouble;

/// The most rules of a configuration, hence of buckets that a request needs.
const RULES_MAX: usize = 16;
/// The name of the table for canonical scopes of no rule; no rule can have it.
const CANONICAL: &str = "~canonical";

/// A worker's state.
#[derive(Debug)]
pub(crate) struct Worker<H> {
    pub(crate) host: H,
    /// The worker's number, drawn at its start.
    id: u64,
    node: String,
    /// The settings of the latest configuration.
    config: Config,
    /// Whom calls go to.
    upstreams: Upstreams,
    ledger: Option<Ledger>,
    tables: Vec<Table>,
    /// Entries with attempts that are not counted yet, oldest first, and when they were queued.
    queue: VecDeque<(Target, u64)>,
    waiting: Waiting,
    lines: Lines,
    streams: Streams,
    /// Slots that became due, for whoever holds the pen.
    notes: Notes,
    calls: Calls,
    trouble: Trouble,
    /// What is due when; only while the worker holds the pen.
    schedule: Option<Schedule>,
    /// How many workers of the process live.
    workers: u32,
    /// Which ones, as whoever holds the pen saw it at `living_at`.
    living: Vec<Heartbeat>,
    living_at: Option<Instant>,
    stats: Stats,
    shadow: Shadow,
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

/// A rule's scopes.
#[derive(Debug)]
struct Table {
    rule: String,
    /// Where the rule looks for a key, in words.
    wanted: String,
    policy: Policy,
    terms: Terms,
    /// Of a hundred requests that the rule would refuse, how many it does.
    enforced: u8,
    on_overflow: Overflow,
    /// The property that says at a request's end what it has cost in all.
    final_cost: Option<Vec<String>>,
    shape: Option<Shape>,
    scopes: Scopes,
    stats: RuleStats,
}

/// A rule as a root context uses it.
#[derive(Clone, Debug)]
pub(crate) struct BoundRule {
    table: u16,
    key: Key,
    when: Option<Condition>,
    missing: Missing,
    malformed: Missing,
    /// What a request costs is known only at its end.
    priced_late: bool,
}

/// What came of looking for all that a request needs.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// The stream whose request it is.
    stream: u32,
    held: bool,
    /// By rules that only pretend to refuse; and whether these have been counted before.
    spared: bool,
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

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Hold,
    Refuse(Refusal),
}

// === impl Worker ===

impl<H: Host> Worker<H> {
    /// A worker for `config` that has seen nothing yet; `id` is random, `node` is Envoy's node id.
    pub(crate) fn new(host: H, id: u64, node: String, config: Config) -> Self {
        Self {
            host,
            id,
            node,
            upstreams: config.upstreams(),
            config,
            ledger: None,
            tables: Vec::new(),
            queue: VecDeque::new(),
            waiting: Waiting::default(),
            lines: Lines::default(),
            streams: Streams::default(),
            notes: Notes::default(),
            calls: Calls::default(),
            trouble: Trouble::default(),
            schedule: None,
            workers: 1,
            living: Vec::new(),
            living_at: None,
            stats: Stats::default(),
            shadow: Shadow::new(id),
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

    /// Takes over the settings of a configuration and binds its rules to their tables, which stay
    /// as they are where a rule's name is known already. No effects outside of the VM but metrics.
    pub(crate) fn configure(&mut self, config: &Config) -> Result<Vec<BoundRule>, HostError> {
        self.stats.define(&self.host)?;
        self.config = config.clone();
        self.upstreams = config.upstreams();
        self.trouble = Trouble::default();
        if !config.enabled {
            return Ok(Vec::new());
        }
        if let (Some(groups), Some(rule)) = (self.canonical_table(), config.rules.first()) {
            groups.policy = rule.policy.clone();
        }
        config.rules.iter().map(|rule| self.bind(rule)).collect()
    }

    /// The limits of groups that are those of no rule, if there are any.
    fn canonical_table(&mut self) -> Option<&mut Table> {
        let mut tables = self.tables.iter_mut();
        tables.find(|table| table.rule == CANONICAL)
    }

    /// Leaves a warning to whichever worker holds the pen, so that it is given once.
    pub(crate) fn warn_once(&mut self, warning: String) {
        self.warning = Some(warning);
    }

    fn bind(&mut self, rule: &Rule) -> Result<BoundRule, HostError> {
        let known = self.tables.iter().position(|table| table.rule == rule.name);
        let table = match known {
            Some(index) => index,
            None => {
                let stats = self.stats.define_rule(&self.host, &rule.name)?;
                self.tables.push(Table {
                    rule: rule.name.clone(),
                    wanted: String::new(),
                    policy: rule.policy.clone(),
                    terms: Terms::DEFAULT,
                    enforced: rule.enforced,
                    on_overflow: rule.on_overflow,
                    final_cost: None,
                    shape: rule.shape,
                    scopes: Scopes::new(self.id),
                    stats,
                });
                self.tables.len().saturating_sub(1)
            }
        };
        if let Some(table) = self.tables.get_mut(table) {
            table.policy = rule.policy.clone();
            table.terms = rule.terms.clone();
            table.wanted = rule.key.in_words();
            table.enforced = rule.enforced;
            table.on_overflow = rule.on_overflow;
            table.final_cost = rule.final_cost.clone();
            table.shape = rule.shape;
        }
        Ok(BoundRule {
            table: table as u16,
            key: rule.key.clone(),
            when: rule.when.clone(),
            missing: rule.missing.clone(),
            malformed: rule.malformed.clone(),
            priced_late: rule.final_cost.is_some(),
        })
    }

    /// Decides on the request at hand, which is the stream `context`, at the cost of one token.
    #[inline]
    pub(crate) fn admit(&mut self, rules: &[BoundRule], context: u32) -> Verdict {
        self.admit_at(rules, context, Tokens::ONE)
    }

    /// Decides on the request at hand at a cost of its own. One that costs nothing passes.
    #[inline]
    pub(crate) fn admit_at(&mut self, rules: &[BoundRule], context: u32, cost: Tokens) -> Verdict {
        self.shadow.clear();
        let mut targets = Targets::at(cost, context);
        for rule in rules {
            match self.resolve(rule) {
                Ok(Resolved::Scope(target)) => {
                    targets.push(target);
                    targets.priced_late |= rule.priced_late;
                }
                Ok(Resolved::Skipped) => {}
                Ok(Resolved::Refused(refusal)) if self.spares(refusal, context) => {
                    targets.pretended = Some(refusal);
                }
                Ok(Resolved::Refused(refusal)) => return Verdict::Refuse(refusal),
                Err(error) => return self.complain(&error),
            }
        }
        targets.own = targets.len;
        for target in targets.as_slice() {
            self.count_attempts_of(*target, targets.attempts());
        }
        let decision = match self.is_behind_held(&targets) {
            true => Ok(Decision::Hold),
            false => self.decide(&mut targets, Attempt::New),
        };
        let verdict = match decision {
            Ok(Decision::Pass) => {
                self.begin(context, &targets, Verdict::Pass);
                Verdict::Pass
            }
            Ok(Decision::Refuse(refusal)) => Verdict::Refuse(refusal),
            Ok(Decision::Hold) => self.hold(context, targets),
            Ok(Decision::Wait(short)) => self.begin_to_wait(context, &targets, short),
            Err(error) => self.complain(&error),
        };
        self.tell_pretended(verdict);
        self.tell_standing(&targets, verdict);
        verdict
    }

    /// Remembers a stream that goes on if it must be.
    #[inline]
    fn begin(&mut self, context: u32, targets: &Targets, verdict: Verdict) {
        if (targets.watched || targets.priced_late) && verdict == Verdict::Pass {
            self.watch(context, targets);
        }
    }

    /// The rule that refuses, for what the client is told.
    pub(crate) fn refuser(&self, refusal: Refusal) -> Refuser<'_> {
        let table = refusal.rule().and_then(|rule| self.tables.get(rule));
        let told_by = refusal.told_by().and_then(|rule| self.tables.get(rule));
        Refuser {
            rule: table.map_or("", |table| match table.rule.as_str() {
                CANONICAL => "group",
                rule => rule,
            }),
            wanted: table.map_or("", |table| &table.wanted),
            terms: told_by.map_or(Terms::PLAIN, |table| &table.terms),
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

    /// What becomes of a request that the host or the ledger let down.
    #[cold]
    pub(crate) fn complain(&mut self, error: &LedgerError) -> Verdict {
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

#[cfg(test)]
mod tests;
