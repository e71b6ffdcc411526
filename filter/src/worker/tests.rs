use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use tollgate_core::client::Policy;
use tollgate_engine::Denial;
use tollgate_engine::codec::{self, DirtyQueue};

use super::*;
use crate::fake::{Fake, Process};

mod clocks;
mod conditions;
mod epochs;
mod final_cost;
mod limit_status;
mod modes;
mod pending;
mod permits;
mod process;
mod queues;
mod straight;
mod units;

const TICK: Duration = Duration::from_millis(20);

fn config(json: &str) -> Config {
    Config::parse(json.as_bytes()).unwrap().0
}

fn one_rule(fields: &str) -> Config {
    let json = format!(
        r#"{{"coordinator": "c", "scopes": [{{"name": "tenant", "key": {{"header": "x"}}}}] {fields}}}"#
    );
    config(&json)
}

struct Proxy {
    worker: Worker<Fake>,
    rules: Vec<BoundRule>,
    streams: u32,
}

impl Proxy {
    fn new(process: &Rc<Process>, id: u64, config: &Config) -> Self {
        let identity = Identity {
            worker: id,
            node: "node".to_owned(),
            process: id.into(),
        };
        let mut worker = Worker::new(Fake::new(process), identity, config);
        let rules = worker.configure(config).unwrap();
        Self {
            worker,
            rules,
            streams: 100 * id as u32,
        }
    }

    fn host(&self) -> &Fake {
        &self.worker.host
    }

    /// Decides on a request; one that waits for its turn is held as one that waits for a lease is.
    fn request(&mut self, headers: &[(&str, &str)]) -> Decision {
        self.streams += 1;
        self.host().set_headers(headers);
        match self.worker.admit(&self.rules, self.streams) {
            Decision::Queue(_) => Decision::Hold,
            decision => decision,
        }
    }

    fn of(&mut self, tenant: &str) -> Decision {
        self.request(&[("x", tenant)])
    }

    /// Returns the number of `requests` that go on at once.
    fn admitted(&mut self, tenant: &str, requests: usize) -> usize {
        (0..requests)
            .filter(|_| self.of(tenant) == Decision::Admit)
            .count()
    }

    fn tick(&mut self, after: Duration) {
        self.host().process.advance(after);
        self.worker.handle_tick();
    }

    /// Answers every call that is open with `capacity`.
    fn answer(&mut self, capacity: f64) {
        while let Some((token, call)) = self.host().process.take_call() {
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
}

fn denial(decision: Decision) -> Denial {
    match decision {
        Decision::Deny(Refusal::Denied { denial, .. }) => denial,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_lease_is_enforced_and_the_pause_is_true() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    let burst = proxy.admitted("acme", 300);
    assert!(burst <= 100, "{burst}");
    let denial = denial(proxy.of("acme"));
    let pause = denial
        .retry_at
        .unwrap()
        .saturating_since(proxy.host().now());
    assert!(
        pause > Duration::ZERO && pause <= Duration::from_millis(10),
        "{pause:?}"
    );
    proxy
        .host()
        .process
        .advance(pause - Duration::from_nanos(1));
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    proxy.host().process.advance(Duration::from_nanos(1));
    assert_eq!(proxy.of("acme"), Decision::Admit);
}

#[test]
fn one_second_of_overload_admits_the_rate() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.admitted("acme", 300);
    let mut passed = 0;
    for _ in 0..1000 {
        proxy.host().process.advance(Duration::from_millis(1));
        passed += proxy.admitted("acme", 3);
        if passed % 20 == 0 {
            proxy.tick(Duration::ZERO);
            proxy.answer(100.0);
        }
    }
    assert!((95..=105).contains(&passed), "{passed}");
}

#[test]
fn the_slab_path_reads_no_shared_data() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.lease("acme", 1_000_000.0);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    proxy.host().shared_data_fails.set(true);
    assert_eq!(proxy.admitted("acme", 1000), 1000);
}

#[test]
fn missing_keys_follow_the_rule() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "a", "key": {"header": "x"}, "missing": "skip"},
        {"name": "b", "key": {"header": "y"}, "missing": "deny"},
        {"name": "c", "key": {"header": "z"}, "missing": {"default": "nobody"}}]}"#;
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config(json));
    let refused = proxy.request(&[("x", "1"), ("z", "1")]);
    assert_eq!(
        refused,
        Decision::Deny(Refusal::Missing { rule: RuleId(1) })
    );
    for missing in ["", "  "] {
        let refused = proxy.request(&[("y", missing)]);
        assert_eq!(
            refused,
            Decision::Deny(Refusal::Missing { rule: RuleId(1) })
        );
    }
    for unusable in ["a\nb", &"k".repeat(201)] {
        let refused = proxy.request(&[("y", unusable)]);
        assert_eq!(
            refused,
            Decision::Deny(Refusal::Missing { rule: RuleId(1) })
        );
    }
    assert_eq!(proxy.request(&[("y", "1")]), Decision::Hold);
    proxy.tick(TICK);
    let (_, call) = process.take_call().unwrap();
    let scopes: Vec<String> = call.refresh().scopes.into_iter().map(|s| s.scope).collect();
    assert_eq!(scopes, ["b/1", "c/nobody"]);
    assert_eq!(process.metric("refused.b.missing"), 5);
}

#[test]
fn all_buckets_or_none_are_charged_and_the_strictest_is_named() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "safe_capacity": 5},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 2}]}"#;
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config(json));
    let both = [("x", "1"), ("y", "1")];
    let passed = (0..10)
        .filter(|_| proxy.request(&both) == Decision::Admit)
        .count();
    assert_eq!(passed, 2);
    let Decision::Deny(
        refusal @ Refusal::Denied {
            rule: RuleId(1), ..
        },
    ) = proxy.request(&both)
    else {
        panic!("b refuses");
    };
    assert_eq!(proxy.worker.refuser(refusal).rule, "b");
    // The three requests that b refused cost a nothing.
    let left = (0..10)
        .filter(|n| proxy.request(&[("x", "1"), ("y", &format!("other-{n}"))]) == Decision::Admit);
    assert_eq!(left.count(), 3);
}

#[test]
fn a_refused_scope_does_not_go_to_shared_data_for_each_request() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(r#", "first_lease_wait_ms": 0"#));
    proxy.admitted("acme", 50);
    let writes = process.writes.get();
    assert_eq!(proxy.admitted("acme", 1000), 0);
    assert!(process.writes.get() - writes <= 1);
}

#[test]
fn more_names_than_slots_share_the_overflow() {
    let process = Process::new();
    let fields = r#", "max_scopes": 50, "first_lease_wait_ms": 0"#;
    let mut proxy = Proxy::new(&process, 1, &one_rule(fields));
    for n in 0..20_000 {
        proxy.of(&format!("stranger-{n}"));
        if n % 100 == 0 {
            proxy.tick(TICK);
            proxy.answer(1.0);
        }
    }
    proxy.tick(TICK);
    let remembered = proxy.worker.engine.scopes_of(RuleId(0));
    assert!(remembered <= 51, "{remembered}");
    assert!(process.keys().len() <= 60, "{}", process.keys().len());
    assert!(process.metric("overflow") > 10_000);
    let logged = |text: &str| {
        process
            .logs
            .borrow()
            .iter()
            .filter(|(_, line)| line.contains(text))
            .count()
    };
    assert_eq!(logged("more scopes than max_scopes"), 1);
}

#[test]
fn strangers_leave_and_make_room_for_a_newcomer() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(r#", "max_scopes": 20"#));
    for n in 0..40 {
        proxy.of(&format!("stranger-{n}"));
    }
    for _ in 0..(90_000 / 20) {
        proxy.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            if call.method == "Refresh" {
                proxy.worker.handle_answer(token, &call.lend(1.0));
            }
        }
    }
    proxy.lease("newcomer", 100.0);
    assert!(proxy.worker.engine.scope(RuleId(0), b"newcomer").is_some());
}

#[test]
fn a_new_configuration_keeps_the_balances() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.admitted("acme", 300);
    let changed = one_rule(r#", "unknown": 1"#);
    proxy.rules = proxy.worker.configure(&changed).unwrap();
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
}

#[test]
fn when_the_host_fails_the_configuration_decides() {
    let rows = [
        ("", Decision::Admit),
        (
            r#", "host_failure": "closed""#,
            Decision::Deny(Refusal::HostFailure),
        ),
    ];
    for (fields, want) in rows {
        let process = Process::new();
        let mut proxy = Proxy::new(&process, 1, &one_rule(fields));
        proxy.host().shared_data_fails.set(true);
        for _ in 0..100 {
            assert_eq!(proxy.of("acme"), want);
            proxy.worker.handle_tick();
        }
        assert_eq!(process.logs.borrow().len(), 1);
        proxy.host().shared_data_fails.set(false);
        assert_eq!(proxy.of("acme"), Decision::Hold);
    }
}

#[test]
fn rules_keep_apart_however_many_names_there_have_been() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    let rule = |n| {
        let json = format!(
            r#"{{"coordinator": "c", "scopes": [{{"name": "r{n}", "key": {{"header": "x"}}}}]}}"#
        );
        config(&json)
    };
    for n in 0..300 {
        proxy.rules = proxy.worker.configure(&rule(n)).unwrap();
    }
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(1));
    let (_, call) = proxy.host().process.take_call().unwrap();
    assert_eq!(call.refresh().scopes[0].scope, "r299/acme");
}
