//! One worker of a process: the façade of its parts, which passes each what it needs.
//!
//! [`Admission`] decides on requests, [`WaitQueues`] keep those that wait, [`LeaseSync`] talks to the
//! coordinators; what they share is in [`Process`]. None of them calls another one. A worker belongs to
//! a cluster of coordinators and outlives configurations, whose balances a new one finds here.
//!
//! The clock is the host's, read when a callback needs it and at most a few times: a request whose
//! token caches suffice reads none.

use core::fmt::Display;
use core::time::Duration;
use std::collections::VecDeque;

use tollgate_core::message::Refreshed;
use tollgate_core::units::{Instant, Tokens};

use crate::admission::{Admission, Charge, Place, Request, Stage, is_overflow_key};
use crate::config::{EngineConfig, Identity, RuleId};
use crate::decision::{Decision, Target};
use crate::effect::{Effect, Report, StreamEnd, StreamNeeds};
use crate::host::Host;
use crate::lease_sync::LeaseSync;
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::{Root, RootSettings};
use crate::rules::IN_USE_MAX;
use crate::stats::{ProcessStats, RuleStats, Stats};
use crate::users::InUse;
use crate::wait_queues::WaitQueues;

mod adjust;
#[cfg(any(test, feature = "testing"))]
mod inspect;
mod nudges;
mod pending;
mod queues;
mod tick;

#[cfg(any(test, feature = "testing"))]
pub use inspect::ScopeView;

/// One worker of a process.
#[derive(Debug)]
pub struct Engine<H> {
    process: Process<H>,
    admission: Admission,
    queues: WaitQueues,
    sync: LeaseSync,
    /// For the embedder, oldest first.
    effects: VecDeque<Effect>,
    last_round: Instant,
}

// === impl Engine ===

impl<H: Host> Engine<H> {
    /// Returns an engine for `config` that has seen nothing yet.
    pub fn new(host: H, identity: Identity, config: EngineConfig) -> Self {
        Self {
            admission: Admission::new(identity.worker),
            queues: WaitQueues::default(),
            sync: LeaseSync::new(&config),
            process: Process::new(host, identity, config),
            effects: VecDeque::new(),
            last_round: Instant::ZERO,
        }
    }

    /// Takes over a configuration, beside others that are in use. The scopes of a rule whose name is
    /// known already stay as they are. No effects outside of the engine. Once its `user` has gone, which must not be
    /// before its last stream, other rules may get the ids of its rules.
    pub fn configure(&mut self, config: &EngineConfig, user: &InUse) -> Root {
        self.process.config = config.clone();
        self.sync.configure(config);
        let settings = self.process.switches.bind(config, user);
        let rules = if config.enabled {
            self.bind(config, user)
        } else {
            // Requests that wait go on with the next tick, if they are of this configuration.
            self.queues.hurry(self.process.host.now(), |_| true);
            Vec::new()
        };
        Root { settings, rules }
    }

    fn bind(&mut self, config: &EngineConfig, user: &InUse) -> Vec<RuleId> {
        let known = &mut self.process.rules;
        if let Some(first) = config.rules.first() {
            known.rebind_canonical(first);
        }
        let has_scopes = |rule| self.admission.has_scopes(rule);
        let rules = config.rules.iter();
        let rules = rules.map(|rule| known.bind(rule, user, has_scopes));
        let rules: Vec<_> = rules.collect();
        self.admission.add_tables(known.len());
        if rules.contains(&RuleId::NONE) {
            let reason = format_args!("more than {IN_USE_MAX} rules are in use");
            self.process.fail(&reason);
        }
        rules
    }

    /// Leaves a warning to the worker of the process that leads, so that it is logged once.
    pub fn warn_once(&mut self, warning: String) {
        self.sync.warn_once(warning);
    }

    /// Starts the request of `stream`, which costs so many tokens. One that costs nothing goes on.
    #[inline]
    pub fn begin(&mut self, root: RootSettings, stream: u32, cost: Tokens) -> Request {
        Request::new(root, stream, cost)
    }

    /// Adds the scope of `key`, the second part of its id, to what a request needs. False if this
    /// worker does not know the scope: then [`Engine::add_new`] does.
    #[inline]
    pub fn add(&mut self, request: &mut Request, rule: RuleId, key: &[u8]) -> bool {
        if is_overflow_key(key) {
            return false;
        }
        let Some(target) = self.admission.find(rule, key) else {
            return false;
        };
        self.push(request, target);
        true
    }

    #[inline]
    fn push(&mut self, request: &mut Request, target: Target) {
        if let Some(estimate) = self.process.rules.final_cost(target.rule) {
            self.admission.reserve(request, target, estimate);
        }
        request.push(target);
    }

    /// Adds a scope that this worker may see for the first time. The key is printable, and not longer
    /// than a scope id allows.
    ///
    /// # Errors
    /// The decision on the request, if the rule refuses it for want of a slot, or the host fails.
    #[cold]
    pub fn add_new(
        &mut self,
        request: &mut Request,
        rule: RuleId,
        key: &str,
    ) -> Result<(), Decision> {
        let others = request.targets();
        match self.admission.place(&mut self.process, rule, key, others) {
            Ok(Place::Bucket(target)) => {
                self.push(request, target);
                Ok(())
            }
            Ok(Place::Exempt) => Ok(()),
            Ok(Place::Refused(denial)) => {
                let by = rule;
                self.refuse(request, Refusal::Denied { rule, by, denial })
            }
            Err(error) => Err(self.decide_without_host(request.root, &error)),
        }
    }

    /// Refuses a request before any bucket is looked at, such as for want of a key, unless the rule is
    /// in shadow mode.
    ///
    /// # Errors
    /// The refusal, if it has any effect.
    #[cold]
    pub fn refuse(&mut self, request: &mut Request, refusal: Refusal) -> Result<(), Decision> {
        let rules = &mut self.process.rules;
        if self.admission.shadow_early(rules, request, refusal) {
            Ok(())
        } else {
            Err(Decision::Deny(refusal))
        }
    }

    /// Decides on a request, for which all scopes have been added. `max_wait` says how long its
    /// client would wait, and is only asked if it may have to.
    #[inline]
    pub fn admit(
        &mut self,
        request: &mut Request,
        max_wait: impl FnOnce() -> Option<Duration>,
    ) -> Decision {
        let is_cached = self.admission.count(request);
        let is_behind = self.is_behind_pending(request);
        if is_cached && !is_behind {
            self.admission.spend(request);
            if !request.is_prepaid() {
                self.process.stats.allowed.add_one();
            }
            self.open_stream(request);
            return Decision::Admit;
        }
        self.admit_slowly(request, is_behind, max_wait)
    }

    #[cold]
    fn admit_slowly(
        &mut self,
        request: &mut Request,
        is_behind: bool,
        max_wait: impl FnOnce() -> Option<Duration>,
    ) -> Decision {
        let decision = if is_behind {
            Ok(Decision::Hold)
        } else {
            self.decide(request, Stage::New)
        };
        match decision {
            Ok(Decision::Admit) => {
                self.open_stream(request);
                Decision::Admit
            }
            Ok(Decision::Deny(refusal)) => Decision::Deny(refusal),
            Ok(Decision::Hold) => self.hold(request, max_wait()),
            Ok(Decision::Queue(shortfall)) => {
                let waiting = self.waiting_request(request, max_wait());
                self.queue(&waiting, shortfall)
            }
            Err(error) => self.decide_without_host(request.root, &error),
        }
    }

    /// Notes in `charge` what a request has been charged once it goes on, with its earlier passes if it
    /// has any. The proxy has followed so many redirects for it.
    #[inline]
    pub fn note_charge(&self, request: &mut Request, redirects: u32, charge: &mut Charge) {
        self.admission.note_charge(request, redirects, charge);
    }

    /// Returns whether a request, not yet decided on, needs a scope that an `earlier` one was charged
    /// for.
    #[inline]
    pub fn shares_scope(&self, request: &Request, earlier: &Charge) -> bool {
        let rules = &self.process.rules;
        self.admission.shares_scope(rules, request, earlier)
    }

    /// Makes a request go on from an `earlier` pass, before it is decided on: each scope that was
    /// charged then is charged for what it costs more now, and for what its body has more.
    #[cold]
    pub fn go_on_from(&self, request: &mut Request, earlier: &Charge) {
        let rules = &self.process.rules;
        self.admission.go_on_from(rules, request, earlier);
    }

    /// Remembers the stream of a request that goes on, if it counts until it ends.
    #[inline]
    fn open_stream(&mut self, request: &Request) {
        if request.counts_until_end || request.has_final_cost {
            self.admission.open_stream(&mut self.process, request);
        }
    }

    /// Returns remarks on a request that has been admitted, if there are any.
    #[inline]
    pub fn report(&mut self, request: &Request) -> Option<Report> {
        let is_told = request.shadowed.is_any() || request.root.reports_limits;
        is_told.then(|| self.report_on(request))
    }

    #[cold]
    fn report_on(&self, request: &Request) -> Report {
        let mut limits = Vec::new();
        if request.root.reports_limits {
            limits.extend(request.targets().iter().filter_map(|target| {
                let status = self.admission.limit_status(*target)?;
                Some((RuleId(target.table), status))
            }));
        }
        Report {
            shadowed: request.shadowed.by_shadow,
            marked: request.shadowed.by_mark,
            limits,
        }
    }

    /// Returns whether a stream that goes on is remembered, so that its end must be told.
    #[inline]
    pub fn remembers(&self, stream: u32) -> bool {
        self.admission.remembers(stream)
    }

    /// Returns the facts that [`Engine::end_stream`] needs of a stream that has ended.
    pub fn stream_needs(&self, stream: u32) -> StreamNeeds {
        self.admission.stream_needs(stream)
    }

    /// Counts the bytes of bodies that a stream has had since the last look; `bytes` are those of the
    /// request and of the response so far.
    pub fn count_bytes(&mut self, stream: u32, bytes: [u64; 2]) {
        self.admission.count_bytes(&mut self.process, stream, bytes);
    }

    /// Forgets a stream that has ended, in whatever way, and charges what [`Engine::stream_needs`]
    /// asked for. What comes back of its `charge`, if that is to be handed on, is no part of it any more.
    pub fn end_stream(&mut self, stream: u32, end: &StreamEnd, charge: Option<&mut Charge>) {
        self.queues.pending.leave(stream);
        self.leave_queue(stream);
        let process = &mut self.process;
        self.admission.end_stream(process, stream, end, charge);
    }

    /// Applies the answer to the call of `token`, or notes why there is none.
    pub fn handle_answer(&mut self, token: u32, answer: Result<Refreshed, String>) {
        if !self.sync.awaits_answer(token) {
            return;
        }
        let now = self.process.host.now();
        self.sync
            .handle_answer(&mut self.process, now, token, answer);
        self.take_answers(now);
        self.release(now);
    }

    /// Returns the next thing to be done, until there is none. Ticks and answers bring effects, in whose
    /// callback they are to be carried out; nothing else does.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Counts a failure of the host, and logs it now and then.
    #[cold]
    pub fn complain(&mut self, error: &dyn Display) {
        self.process.fail(error);
    }

    /// Decides on a request when the host or the shared table has failed.
    #[cold]
    pub fn decide_without_host(&mut self, root: RootSettings, error: &dyn Display) -> Decision {
        self.process.fail(error);
        root.without_host()
    }

    /// Returns the host.
    pub fn host(&self) -> &H {
        &self.process.host
    }

    /// Returns the counters of this worker.
    pub fn stats(&self) -> &Stats {
        &self.process.stats
    }

    /// Returns the counters of each rule, in the order of their ids, with the rule's name. That of
    /// the limits of no rule, such as groups, is `canonical`.
    pub fn rule_stats(&self) -> impl Iterator<Item = (&str, &RuleStats)> {
        self.process.rules.stats()
    }

    /// Returns how the process stands, if this is the worker that leads.
    pub fn process_stats(&self) -> Option<ProcessStats> {
        self.sync.process_stats(&self.process)
    }
}

#[cfg(test)]
mod tests;
