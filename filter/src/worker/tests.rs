use core::time::Duration;
use std::rc::Rc;

use super::*;
use crate::fake::{Fake, Process};

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
        let mut worker = Worker::new(Fake::new(process), id, "node".to_owned(), config.clone());
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

    fn request(&mut self, headers: &[(&str, &str)]) -> Verdict {
        self.streams += 1;
        self.host().set_headers(headers);
        self.worker.admit(&self.rules, self.streams)
    }

    fn of(&mut self, tenant: &str) -> Verdict {
        self.request(&[("x", tenant)])
    }

    /// How many of `requests` go on at once.
    fn admitted(&mut self, tenant: &str, requests: usize) -> usize {
        (0..requests)
            .filter(|_| self.of(tenant) == Verdict::Pass)
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
        assert_eq!(self.of(tenant), Verdict::Hold);
        self.tick(Duration::from_millis(1));
        self.answer(capacity);
        assert_eq!(self.host().resumed.borrow_mut().pop(), Some(self.streams));
    }
}

fn denial(verdict: Verdict) -> crate::scopes::Denial {
    match verdict {
        Verdict::Refuse(Refusal::Denied { denial, .. }) => denial,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_request_is_held_until_the_answer_and_then_goes_on() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Verdict::Hold);
    assert_eq!(proxy.of("acme"), Verdict::Hold);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(1));
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(5));

    let (token, call) = proxy.host().process.take_call().unwrap();
    let asked = call.refresh();
    assert!(asked.client_id.starts_with("node/"), "{}", asked.client_id);
    assert_eq!(asked.scopes.len(), 1);
    assert_eq!(asked.scopes[0].scope, "tenant/acme");
    assert!(asked.scopes[0].units[0].wants > 0.0);
    proxy.worker.handle_answer(token, &call.lend(100.0));
    assert_eq!(*proxy.host().resumed.borrow(), [101, 102]);
    assert_eq!(proxy.worker.tick_period(), TICK);
    assert_eq!(proxy.of("acme"), Verdict::Pass);
}

#[test]
fn scopes_that_turn_up_together_are_asked_for_in_one_call() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for tenant in ["a", "b", "c"] {
        assert_eq!(proxy.of(tenant), Verdict::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.host().process.calls.borrow().len(), 1);
    let (_, call) = proxy.host().process.take_call().unwrap();
    assert_eq!(call.refresh().scopes.len(), 3);
}

#[test]
fn without_an_answer_the_held_fall_to_the_safe_capacity() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for _ in 0..15 {
        assert_eq!(proxy.of("acme"), Verdict::Hold);
    }
    proxy.tick(Duration::from_millis(49));
    assert!(proxy.host().resumed.borrow().is_empty());
    proxy.tick(Duration::from_millis(1));
    // Ten are a second's worth of the default safe capacity.
    assert_eq!(proxy.host().resumed.borrow().len(), 10);
    let replies = proxy.host().replies.borrow();
    assert_eq!(replies.len(), 5);
    assert!(replies.iter().all(|(_, status, headers)| {
        *status == 429 && headers["tollgate-reason"] == "tenant/requests"
    }));
}

#[test]
fn a_call_that_fails_at_once_lets_the_held_go_at_once() {
    let process = Process::new();
    process.calls_fail.set(true);
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Verdict::Hold);
    proxy.tick(Duration::from_millis(1));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    proxy.tick(TICK);
    assert!(process.metric("refresh_errors") >= 1);
}

#[test]
fn a_failure_status_lets_the_held_go() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    assert_eq!(proxy.of("acme"), Verdict::Hold);
    proxy.tick(Duration::from_millis(1));
    let (token, _) = proxy.host().process.take_call().unwrap();
    proxy.worker.handle_failure(token, 14);
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
}

#[test]
fn answers_that_make_no_sense_count_as_failures() {
    for answer in [&b"\xff\xff\xff"[..], b"", b"\x08\x01"] {
        let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
        assert_eq!(proxy.of("acme"), Verdict::Hold);
        proxy.tick(Duration::from_millis(1));
        let (token, _) = proxy.host().process.take_call().unwrap();
        proxy.worker.handle_answer(token, answer);
        assert_eq!(*proxy.host().resumed.borrow(), [101], "{answer:?}");
        // Unknown tokens are nobody's.
        proxy.worker.handle_answer(token, answer);
        proxy.worker.handle_failure(77, 14);
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
    assert!(matches!(proxy.of("acme"), Verdict::Refuse(_)));
    proxy.host().process.advance(Duration::from_nanos(1));
    assert_eq!(proxy.of("acme"), Verdict::Pass);
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
fn two_workers_share_one_lease() {
    let process = Process::new();
    let config = one_rule("");
    let mut first = Proxy::new(&process, 1, &config);
    let mut second = Proxy::new(&process, 2, &config);
    first.lease("acme", 100.0);
    assert_eq!(second.of("acme"), Verdict::Pass);
    let burst = 2 + first.admitted("acme", 200) + second.admitted("acme", 200);
    assert!((95..=100).contains(&burst), "{burst}");
    let mut passed = 0;
    for _ in 0..1000 {
        process.advance(Duration::from_millis(1));
        passed += first.admitted("acme", 2) + second.admitted("acme", 2);
    }
    assert!((95..=105).contains(&passed), "{passed}");
}

#[test]
fn the_slab_path_reads_no_shared_data() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.lease("acme", 1_000_000.0);
    assert_eq!(proxy.of("acme"), Verdict::Pass);
    proxy.host().shared_data_fails.set(true);
    assert_eq!(proxy.admitted("acme", 1000), 1000);
}

#[test]
fn a_slab_that_is_not_used_goes_back() {
    let process = Process::new();
    let config = one_rule("");
    let mut first = Proxy::new(&process, 1, &config);
    let mut second = Proxy::new(&process, 2, &config);
    first.lease("acme", 1000.0);
    // The first worker keeps most of a slab; ticks bring it back to where the second finds it.
    let taken = second.admitted("acme", 2000);
    assert!(taken < 999, "{taken}");
    for _ in 0..10 {
        first.worker.handle_tick();
        process.advance(TICK);
    }
    let entry = first.worker.tables[0].scopes.find(b"acme").unwrap();
    assert_eq!(
        first.worker.tables[0]
            .scopes
            .get(entry)
            .unwrap()
            .slab
            .left(),
        Tokens::ZERO
    );
}

#[test]
fn demand_that_lives_on_slabs_is_told_to_the_coordinator() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 10_000.0);
    let mut told = 0.0;
    for _ in 0..100 {
        proxy.admitted("acme", 20);
        proxy.tick(TICK);
        while let Some((token, call)) = proxy.host().process.take_call() {
            told = call.refresh().scopes[0].units[0].wants;
            let answer = call.lend(10_000.0);
            proxy.worker.handle_answer(token, &answer);
        }
    }
    assert!((900.0..=1100.0).contains(&told), "{told}");
}

#[test]
fn a_scope_that_nobody_wants_is_released() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    let mut released = None;
    for _ in 0..1000 {
        proxy.tick(TICK);
        while let Some((token, call)) = proxy.host().process.take_call() {
            match call.method.as_str() {
                "Refresh" => proxy.worker.handle_answer(token, &call.lend(100.0)),
                _ => released = Some(call.release()),
            }
        }
    }
    assert_eq!(released.unwrap().resources[0].scope, "tenant/acme");
    assert_eq!(proxy.host().process.metric("slots_used"), 0);
    // The next request starts anew.
    assert_eq!(proxy.of("acme"), Verdict::Hold);
}

#[test]
fn one_worker_refreshes_for_all_and_another_takes_over_when_it_dies() {
    let process = Process::new();
    let config = one_rule("");
    let mut first = Proxy::new(&process, 1, &config);
    let mut second = Proxy::new(&process, 2, &config);
    first.tick(TICK);
    second.lease("acme", 100.0);
    let mut by = (0, 0);
    for _ in 0..200 {
        second.of("acme");
        first.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            by.0 += 1;
            first.worker.handle_answer(token, &call.lend(100.0));
        }
        second.tick(Duration::ZERO);
        by.1 += process.calls.borrow().len();
        second.answer(100.0);
    }
    assert!(by.0 >= 3 && by.1 == 0, "{by:?}");
    let mut after = 0;
    for _ in 0..200 {
        second.of("acme");
        second.tick(TICK);
        after += process.calls.borrow().len();
        second.answer(100.0);
    }
    assert!(after >= 3, "{after}");
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
    assert_eq!(refused, Verdict::Refuse(Refusal::Missing { rule: 1 }));
    for unusable in ["", "  ", "a\nb", &"k".repeat(201)] {
        let refused = proxy.request(&[("y", unusable)]);
        assert_eq!(
            refused,
            Verdict::Refuse(Refusal::Missing { rule: 1 }),
            "{unusable:?}"
        );
    }
    assert_eq!(proxy.request(&[("y", "1")]), Verdict::Hold);
    proxy.tick(TICK);
    let (_, call) = process.take_call().unwrap();
    let scopes: Vec<String> = call.refresh().scopes.into_iter().map(|s| s.scope).collect();
    assert_eq!(scopes, ["b/1", "c/nobody"]);
    assert_eq!(process.metric("refused.b.missing"), 5);
}

#[test]
fn all_buckets_or_none_are_charged_and_the_strictest_is_named() {
    let json = r#"{"coordinator": "c", "cold_start_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "safe_capacity": 5},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 2}]}"#;
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config(json));
    let both = [("x", "1"), ("y", "1")];
    let passed = (0..10)
        .filter(|_| proxy.request(&both) == Verdict::Pass)
        .count();
    assert_eq!(passed, 2);
    let Verdict::Refuse(refusal @ Refusal::Denied { rule: 1, .. }) = proxy.request(&both) else {
        panic!("b refuses");
    };
    assert_eq!(proxy.worker.names(&proxy.rules, refusal), ("b", "y"));
    // The three requests that b refused cost a nothing.
    let left = (0..10)
        .filter(|n| proxy.request(&[("x", "1"), ("y", &format!("other-{n}"))]) == Verdict::Pass);
    assert_eq!(left.count(), 3);
}

#[test]
fn a_refused_scope_does_not_go_to_shared_data_for_each_request() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(r#", "cold_start_wait_ms": 0"#));
    proxy.admitted("acme", 50);
    let writes = process.writes.get();
    assert_eq!(proxy.admitted("acme", 1000), 0);
    assert!(process.writes.get() - writes <= 1);
}

#[test]
fn more_than_max_held_are_decided_at_the_safe_capacity_at_once() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(r#", "max_held": 3"#));
    let verdicts: Vec<Verdict> = (0..20).map(|_| proxy.of("acme")).collect();
    assert_eq!(verdicts.iter().filter(|v| **v == Verdict::Hold).count(), 3);
    let passed = verdicts.iter().filter(|v| **v == Verdict::Pass).count();
    assert!((7..=11).contains(&passed), "{passed}");
    let mut none = Proxy::new(&Process::new(), 1, &one_rule(r#", "max_held": 0"#));
    assert_eq!(none.of("acme"), Verdict::Pass);
    none.tick(Duration::from_millis(1));
    assert_eq!(none.host().process.calls.borrow().len(), 1);
}

#[test]
fn a_held_stream_that_ends_is_forgotten() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.of("acme");
    proxy.of("acme");
    proxy.worker.forget(101);
    // The host may know of an end before the filter does.
    proxy.of("acme");
    proxy.host().gone.borrow_mut().push(103);
    proxy.tick(Duration::from_millis(1));
    proxy.answer(100.0);
    assert_eq!(*proxy.host().resumed.borrow(), [102]);
}

#[test]
fn many_streams_are_released_in_order_and_in_small_parts() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    for _ in 0..100 {
        assert_eq!(proxy.of("acme"), Verdict::Hold);
    }
    proxy.tick(Duration::from_millis(1));
    proxy.answer(1_000_000.0);
    assert_eq!(proxy.host().resumed.borrow().len(), 32);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(1));
    for _ in 0..3 {
        proxy.tick(Duration::from_millis(1));
    }
    assert_eq!(
        *proxy.host().resumed.borrow(),
        (101..=200).collect::<Vec<_>>()
    );
    assert_eq!(proxy.worker.tick_period(), TICK);
}

#[test]
fn held_grpc_requests_are_refused_in_grpc() {
    let config = one_rule(r#", "no_lease": "pessimistic""#);
    let mut proxy = Proxy::new(&Process::new(), 1, &config);
    let headers = [("x", "acme"), ("content-type", "application/grpc+proto")];
    assert_eq!(proxy.request(&headers), Verdict::Hold);
    assert_eq!(proxy.of("acme"), Verdict::Hold);
    proxy.tick(Duration::from_millis(60));
    let statuses: Vec<u32> = proxy
        .host()
        .replies
        .borrow()
        .iter()
        .map(|reply| reply.1)
        .collect();
    assert_eq!(statuses, [8, 429]);
}

#[test]
fn more_names_than_slots_share_the_overflow() {
    let process = Process::new();
    let fields = r#", "max_scopes": 50, "cold_start_wait_ms": 0"#;
    let mut proxy = Proxy::new(&process, 1, &one_rule(fields));
    for n in 0..20_000 {
        proxy.of(&format!("stranger-{n}"));
        if n % 100 == 0 {
            proxy.tick(TICK);
            proxy.answer(1.0);
        }
    }
    proxy.tick(TICK);
    let remembered = proxy.worker.tables[0].scopes.len();
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
    assert_eq!(
        proxy.worker.queue.len(),
        proxy.worker.queue.capacity().min(proxy.worker.queue.len())
    );
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
    assert!(proxy.worker.tables[0].scopes.find(b"newcomer").is_some());
}

#[test]
fn a_new_configuration_keeps_the_balances() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.admitted("acme", 300);
    let changed = one_rule(r#", "tick_ms": 40, "unknown": 1"#);
    proxy.rules = proxy.worker.configure(&changed).unwrap();
    assert!(matches!(proxy.of("acme"), Verdict::Refuse(_)));
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(40));
}

#[test]
fn a_warning_about_the_configuration_is_given_by_one_worker() {
    let process = Process::new();
    let config = one_rule("");
    let mut proxies: Vec<Proxy> = (1..=3)
        .map(|id| Proxy::new(&process, id, &config))
        .collect();
    for proxy in &mut proxies {
        proxy.worker.warn_once("look".to_owned());
    }
    for _ in 0..100 {
        for proxy in &mut proxies {
            proxy.tick(Duration::from_millis(7));
        }
    }
    assert_eq!(
        process
            .logs
            .borrow()
            .iter()
            .filter(|(_, line)| line == "look")
            .count(),
        1
    );
}

#[test]
fn when_the_host_fails_the_configuration_decides() {
    let rows = [
        ("", Verdict::Pass),
        (
            r#", "host_failure": "closed""#,
            Verdict::Refuse(Refusal::HostFailure),
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
        assert_eq!(proxy.of("acme"), Verdict::Hold);
    }
}

#[test]
fn workers_are_counted_while_they_live_and_serve() {
    let process = Process::new();
    let config = one_rule("");
    let mut proxies: Vec<Proxy> = (1..=3)
        .map(|id| Proxy::new(&process, id, &config))
        .collect();
    // The third has a VM but no requests, like the one of Envoy's main thread.
    proxies[0].of("acme");
    proxies[1].of("acme");
    for _ in 0..100 {
        for proxy in &mut proxies {
            proxy.tick(TICK);
        }
    }
    assert_eq!(proxies[0].worker.workers, 2);
    for _ in 0..250 {
        proxies[0].tick(TICK);
    }
    assert_eq!(proxies[0].worker.workers, 1);
}

#[test]
fn a_worker_that_takes_the_pen_finds_what_is_due_in_the_slots() {
    let process = Process::new();
    let config = one_rule("");
    let mut first = Proxy::new(&process, 1, &config);
    for n in 0..700 {
        first.of(&format!("t{n}"));
    }
    first.tick(Duration::from_millis(1));
    first.answer(10.0);
    drop(first);
    // Nobody tells the second of those slots; it looks, in parts.
    let mut second = Proxy::new(&process, 2, &config);
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..200 {
        second.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            if call.method == "Refresh" {
                asked.extend(call.refresh().scopes.into_iter().map(|scope| scope.scope));
            } else {
                asked.extend(call.release().resources.into_iter().map(|r| r.scope));
            }
            second.worker.handle_failure(token, 14);
        }
    }
    assert_eq!(asked.len(), 700);
}
