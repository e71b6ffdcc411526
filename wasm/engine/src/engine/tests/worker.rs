//! Worker of a fake process: an engine with an embedder that carries its effects out.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tollgate_core::message::Refreshed;
use tollgate_core::units::Tokens;

use super::calls::Terms;
use super::{DOWN, TICK};
use crate::config::{EngineConfig, Identity, RuleId};
use crate::decision::Decision;
use crate::effect::{Effect, Report, StreamEnd, Waited};
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::roots::Root;
use crate::stats::{ProcessStats, Refusals, Stats};
use crate::testing::{FakeHost, FakeProcess};
use crate::users::InUse;

/// An engine, and the fate of its streams.
pub(super) struct Worker {
    pub(super) engine: Engine<FakeHost>,
    pub(super) process: Rc<FakeProcess>,
    pub(super) root: Root,
    pub(super) user: InUse,
    /// Rules that refuse requests without a key; the others do not apply to those.
    pub(super) needs_key: BTreeSet<RuleId>,
    /// The latest stream.
    pub(super) streams: u32,
    /// Streams that have gone on after they waited.
    pub(super) resumed: Vec<u32>,
    /// Streams that were refused after they waited.
    pub(super) denied: Vec<(u32, Refusal)>,
    /// The waits that are over, by stream.
    pub(super) waited: BTreeMap<u32, Waited>,
    /// Remarks on streams that have gone on, as of the last request or effect.
    pub(super) reports: BTreeMap<u32, Report>,
    /// Streams that the proxy has forgotten already.
    pub(super) gone: Vec<u32>,
    /// The bytes of bodies that have passed in each stream.
    pub(super) sizes: BTreeMap<u32, [u64; 2]>,
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(process: &Rc<FakeProcess>, id: u64, config: &EngineConfig) -> Self {
        let identity = Identity {
            worker: id,
            node: "node".to_owned(),
            plugin: String::new(),
            process: id.into(),
        };
        let host = FakeHost::new(process);
        let mut engine = Engine::new(host, identity, config.clone());
        let user = InUse::default();
        Self {
            root: engine.configure(config, &user),
            user,
            engine,
            process: Rc::clone(process),
            needs_key: BTreeSet::new(),
            streams: 100 * id as u32,
            resumed: Vec::new(),
            denied: Vec::new(),
            waited: BTreeMap::new(),
            reports: BTreeMap::new(),
            gone: Vec::new(),
            sizes: BTreeMap::new(),
        }
    }

    pub(super) fn configure(&mut self, config: &EngineConfig) {
        let user = InUse::default();
        self.root = self.engine.configure(config, &user);
        self.user = user;
    }

    pub(super) fn host(&self) -> &FakeHost {
        self.engine.host()
    }

    pub(super) fn stats(&self) -> &Stats {
        self.engine.stats()
    }

    /// The levels of the process, which this worker leads.
    pub(super) fn process_stats(&self) -> ProcessStats {
        self.engine.process_stats().expect("the sync leader")
    }

    pub(super) fn refused(&self, rule: &str) -> &Refusals {
        let mut rules = self.engine.rule_stats();
        &rules.find(|(name, _)| *name == rule).unwrap().1.refused
    }

    pub(super) fn shadowed(&self, rule: &str) -> &Refusals {
        let mut rules = self.engine.rule_stats();
        &rules.find(|(name, _)| *name == rule).unwrap().1.shadowed
    }

    /// Decides on a request that has a key for each rule; an empty one is none.
    pub(super) fn decide(
        &mut self,
        keys: &[&str],
        cost: Tokens,
        max_wait: Option<Duration>,
    ) -> Decision {
        self.streams += 1;
        let Root { settings, rules } = self.root.clone();
        let mut request = self.engine.begin(settings, self.streams, cost);
        for (rule, key) in rules.into_iter().zip(keys) {
            let added = match *key {
                "" if self.needs_key.contains(&rule) => {
                    let refusal = Refusal::Missing { rule };
                    self.engine.refuse(&mut request, refusal)
                }
                "" => Ok(()),
                key if self.engine.add(&mut request, rule, key.as_bytes()) => Ok(()),
                key => self.engine.add_new(&mut request, rule, key),
            };
            if let Err(decision) = added {
                return decision;
            }
        }
        let decision = self.engine.admit(&mut request, || max_wait);
        if decision == Decision::Admit {
            let report = self.engine.report(&request);
            self.reports
                .extend(report.map(|report| (self.streams, report)));
        }
        decision
    }

    /// Decides on a request; one that waits for its turn is held as one that waits for a lease is.
    pub(super) fn request(&mut self, keys: &[&str]) -> Decision {
        held(self.decide(keys, Tokens::ONE, None))
    }

    /// The same for a client that waits no longer than so many milliseconds.
    pub(super) fn request_within(&mut self, keys: &[&str], millis: u64) -> Decision {
        let max_wait = Duration::from_millis(millis);
        held(self.decide(keys, Tokens::ONE, Some(max_wait)))
    }

    pub(super) fn of(&mut self, tenant: &str) -> Decision {
        self.request(&[tenant])
    }

    /// Decides on a request for a tenant whose client would not wait.
    pub(super) fn hasty(&mut self, tenant: &str) -> Decision {
        self.request_within(&[tenant], 0)
    }

    pub(super) fn at(&mut self, tenant: &str, cost: u64) -> Decision {
        self.decide(&[tenant], Tokens::from_whole(cost), None)
    }

    /// Returns the number of `requests` that go on at once.
    pub(super) fn admitted(&mut self, tenant: &str, requests: usize) -> usize {
        self.begun(tenant, requests).len()
    }

    /// Returns the streams of those of `requests` that go on at once.
    pub(super) fn begun(&mut self, tenant: &str, requests: usize) -> Vec<u32> {
        let mut begun = Vec::new();
        for _ in 0..requests {
            if self.of(tenant) == Decision::Admit {
                begun.push(self.streams);
            }
        }
        begun
    }

    pub(super) fn tick(&mut self, after: Duration) {
        self.process.advance(after);
        self.engine.handle_tick();
        self.carry_out();
    }

    pub(super) fn handle_answer(&mut self, token: u32, answer: Refreshed) {
        self.engine.handle_answer(token, Ok(answer));
        self.carry_out();
    }

    /// Lets a call fail.
    pub(super) fn fail_call(&mut self, token: u32) {
        self.engine.handle_answer(token, Err(DOWN.to_owned()));
        self.carry_out();
    }

    /// Answers every refresh that is open with `capacity`.
    pub(super) fn answer(&mut self, capacity: f64) {
        while let Some((token, call)) = self.process.take_call() {
            if call.is_refresh() {
                self.handle_answer(token, call.lend(capacity));
            }
        }
    }

    /// Answers every refresh that is open by the terms.
    pub(super) fn answer_by(&mut self, all: &[Terms]) {
        while let Some((token, call)) = self.process.take_call() {
            if call.is_refresh() {
                self.handle_answer(token, call.lend_by(all));
            }
        }
    }

    /// Goes on in ticks, with answers.
    pub(super) fn pass(&mut self, after: Duration, all: &[Terms]) {
        for _ in 0..(after.as_millis() / TICK.as_millis()).max(1) {
            self.tick(TICK);
            self.answer_by(all);
        }
    }

    /// Gets a lease of `capacity` for `tenant`, with one request, which goes on.
    pub(super) fn lease(&mut self, tenant: &str, capacity: f64) {
        assert_eq!(self.of(tenant), Decision::Hold);
        self.tick(Duration::from_millis(1));
        self.answer(capacity);
        assert_eq!(self.resumed.pop(), Some(self.streams));
    }

    /// A first request of `tenant`, and all that follows from it, until it has ended.
    pub(super) fn meet(&mut self, tenant: &str, all: &[Terms]) {
        self.of(tenant);
        let stream = self.streams;
        for _ in 0..4 {
            self.tick(Duration::from_millis(1));
            self.answer_by(all);
        }
        self.end(stream);
        self.pass(Duration::from_millis(400), all);
        self.resumed.clear();
    }

    /// Returns the number of `requests` that go on, at once or after they were held.
    pub(super) fn go_on(&mut self, tenant: &str, requests: usize, all: &[Terms]) -> usize {
        let mut passed = 0;
        for _ in 0..requests {
            match self.of(tenant) {
                Decision::Admit => passed += 1,
                Decision::Deny(_) => {}
                Decision::Hold | Decision::Queue(_) => {
                    for _ in 0..4 {
                        self.tick(Duration::from_millis(1));
                        self.answer_by(all);
                    }
                    passed += self.resumed.drain(..).count();
                }
            }
        }
        passed
    }

    /// Ends a stream whose final cost is not known.
    pub(super) fn end(&mut self, stream: u32) {
        self.end_with(stream, None);
    }

    /// Ends a stream that has cost so much in all.
    pub(super) fn end_at(&mut self, stream: u32, cost: u64) {
        self.end_with(stream, Some(Tokens::from_whole(cost)));
    }

    fn end_with(&mut self, stream: u32, cost: Option<Tokens>) {
        let needs = self.engine.stream_needs(stream);
        let costs = needs.costs.into_iter();
        let end = StreamEnd {
            bytes: Some(self.bytes(stream)),
            costs: costs.filter_map(|rule| Some((rule, cost?))).collect(),
            unknown: 0,
        };
        self.engine.end_stream(stream, &end, None);
    }

    fn bytes(&self, stream: u32) -> [u64; 2] {
        self.sizes.get(&stream).copied().unwrap_or_default()
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Resume { stream, .. } if self.gone.contains(&stream) => {
                    self.engine.end_stream(stream, &StreamEnd::default(), None);
                }
                Effect::Resume {
                    stream,
                    waited,
                    report,
                } => {
                    self.resumed.push(stream);
                    self.waited.insert(stream, waited);
                    self.reports.insert(stream, report);
                }
                Effect::Deny {
                    stream,
                    waited,
                    refusal,
                } => {
                    let twice = self.denied.iter().any(|(other, _)| *other == stream);
                    assert!(
                        !twice,
                        "stream {stream} was answered twice, a trap in Envoy"
                    );
                    self.denied.push((stream, refusal));
                    self.waited.insert(stream, waited);
                }
                Effect::CountBytes { stream } => {
                    let bytes = self.bytes(stream);
                    self.engine.count_bytes(stream, bytes);
                }
                Effect::Publish => {}
            }
        }
    }
}

// === free functions ===

fn held(decision: Decision) -> Decision {
    match decision {
        Decision::Queue(_) => Decision::Hold,
        decision => decision,
    }
}
