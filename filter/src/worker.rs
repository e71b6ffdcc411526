//! One worker's engine in Envoy: finds the keys of requests, and carries out what the engine decides.

use core::fmt::Display;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::units::Instant;
use tollgate_engine::{
    Decision, Engine, Identity, InUse, Refusal, Request, RootSettings, RuleId, StreamEnd,
    planned_key,
};

use crate::bound_stream::BoundStream;
use crate::condition::Condition;
use crate::config::{Config, Formats, Missing, Rule};
use crate::engine_host::{EngineHost, grpc_failure, refreshed};
use crate::final_cost::ReadCost;
use crate::host::{Host, HostError};
use crate::key::{self, Found, Key};
use crate::max_wait::max_wait;
use crate::metrics::Metrics;
use crate::notes::{MARK, MARK_HEADER, state_name};
use crate::refusal::Protocol;
use crate::route::Special;

mod conflicts;
mod effects;
mod routes;
mod rule_texts;
mod watch;

use conflicts::Conflicts;
use routes::RouteWarnings;
use rule_texts::RuleTexts;

/// Envoy's count of the redirects that it has followed itself for a request; no client can set it.
const REDIRECTS: &[&str] = &["filter_state", "num_internal_redirects"];

/// An engine and what Envoy has to do with it.
#[derive(Debug)]
pub struct Worker<H> {
    pub(crate) host: H,
    pub(crate) engine: Engine<EngineHost<H>>,
    rules: RuleTexts,
    conflicts: Conflicts,
    metrics: Metrics,
    waiting: BTreeMap<u32, WaitingStream>,
    shadow_logged: Option<Instant>,
    route_warnings: RouteWarnings,
    /// True if the coordinators are called at an address instead of a cluster.
    has_address: bool,
    /// Root contexts whose configurations are this worker's.
    roots: BTreeSet<u32>,
}

/// Stream whose request waits.
#[derive(Clone, Copy, Debug, Default)]
struct WaitingStream {
    /// Protocol in which it is answered if it is refused.
    protocol: Protocol,
    /// Fields that its response can carry if it goes on.
    formats: Formats,
}

/// A configuration as a root context uses it.
#[derive(Clone, Debug)]
pub(crate) struct BoundRoot {
    /// Settings of requests whose route has none.
    pub(crate) plain: Special<BoundRule>,
    settings: RootSettings,
    /// Which fields the responses to admitted requests can carry.
    formats: Formats,
    /// Whether a rule marks requests.
    pub(crate) marks: bool,
}

/// A rule as a root context uses it.
#[derive(Clone, Debug)]
pub(crate) struct BoundRule {
    id: RuleId,
    key: Key,
    plan: Option<Key>,
    when: Option<Condition>,
    missing: Missing,
}

// === impl Worker ===

impl<H: Host + Clone> Worker<H> {
    /// A worker for `config` that has seen nothing yet.
    pub fn new(host: H, identity: Identity, config: &Config) -> Self {
        Self {
            engine: Engine::new(
                EngineHost::new(host.clone(), config.address.as_ref()),
                identity,
                config.engine.clone(),
            ),
            host,
            rules: RuleTexts::default(),
            conflicts: Conflicts::default(),
            metrics: Metrics::default(),
            waiting: BTreeMap::new(),
            shadow_logged: None,
            route_warnings: RouteWarnings::default(),
            has_address: config.address.is_some(),
            roots: BTreeSet::new(),
        }
    }

    /// Takes over the settings of a configuration and binds its rules to those of the engine, for as long as its `user`
    /// exists. No effects outside of the VM but metrics.
    pub(crate) fn configure(
        &mut self,
        config: &Config,
        user: &InUse,
    ) -> Result<BoundRoot, HostError> {
        self.metrics.define(&self.host)?;
        let root = self.engine.configure(&config.engine, user);
        self.metrics.define_rules(&self.host, &self.engine)?;
        self.conflicts.add(user, self.host.now(), config);
        let names = config.engine.rules.iter().map(|rule| &rule.name);
        let rules = root.rules.into_iter().zip(names.zip(&config.rules));
        let rules = rules.map(|(id, (name, rule))| self.bind(id, name, rule));
        Ok(BoundRoot {
            plain: Special::of(rules.collect()),
            settings: root.settings,
            formats: config.admitted_headers,
            marks: config.rules.iter().any(|rule| rule.terms.marks),
        })
    }

    fn bind(&mut self, id: RuleId, name: &str, rule: &Rule) -> BoundRule {
        self.rules.insert(id, name, rule);
        BoundRule {
            id,
            key: rule.key.clone(),
            plan: rule.plan.clone(),
            when: rule.when.clone(),
            missing: rule.missing.clone(),
        }
    }

    /// Leaves a warning to one worker of the process.
    pub fn warn_once(&mut self, warning: String) {
        self.engine.warn_once(warning);
    }

    /// Decides on the request at hand, which is `stream`, by the settings of its route. One that costs
    /// nothing passes.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        root: &BoundRoot,
        special: &Special<BoundRule>,
        stream: &mut BoundStream,
    ) -> Decision {
        let number = stream.number;
        let mut request = self.engine.begin(root.settings, number, special.cost);
        for rule in &special.rules {
            if let Err(decision) = self.add(rule, &mut request) {
                return decision;
            }
        }
        let mut redirects = 0;
        if let Some(earlier) = &stream.charge
            && self.engine.shares_scope(&request, earlier)
        {
            redirects = self.redirects();
            if earlier.is_before(redirects) {
                self.engine.go_on_from(&mut request, earlier);
            }
        }
        let decision = self.decide(root, &mut request);
        if let Some(charge) = &mut stream.charge {
            match decision {
                Decision::Deny(_) => charge.clear(),
                _ if request.has_targets() => {
                    self.engine.note_charge(&mut request, redirects, charge);
                }
                _ => charge.add_pass(),
            }
        }
        decision
    }

    /// Removes a mark that the client has made. That of an earlier filter stays, and of an earlier pass, if Envoy has
    /// followed a redirect itself.
    #[cold]
    pub(crate) fn remove_foreign_mark(&mut self) {
        let header = self.host.request_header(MARK_HEADER);
        let own = self.host.property(&["filter_state", &state_name(MARK)]);
        let is_own = matches!(own, Ok(Some(own)) if !own.is_empty());
        if !matches!(header, Ok(None)) && !is_own && self.redirects() == 0 {
            self.host.note(vec![(MARK, String::new())]);
        }
    }

    #[inline]
    fn decide(&mut self, root: &BoundRoot, request: &mut Request) -> Decision {
        let host = &self.host;
        let decision = self.engine.admit(request, || max_wait(host));
        match decision {
            Decision::Admit => {
                if let Some(report) = self.engine.report(request) {
                    self.tell(&report, root.formats);
                }
            }
            Decision::Hold | Decision::Queue(_) => self.remember(request.stream(), root.formats),
            Decision::Deny(_) => {}
        }
        decision
    }

    /// Returns the number of redirects that Envoy has followed itself for the request at hand.
    #[cold]
    fn redirects(&mut self) -> u32 {
        let count = match self.host.property(REDIRECTS) {
            Ok(count) => count.unwrap_or_default(),
            Err(error) => {
                self.complain(&error);
                return 0;
            }
        };
        let count = core::str::from_utf8(&count).ok();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Adds the scope that `rule` gives the request at hand.
    #[inline]
    fn add(&mut self, rule: &BoundRule, request: &mut Request) -> Result<(), Decision> {
        if let Some(when) = &rule.when {
            match when.holds(&self.host) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(self.decide_without_host(request.root(), &error)),
            }
        }
        if let Some(plan) = &rule.plan {
            return self.add_with_plan(rule, plan, request);
        }
        // The most common key by far goes straight from the host to the engine.
        if let Key::Header(name) = &rule.key {
            return match self.host.request_header(name) {
                Ok(value) => self.add_key(rule, request, value.as_deref().unwrap_or_default()),
                Err(error) => Err(self.decide_without_host(request.root(), &error)),
            };
        }
        match rule.key.read(&self.host) {
            // The engine has keys of its own that begin so, and Envoy no headers.
            Ok(Found::Value(value)) if key::trimmed(&value).first() == Some(&0) => {
                self.add_without_key(rule, request)
            }
            Ok(Found::Value(value)) => self.add_key(rule, request, &value),
            Ok(Found::Missing) => self.add_without_key(rule, request),
            Err(error) => Err(self.decide_without_host(request.root(), &error)),
        }
    }

    #[inline]
    fn add_key(
        &mut self,
        rule: &BoundRule,
        request: &mut Request,
        value: &[u8],
    ) -> Result<(), Decision> {
        let key = key::trimmed(value);
        if self.engine.add(request, rule.id, key) {
            Ok(())
        } else {
            self.add_new_key(rule, request, key)
        }
    }

    #[cold]
    fn add_new_key(
        &mut self,
        rule: &BoundRule,
        request: &mut Request,
        key: &[u8],
    ) -> Result<(), Decision> {
        match key::parsed(key) {
            Some(key) => self.engine.add_new(request, rule.id, &key),
            None => self.add_without_key(rule, request),
        }
    }

    /// Adds the scope of a rule with plans. One without a usable plan is that of a rule without.
    fn add_with_plan(
        &mut self,
        rule: &BoundRule,
        plan: &Key,
        request: &mut Request,
    ) -> Result<(), Decision> {
        let read = |key: &Key| match key.read(&self.host) {
            Ok(Found::Value(value)) => Ok(key::parsed(key::trimmed(&value)).map(Cow::into_owned)),
            Ok(Found::Missing) => Ok(None),
            Err(error) => Err(error),
        };
        let found = read(&rule.key).and_then(|key| Ok((key, read(plan)?)));
        let (key, plan) = match found {
            Ok((Some(key), plan)) => (key, plan),
            Ok((None, _)) => return self.add_without_key(rule, request),
            Err(error) => return Err(self.decide_without_host(request.root(), &error)),
        };
        let key = match plan.as_deref().and_then(key::plan_name) {
            Some(plan) => planned_key(&plan, &key::shortened_for_plan(key)),
            None => key,
        };
        if self.engine.add(request, rule.id, key.as_bytes()) {
            Ok(())
        } else {
            self.engine.add_new(request, rule.id, &key)
        }
    }

    fn add_without_key(&mut self, rule: &BoundRule, request: &mut Request) -> Result<(), Decision> {
        match &rule.missing {
            Missing::Skip => Ok(()),
            Missing::Default(key) => self.engine.add_new(request, rule.id, key),
            Missing::Deny => {
                let refusal = Refusal::Missing { rule: rule.id };
                self.engine.refuse(request, refusal)
            }
        }
    }

    #[cold]
    fn remember(&mut self, stream: u32, formats: Formats) {
        let protocol = Protocol::at_hand(&self.host);
        let waiting = WaitingStream { protocol, formats };
        self.waiting.insert(stream, waiting);
    }

    /// Decides on the request at hand when the host has failed.
    #[cold]
    pub(crate) fn fail(&mut self, root: &BoundRoot, error: &dyn Display) -> Decision {
        self.decide_without_host(root.settings, error)
    }

    #[cold]
    fn decide_without_host(&mut self, root: RootSettings, error: &dyn Display) -> Decision {
        self.engine.decide_without_host(root, error)
    }

    /// Counts a failure of the host, and logs it now and then.
    #[cold]
    pub fn complain(&mut self, error: &dyn Display) {
        self.engine.complain(error);
    }

    /// Returns whether the stream of a request that goes on is remembered, so that its end must be
    /// told.
    #[inline]
    pub fn remembers(&self, stream: u32) -> bool {
        self.engine.remembers(stream)
    }

    /// Returns whether ticks are needed more often than usual.
    #[inline]
    pub fn is_hurried(&self) -> bool {
        self.engine.is_hurried()
    }

    /// Returns how often the worker needs a tick now.
    pub fn tick_period(&self) -> Duration {
        self.engine.tick_period()
    }

    /// Does what is due.
    pub fn handle_tick(&mut self) {
        self.engine.handle_tick();
        self.carry_out();
    }

    /// Hands the answer to the call of `token` over.
    pub fn handle_answer(&mut self, token: u32, answer: &[u8]) {
        self.engine.handle_answer(token, refreshed(answer));
        self.carry_out();
    }

    /// Hands over that the call of `token` failed.
    pub fn handle_failure(&mut self, token: u32, status: u32) {
        self.engine
            .handle_answer(token, Err(grpc_failure(status, self.has_address)));
        self.carry_out();
    }

    /// Forgets a stream that has ended, which is the one at hand.
    pub fn forget(&mut self, stream: &mut BoundStream) {
        let number = stream.number;
        self.waiting.remove(&number);
        let needs = self.engine.stream_needs(number);
        let mut end = StreamEnd::default();
        if needs.bytes {
            end.bytes = self.body_bytes();
            let [of_request, _] = end.bytes.unwrap_or_default();
            if let Some(charge) = &mut stream.charge {
                charge.add_request_bytes(of_request);
            }
        }
        for rule in needs.costs {
            self.read_cost(rule, &mut end);
        }
        self.engine
            .end_stream(number, &end, stream.charge.as_deref_mut());
    }

    /// Adds what the stream at hand has cost by `rule` to the facts about its end.
    fn read_cost(&mut self, rule: RuleId, end: &mut StreamEnd) {
        let Some(final_cost) = self.rules.final_cost(rule) else {
            return;
        };
        let cost = match final_cost.read(&self.host) {
            Ok(ReadCost::Known(cost)) => Some(cost),
            Ok(ReadCost::AsTaken) => None,
            Ok(unknown @ (ReadCost::Unknown | ReadCost::Invalid)) => {
                if unknown == ReadCost::Invalid {
                    self.metrics.invalid_costs.add_one();
                }
                end.unknown = end.unknown.saturating_add(1);
                final_cost.on_abort
            }
            Err(error) => return self.complain(&error),
        };
        end.costs.extend(cost.map(|cost| (rule, cost)));
    }

    /// The bytes of bodies that the stream at hand has had so far, if Envoy tells them.
    fn body_bytes(&mut self) -> Option<[u64; 2]> {
        Some([self.body_size("request")?, self.body_size("response")?])
    }

    fn body_size(&mut self, whose: &str) -> Option<u64> {
        match self.host.property(&[whose, "size"]) {
            Ok(size) => {
                let size = size.as_deref().and_then(|size| size.first_chunk());
                let size = size.map_or(0, |size| i64::from_le_bytes(*size));
                Some(size.max(0).unsigned_abs())
            }
            Err(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// Answers the request at hand, in `protocol`.
    ///
    /// # Errors
    /// If the host fails.
    pub fn answer(&self, refusal: Refusal, protocol: Protocol) -> Result<(), HostError> {
        let now = self.host.now();
        self.rules
            .speaker(refusal)
            .send(&self.host, now, refusal, protocol)
    }
}

#[cfg(test)]
mod tests;
