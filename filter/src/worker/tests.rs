//! Envoy's part of a worker: keys, headers, properties, metrics, notes and replies. The decisions
//! themselves are tested in the engine.

use core::time::Duration;
use std::rc::Rc;

use prost::Message;
use tollgate_core::lease::Unit;
use tollgate_core::units::{Rate, Tokens};
use tollgate_engine::Denial;
use tollgate_proto::{number, v1};

use super::*;
use crate::fake::{Fake, Process};

mod final_cost;
mod metrics;
mod nudges;
mod shadow;
mod updates;

const TICK: Duration = Duration::from_millis(20);

fn config(json: &str) -> Config {
    Config::parse(json.as_bytes()).unwrap().0
}

fn one_rule(fields: &str) -> Config {
    rule_with("", fields)
}

/// One rule with more fields of its own and of all.
fn rule_with(rule: &str, fields: &str) -> Config {
    let rule = format!(r#"{{"name": "tenant", "key": {{"header": "x"}} {rule}}}"#);
    config(&format!(
        r#"{{"coordinator": "c", "scopes": [{rule}] {fields}}}"#
    ))
}

struct Proxy {
    worker: Worker<Fake>,
    root: BoundRoot,
    user: InUse,
    streams: u32,
}

impl Proxy {
    fn new(config: &Config) -> Self {
        let identity = Identity {
            worker: 1,
            node: "node".to_owned(),
            plugin: String::new(),
            process: 1,
        };
        let mut worker = Worker::new(Fake::new(&Process::new()), identity, config);
        let user = InUse::default();
        let root = worker.configure(config, &user).unwrap();
        Self {
            worker,
            root,
            user,
            streams: 100,
        }
    }

    fn configure(&mut self, config: &Config) {
        let user = InUse::default();
        self.root = self.worker.configure(config, &user).unwrap();
        self.user = user;
    }

    fn host(&self) -> &Fake {
        &self.worker.host
    }

    fn process(&self) -> &Rc<Process> {
        &self.worker.host.process
    }

    fn metric(&self, name: &str) -> i64 {
        self.process().metric(name)
    }

    /// Decides on a request; one that waits for its turn is held as one that waits for a lease is.
    fn request(&mut self, headers: &[(&str, &str)]) -> Decision {
        self.streams += 1;
        self.host().set_headers(headers);
        let mut stream = BoundStream::new(self.streams, Box::default());
        let root = &self.root;
        match self.worker.admit(root, &root.plain, &mut stream) {
            Decision::Queue(_) => Decision::Hold,
            decision => decision,
        }
    }

    fn of(&mut self, tenant: &str) -> Decision {
        self.request(&[("x", tenant)])
    }

    /// Returns the number of `requests` that go on at once.
    fn admitted(&mut self, tenant: &str, requests: usize) -> usize {
        let admitted = (0..requests).filter(|_| self.of(tenant) == Decision::Admit);
        admitted.count()
    }

    fn tick(&mut self, after: Duration) {
        self.process().advance(after);
        self.worker.handle_tick();
    }

    /// Answers every call that is open with `capacity`.
    fn answer(&mut self, capacity: f64) {
        while let Some((token, call)) = self.process().take_call() {
            self.worker.handle_answer(token, &call.lend(capacity));
        }
    }

    /// Gets a lease of `capacity` for `tenant`, with one request, which goes on.
    fn lease(&mut self, tenant: &str, capacity: f64) {
        assert_eq!(self.of(tenant), Decision::Hold);
        self.tick(Duration::from_millis(1));
        self.answer(capacity);
        assert_eq!(self.host().resumed.borrow_mut().pop(), Some(self.streams));
    }

    /// Spends all tokens of acme, with requests that would not wait for more.
    fn spend(&mut self) {
        while self.request(&[("x", "acme"), ("tollgate-max-wait-ms", "0")]) == Decision::Admit {}
    }

    /// Ends a stream, which is the one at hand then.
    fn end(&mut self, stream: u32) {
        self.host().select(stream).unwrap();
        self.worker
            .forget(&mut BoundStream::new(stream, Box::default()));
    }

    /// The note of that name on a stream.
    fn noted(&self, stream: u32, name: &str) -> Option<String> {
        let notes = self.host().notes.borrow();
        notes.get(&(stream, format!("tollgate.{name}"))).cloned()
    }
}

fn denial(decision: Decision) -> Denial {
    match decision {
        Decision::Deny(Refusal::Denied { denial, .. }) => denial,
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_keys_follow_the_rule() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "a", "key": {"header": "x"}, "missing": "skip"},
        {"name": "b", "key": {"header": "y"}, "missing": "deny"},
        {"name": "c", "key": {"header": "z"}, "missing": {"default": "nobody"}}]}"#;
    let mut proxy = Proxy::new(&config(json));
    let missing = Decision::Deny(Refusal::Missing { rule: RuleId(1) });
    assert_eq!(proxy.request(&[("x", "1"), ("z", "1")]), missing);
    for key in ["", "  ", "a\nb", "\u{80}"] {
        assert_eq!(proxy.request(&[("y", key)]), missing, "{key:?}");
    }
    assert_eq!(proxy.request(&[("y", "1")]), Decision::Hold);
    // One that is too long has its hash for a key.
    assert_eq!(proxy.request(&[("y", &"k".repeat(201))]), Decision::Hold);
    proxy.tick(TICK);
    let (_, call) = proxy.process().take_call().unwrap();
    let scopes: Vec<String> = call.refresh().scopes.into_iter().map(|s| s.scope).collect();
    let hash = format!("b/{}", key::hashed("k".repeat(201).as_bytes()));
    assert_eq!(scopes, ["b/1", "c/nobody", &hash]);
    assert_eq!(proxy.metric("refused.b.missing"), 5);
}

#[test]
fn a_scope_has_the_plan_of_its_request() {
    let plan = r#", "plan": {"header": "x-plan"}"#;
    let mut proxy = Proxy::new(&rule_with(plan, ""));
    let long = "k".repeat(161);
    let requests = [
        [("x", "alice"), ("x-plan", "Gold")],
        [("x", "alice"), ("x-plan", "gold")],
        [("x", "bob"), ("x-plan", "no plan")],
        [("x", "bob"), ("x-none", "")],
        [("x", &long), ("x-plan", "gold")],
        [("x", ""), ("x-plan", "gold")],
        [("x", "@gold/alice"), ("x-none", "")],
    ];
    for headers in requests {
        assert_eq!(proxy.request(&headers), Decision::Hold, "{headers:?}");
    }
    proxy.tick(TICK);
    let (_, call) = proxy.process().take_call().unwrap();
    let scopes: Vec<String> = call.refresh().scopes.into_iter().map(|s| s.scope).collect();
    let hash = format!("tenant@gold/{}", key::hashed(long.as_bytes()));
    let want = [
        "tenant@gold/alice",
        "tenant/bob",
        &hash,
        "tenant/unknown",
        "tenant/@gold/alice",
    ];
    assert_eq!(scopes, want);
}

#[test]
fn a_rule_is_about_those_that_its_condition_means() {
    let when = r#", "when": {"methods": ["POST"], "path_prefix": "/api/"}, "safe_capacity": 0"#;
    let mut proxy = Proxy::new(&rule_with(when, r#", "first_lease_wait_ms": 0"#));
    let rows = [
        ("POST", "/api/orders", false),
        ("POST", "/health", true),
        ("GET", "/api/orders", true),
    ];
    for (method, path, passes) in rows {
        let decision = proxy.request(&[("x", "acme"), (":method", method), (":path", path)]);
        assert_eq!(decision == Decision::Admit, passes, "{method} {path}");
    }
}

#[test]
fn a_held_request_is_asked_for_and_goes_on_with_the_answer() {
    let mut proxy = Proxy::new(&one_rule(""));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    assert!(proxy.worker.is_hurried());
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(1));
    proxy.tick(Duration::from_millis(1));
    let (token, call) = proxy.process().take_call().unwrap();
    assert_eq!(call.to, "c");
    let request = call.refresh();
    assert!(
        request.client_id.starts_with("node/"),
        "{}",
        request.client_id
    );
    assert_eq!(request.scopes[0].scope, "tenant/acme");
    assert!(request.scopes[0].units[0].wants > 0.0);
    proxy.worker.handle_answer(token, &call.lend(100.0));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    assert_eq!(proxy.noted(101, "waited_ms").as_deref(), Some("1"));
    assert_eq!(proxy.of("acme"), Decision::Admit);
    proxy.tick(TICK);
    assert_eq!((proxy.metric("pending"), proxy.metric("allowed")), (1, 2));
}

#[test]
fn pending_requests_are_refused_with_the_reason_and_in_grpc_if_they_are_grpc() {
    let mut proxy = Proxy::new(&one_rule(r#", "no_lease": "pessimistic""#));
    let headers = [("x", "acme"), ("content-type", "application/grpc+proto")];
    assert_eq!(proxy.request(&headers), Decision::Hold);
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(260));
    let replies = proxy.host().replies.borrow();
    let statuses: Vec<u32> = replies.iter().map(|reply| reply.1).collect();
    assert_eq!(statuses, [200, 429]);
    assert_eq!(replies[0].2["grpc-status"], "8");
    let (_, _, headers) = &replies[1];
    assert_eq!(headers["tollgate-reason"], "tenant/requests");
}

#[test]
fn a_failure_status_or_an_unreadable_answer_lets_pending_requests_go() {
    for answer in [
        Some(&b"\xff\xff\xff"[..]),
        Some(b""),
        Some(b"\x08\x01"),
        None,
    ] {
        let mut proxy = Proxy::new(&one_rule(""));
        assert_eq!(proxy.of("acme"), Decision::Hold);
        proxy.tick(Duration::from_millis(1));
        let (token, _) = proxy.process().take_call().unwrap();
        match answer {
            Some(answer) => proxy.worker.handle_answer(token, answer),
            None => proxy.worker.handle_failure(token, 14),
        }
        assert_eq!(*proxy.host().resumed.borrow(), [101], "{answer:?}");
        // Unknown tokens belong to no call.
        proxy
            .worker
            .handle_answer(token, answer.unwrap_or_default());
        proxy.worker.handle_failure(77, 14);
        proxy.tick(TICK);
        assert_eq!(proxy.metric("refresh_errors"), 1);
    }
}

#[test]
fn a_held_stream_that_ends_is_forgotten() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.of("acme");
    proxy.of("acme");
    proxy
        .worker
        .forget(&mut BoundStream::new(101, Box::default()));
    // Envoy may know of an end before the filter does.
    proxy.of("acme");
    proxy.host().gone.borrow_mut().push(103);
    proxy.tick(Duration::from_millis(1));
    proxy.answer(100.0);
    assert_eq!(*proxy.host().resumed.borrow(), [102]);
}

#[test]
fn a_request_is_not_held_beyond_its_clients_max_wait() {
    let mut proxy = Proxy::new(&one_rule(""));
    let hasty = [("x", "acme"), ("grpc-timeout", "25m")];
    assert_eq!(proxy.request(&hasty), Decision::Hold);
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(19));
    assert!(proxy.host().resumed.borrow().is_empty());
    proxy.tick(Duration::from_millis(1));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    assert_eq!(proxy.noted(101, "waited_ms").as_deref(), Some("20"));
}

#[test]
fn waits_for_a_turn_are_noted_and_measured() {
    let mut proxy = Proxy::new(&rule_with(r#", "on_limit": "shape""#, ""));
    proxy.lease("acme", 100.0);
    proxy.spend();
    assert_eq!(proxy.of("acme"), Decision::Hold);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(10));
    proxy.tick(Duration::from_millis(10));
    assert_eq!(*proxy.host().resumed.borrow(), [proxy.streams]);
    let waited = proxy.noted(proxy.streams, "waited_ms");
    assert_eq!(waited.as_deref(), Some("10"));
    proxy.tick(TICK);
    assert_eq!((proxy.metric("waited"), proxy.metric("wait_ms")), (1, 10));
}

#[test]
fn a_clients_deadline_counts_four_fifths() {
    let mut proxy = Proxy::new(&rule_with(r#", "on_limit": "shape""#, ""));
    proxy.lease("acme", 2.0);
    proxy.spend();
    for (timeout, holds) in [("627m", false), ("628m", true)] {
        let decision = proxy.request(&[("x", "acme"), ("grpc-timeout", timeout)]);
        assert_eq!(decision == Decision::Hold, holds, "{timeout}");
    }
}

#[test]
fn a_key_cannot_begin_as_one_with_a_plan() {
    let json = r#"{"coordinator": "c", "scopes": [{"name": "tenant", "key": {"query": "t"}}]}"#;
    let mut proxy = Proxy::new(&config(json));
    let request = [(":path", "/?t=%20%00gold/bob")];
    assert_eq!(proxy.request(&request), Decision::Hold);
    proxy.tick(TICK);
    let (_, call) = proxy.process().take_call().unwrap();
    assert_eq!(call.refresh().scopes[0].scope, "tenant/unknown");
}

#[test]
fn admitted_requests_are_told_what_is_left_and_refused_ones_are_not() {
    let config = one_rule(r#", "admitted_headers": ["ietf", "draft03"]"#);
    let mut proxy = Proxy::new(&config);
    proxy.lease("acme", 100.0);
    let header = proxy.noted(101, "ratelimit");
    assert_eq!(
        header.as_deref(),
        Some(r#""tenant";r=99;t=1"#),
        "it was held"
    );
    for left in (0..99).rev() {
        proxy.host().select(0).unwrap();
        proxy.host().notes.borrow_mut().clear();
        assert_eq!(proxy.of("acme"), Decision::Admit);
        let header = proxy.noted(0, "ratelimit");
        assert_eq!(header, Some(format!(r#""tenant";r={left};t=1"#)));
        let header = proxy.noted(0, "x_ratelimit_remaining");
        assert_eq!(header, Some(left.to_string()));
    }
    let policy = proxy.noted(0, "ratelimit_policy");
    assert_eq!(policy.as_deref(), Some(r#""tenant";q=100;w=1"#));
    proxy.host().notes.borrow_mut().clear();
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    assert_eq!(proxy.noted(0, "ratelimit"), None);
}

#[test]
fn nothing_is_told_unless_it_is_asked_for() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.lease("acme", 100.0);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    let notes = proxy.host().notes.borrow();
    assert!(notes.keys().all(|(_, name)| name == "tollgate.waited_ms"));
}

#[test]
fn bytes_of_bodies_are_read_on_ticks_and_at_the_end() {
    let mut proxy = Proxy::new(&one_rule(""));
    let size = |proxy: &Proxy, size| {
        let mut sizes = proxy.host().sizes.borrow_mut();
        sizes.insert((102, "response".to_owned()), size);
    };
    // The first answer says that bytes of responses are limited. As long as none come their lease is released.
    for _ in 0..2 {
        assert_eq!(proxy.of("acme"), Decision::Hold);
        proxy.pass(50);
    }
    size(&proxy, 200);
    proxy.pass(50);
    size(&proxy, 3000);
    proxy.pass(11);
    let refused = denial(proxy.of("acme"));
    assert_eq!(refused.unit, Unit::ResponseBytes);
    let pause = |refused: Denial, proxy: &Proxy| {
        let pause = refused
            .retry_at
            .unwrap()
            .saturating_since(proxy.host().now());
        pause.as_secs_f64()
    };
    let before = pause(refused, &proxy);
    assert!((1.5..1.9).contains(&before), "{before}");
    size(&proxy, 5000);
    proxy.end(102);
    // The refusal before holds for a tick.
    proxy.pass(1);
    let after = pause(denial(proxy.of("acme")), &proxy) - before;
    assert!((1.9..2.1).contains(&after), "{after}");
    proxy.tick(TICK);
    assert!(proxy.metric("refused.tenant.response_bytes") >= 2);
}

impl Proxy {
    /// Goes on in ticks, with answers that limit requests and the bytes of responses to 1000.
    fn pass(&mut self, ticks: usize) {
        let limited = [Unit::Requests, Unit::ResponseBytes].map(number::from_unit);
        for _ in 0..ticks {
            self.tick(TICK);
            while let Some((token, call)) = self.process().take_call() {
                if call.method == "Release" {
                    self.worker.handle_answer(token, &[]);
                    continue;
                }
                let mut answer = v1::RefreshResponse::decode(&call.lend(1000.0)[..]).unwrap();
                for scope in &mut answer.scopes {
                    scope.limited = limited.to_vec();
                }
                self.worker.handle_answer(token, &answer.encode_to_vec());
            }
        }
    }
}

#[test]
fn a_groups_refusal_looks_as_the_rule_that_leads_there_says() {
    let proxy = Proxy::new(&rule_with(r#", "refusal": {"status": 503}"#, ""));
    let now = proxy.host().now();
    let denial = Denial {
        until: now,
        retry_at: None,
        limit: 0,
        period: None,
        without_lease: false,
        unit: Unit::Requests,
        need: Tokens::ONE,
        rate: Rate::ZERO,
        expected_rate: None,
        most: None,
        never: false,
        quota: None,
    };
    let refusal = Refusal::Denied {
        rule: RuleId(1),
        by: RuleId(0),
        denial,
    };
    let speaker = proxy.worker.rules.speaker(refusal);
    assert_eq!((speaker.rule, speaker.terms.status), ("group", 503));
}

#[test]
fn a_new_configuration_keeps_the_balances() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.admitted("acme", 300);
    let changed = one_rule(r#", "unknown": 1, "unknown_fields": "warn""#);
    proxy.configure(&changed);
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
}

#[test]
fn those_that_wait_are_told_by_their_own_configuration() {
    let mut proxy = Proxy::new(&one_rule(r#", "admitted_headers": ["ietf"]"#));
    let other = one_rule(r#", "admitted_headers": ["draft03"]"#);
    assert_eq!(proxy.of("acme"), Decision::Hold);
    let held = proxy.streams;
    proxy.worker.configure(&other, &InUse::default()).unwrap();
    proxy.tick(Duration::from_millis(1));
    proxy.answer(100.0);
    assert!(proxy.noted(held, "ratelimit").is_some());
    assert_eq!(proxy.noted(held, "x_ratelimit_remaining"), None);
}
