//! Requests that wait for their turn.

use super::units::{Terms, terms};
use super::*;
use prost::Message;
use tollgate_core::lease::Unit;
use tollgate_proto::v1;

const MS: Duration = Duration::from_millis(1);

/// A rule that makes requests wait, with more fields of its own and of all.
fn shaped(rule: &str, root: &str) -> Config {
    let rule = format!(r#""key": {{"header": "x"}}, "on_limit": "shape" {rule}"#);
    config(&format!(
        r#"{{"coordinator": "c", "scopes": [{{"name": "tenant", {rule}}}] {root}}}"#
    ))
}

/// A worker that has a lease of `capacity` for acme and has spent all tokens.
fn spent(process: &Rc<Process>, config: &Config, capacity: f64) -> Proxy {
    let mut proxy = Proxy::new(process, 1, config);
    proxy.lease("acme", capacity);
    let hasty = [("x", "acme"), ("tollgate-max-wait-ms", "0")];
    while proxy.request(&hasty) == Decision::Admit {}
    proxy
}

impl Proxy {
    /// The contexts of `requests` that all wait.
    fn waiting(&mut self, tenant: &str, requests: usize) -> Vec<u32> {
        let context = |_| {
            assert_eq!(self.of(tenant), Decision::Hold);
            self.streams
        };
        (0..requests).map(context).collect()
    }

    /// Streams that have gone on since the last time.
    fn gone(&self) -> Vec<u32> {
        self.host().resumed.borrow_mut().drain(..).collect()
    }

    /// Runs ticks of a millisecond; returns the streams that go on, and in which.
    fn run(&mut self, millis: u64) -> Vec<(u64, u32)> {
        let mut gone = Vec::new();
        for ms in 1..=millis {
            self.tick(MS);
            gone.extend(self.gone().into_iter().map(|context| (ms, context)));
        }
        gone
    }

    fn pause_told(&self, decision: Decision) -> Duration {
        let at = denial(decision).retry_at.expect("a pause");
        at.saturating_since(self.host().now())
    }
}

#[test]
fn those_beyond_the_limit_go_on_in_order_when_there_are_tokens() {
    let process = Process::new();
    let mut proxy = spent(&process, &shaped("", ""), 100.0);
    let waiting = proxy.waiting("acme", 5);
    assert_eq!(proxy.worker.tick_period(), Duration::from_millis(10));
    let gone = proxy.run(60);
    let want: Vec<(u64, u32)> = (1..).map(|n| n * 10).zip(waiting.clone()).collect();
    assert_eq!(gone, want);
    assert_eq!(proxy.worker.tick_period(), TICK);
    {
        let notes = proxy.host().notes.borrow();
        let waited = |context| notes[&(context, "tollgate.waited_ms".to_owned())].as_str();
        assert_eq!((waited(waiting[0]), waited(waiting[4])), ("10", "50"));
    }
    proxy.tick(TICK);
    assert_eq!(process.metric("waited"), 5);
    assert_eq!(process.metric("wait_ms"), 50);
    assert!(proxy.worker.engine.queued() == 0);
    // The one that would not wait is the only one that was refused.
    assert_eq!(process.metric("refused.tenant.requests"), 1);
}

#[test]
fn who_would_wait_too_long_is_refused_at_once_and_told_how_long() {
    let process = Process::new();
    let mut proxy = spent(&process, &shaped("", ""), 100.0);
    proxy.waiting("acme", 100);
    let refused = proxy.of("acme");
    let pause = proxy.pause_told(refused);
    assert_eq!(pause.as_nanos().div_ceil(1_000_000), 1010, "{pause:?}");
    for (name, value) in [("tollgate-max-wait-ms", "999"), ("grpc-timeout", "1S")] {
        let refused = proxy.request(&[("x", "acme"), (name, value)]);
        assert!(matches!(refused, Decision::Deny(_)), "{name}");
    }
    proxy.tick(TICK);
    assert_eq!(process.metric("wait_too_long"), 4);
    assert_eq!(process.metric("refused.tenant.requests"), 4);
    assert_eq!(proxy.worker.engine.queued(), 98);
    let gone = proxy.run(980).len();
    assert_eq!(gone, 100, "nobody was let down");
}

#[test]
fn a_clients_deadline_counts_four_fifths() {
    let mut proxy = spent(&Process::new(), &shaped("", ""), 2.0);
    for (timeout, holds) in [("624m", false), ("626m", true)] {
        let decision = proxy.request(&[("x", "acme"), ("grpc-timeout", timeout)]);
        assert_eq!(decision == Decision::Hold, holds, "{timeout}");
    }
}

#[test]
fn who_leaves_costs_nothing_and_the_others_go_sooner() {
    let mut proxy = spent(&Process::new(), &shaped("", ""), 100.0);
    let [a, b, c, d] = proxy.waiting("acme", 4)[..] else {
        panic!()
    };
    proxy.worker.forget(b);
    proxy.worker.forget(b);
    // Envoy may know of an end before the filter does.
    proxy.host().gone.borrow_mut().push(c);
    assert_eq!(proxy.run(60), [(10, a), (30, d)]);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    proxy.waiting("beta", 1);
}

/// Those that are held for the first answer go on the next tick after it, or after the wait for it.
#[test]
fn nobody_overtakes_those_who_are_held() {
    let config = shaped(
        r#", "safe_capacity": 1000"#,
        r#", "first_lease_wait_ms": 50"#,
    );
    for answered in [false, true] {
        let mut proxy = Proxy::new(&Process::new(), 1, &config);
        let mut held = proxy.waiting("acme", 40);
        match answered {
            true => {
                proxy.tick(MS);
                proxy.host().process.advance(MS);
                proxy.answer(1000.0);
            }
            false => proxy.host().process.advance(50 * MS),
        }
        held.extend(proxy.waiting("acme", 1));
        let gone = proxy.run(1000);
        let gone: Vec<u32> = gone.into_iter().map(|(_, context)| context).collect();
        assert_eq!(gone, held, "answered: {answered}");
    }
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let mut proxy = spent(&Process::new(), &shaped("", ""), 100.0);
    let at = |proxy: &mut Proxy, cost| {
        proxy.streams += 1;
        proxy.host().set_headers(&[("x", "acme")]);
        let decision = proxy
            .worker
            .admit_at(&proxy.rules, proxy.streams, Tokens::from_whole(cost));
        assert!(matches!(decision, Decision::Queue(_)), "{decision:?}");
        proxy.streams
    };
    let dear = at(&mut proxy, 3);
    assert!(proxy.run(15).is_empty());
    // There is a token for this one, but it is not its turn.
    let cheap = at(&mut proxy, 1);
    assert_eq!(proxy.run(40), [(15, dear), (25, cheap)]);
}

#[test]
fn members_of_a_group_take_turns() {
    let all = [
        Terms {
            canonical: Some("group/gold"),
            ..terms("tenant/", &[])
        },
        terms("group/", &[(Unit::Requests, 100.0)]),
    ];
    let mut proxy = Proxy::new(&Process::new(), 1, &shaped("", ""));
    for tenant in ["a", "b", "c"] {
        proxy.meet(tenant, &all);
    }
    let hasty = [("x", "a"), ("tollgate-max-wait-ms", "0")];
    while proxy.request(&hasty) == Decision::Admit {}
    let (a, b, c) = (
        proxy.waiting("a", 5),
        proxy.waiting("b", 2),
        proxy.waiting("c", 1),
    );
    let order: Vec<u32> = proxy.run(100).into_iter().map(|gone| gone.1).collect();
    assert_eq!(order, [a[0], b[0], c[0], a[1], b[1], a[2], a[3], a[4]]);
    let refusal = loop {
        if let Decision::Deny(refusal) = proxy.request(&hasty) {
            break refusal;
        }
    };
    assert_eq!(proxy.worker.refuser(refusal).rule, "group");
}

#[test]
fn a_raised_limit_lets_all_go_in_every_worker() {
    let process = Process::new();
    let config = shaped(r#", "max_wait_ms": 30000"#, "");
    let mut one = spent(&process, &config, 1.0);
    let mut two = Proxy::new(&process, 2, &config);
    let (first, second) = (one.waiting("acme", 5), two.waiting("acme", 3));
    process.calls.borrow_mut().clear();
    for _ in 0..100 {
        one.tick(TICK);
        if !process.calls.borrow().is_empty() {
            break;
        }
    }
    let late = first.len() - one.gone().len();
    one.answer(10_000.0);
    one.tick(MS);
    assert_eq!(one.gone().len(), late);
    // The other worker sees it on its next tick.
    two.tick(TICK);
    assert_eq!(two.gone(), second);
}

#[test]
fn a_lowered_limit_refuses_at_the_deadline_with_the_reason() {
    let process = Process::new();
    let mut proxy = spent(&process, &shaped(r#", "max_wait_ms": 4000"#, ""), 1.0);
    let waiting = proxy.waiting("acme", 2);
    let grpc = [
        ("x", "acme"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", "3800m"),
    ];
    assert_eq!(proxy.request(&grpc), Decision::Hold);
    process.calls.borrow_mut().clear();
    let mut passed = 0;
    while process.calls.borrow().is_empty() {
        proxy.tick(MS);
        passed += 1;
    }
    proxy.answer(0.0);
    let lucky = proxy.gone().len();
    // Four fifths of its time were waiting: it is told that, rather than running into its timeout.
    proxy.run(3040 - 1 - passed);
    assert_eq!(proxy.host().replies.borrow().len(), 0);
    proxy.run(1);
    assert_eq!(proxy.host().replies.borrow_mut().pop().unwrap().1, 8);
    proxy.run(959);
    assert_eq!(proxy.host().replies.borrow().len(), 0);
    proxy.run(1);
    let replies = proxy.host().replies.borrow().clone();
    assert_eq!(replies.len(), waiting.len() - lucky);
    for (context, status, headers) in &replies {
        assert!(waiting.contains(context));
        let reason = headers["tollgate-reason"].as_str();
        assert_eq!((*status, reason), (429, "tenant/requests"));
        assert!(!headers.contains_key("tollgate-pause-ms"), "nobody knows");
        let notes = proxy.host().notes.borrow();
        assert_eq!(notes[&(*context, "tollgate.waited_ms".to_owned())], "4000");
    }
    assert!(proxy.gone().is_empty());
    proxy.tick(TICK);
    assert_eq!(process.metric("wait_timeouts"), replies.len() as i64 + 1);
    assert!(proxy.worker.engine.queued() == 0);
}

#[test]
fn only_so_many_wait_of_one_key_and_of_all() {
    let process = Process::new();
    let config = shaped(r#", "max_waiting": 3"#, r#", "max_waiting": 4"#);
    let mut proxy = spent(&process, &config, 100.0);
    proxy.lease("beta", 20.0);
    while proxy.request(&[("x", "beta"), ("tollgate-max-wait-ms", "0")]) == Decision::Admit {}
    let waiting = proxy.waiting("acme", 3);
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    let beta = proxy.waiting("beta", 1);
    assert!(matches!(proxy.of("beta"), Decision::Deny(_)));
    let gone: Vec<u32> = proxy.run(30).into_iter().map(|gone| gone.1).collect();
    assert_eq!(gone, waiting);
    proxy.worker.forget(beta[0]);
    proxy.tick(TICK);
    assert_eq!(process.metric("wait_full"), 2);
    assert!(!proxy.worker.is_hurried());
    let none = shaped("", r#", "max_waiting": 0"#);
    let mut proxy = spent(&Process::new(), &none, 100.0);
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
}

#[test]
fn a_rule_that_only_pretends_lets_nobody_wait() {
    let config = shaped(
        r#", "enforced_percent": 0"#,
        r#", "first_lease_wait_ms": 0"#,
    );
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config);
    assert_eq!(proxy.admitted("acme", 50), 50);
    proxy.tick(TICK);
    assert_eq!(process.metric("shadowed.tenant.requests"), 40);
}

#[test]
fn switched_off_all_go_on_in_small_parts() {
    let mut proxy = spent(&Process::new(), &shaped("", ""), 100.0);
    let waiting = proxy.waiting("acme", 70);
    let off = shaped("", r#", "enabled": false"#);
    proxy.worker.configure(&off).unwrap();
    let gone = proxy.run(3);
    let order: Vec<u32> = gone.iter().map(|gone| gone.1).collect();
    assert_eq!(order, waiting);
    assert_eq!(gone.iter().filter(|(ms, _)| *ms == 1).count(), 32);
}

#[test]
fn who_is_short_elsewhere_at_its_turn_waits_there_in_the_order_of_arrival() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "safe_capacity": 5, "on_limit": "shape"},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 2, "on_limit": "shape"}]}"#;
    let process = Process::new();
    process.calls_fail.set(true);
    let mut proxy = Proxy::new(&process, 1, &config(json));
    let both = [("x", "1"), ("y", "1")];
    for _ in 0..2 {
        assert_eq!(proxy.request(&both), Decision::Admit);
    }
    assert_eq!(proxy.request(&both), Decision::Hold);
    let early = proxy.streams;
    let mut others = Vec::new();
    for n in 0..6 {
        let decision = proxy.request(&[("x", "1"), ("y", &format!("other-{n}"))]);
        assert_eq!(decision == Decision::Admit, n < 3, "{n}");
        others.push(proxy.streams);
    }
    // At 500 ms b has a token and a has none: what it gets at 600 ms is for the one that came first.
    let want = [
        (200, others[3]),
        (400, others[4]),
        (600, early),
        (800, others[5]),
    ];
    assert_eq!(proxy.run(900), want);
}

#[test]
fn requests_wait_for_permits() {
    let all = [terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::Concurrency, 4.0)],
    )];
    let mut proxy = Proxy::new(&Process::new(), 1, &shaped("", ""));
    proxy.meet("acme", &all);
    let begun = proxy.waiting_for_permits();
    assert_eq!(begun.len(), 4);
    let waiting = proxy.waiting("acme", 2);
    assert!(proxy.run(50).is_empty());
    proxy.worker.forget(begun[0]);
    let gone = proxy.run(10);
    assert_eq!(
        gone.iter().map(|gone| gone.1).collect::<Vec<_>>(),
        waiting[..1]
    );
    // The one that goes on holds the permit, and the other one is refused when its time is over.
    proxy.run(1000);
    assert_eq!(proxy.host().replies.borrow().len(), 1);
    proxy.worker.forget(waiting[0]);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(proxy.of("acme"), Decision::Hold);
}

impl Proxy {
    fn waiting_for_permits(&mut self) -> Vec<u32> {
        let hasty = [("x", "acme"), ("tollgate-max-wait-ms", "0")];
        let mut begun = Vec::new();
        while self.request(&hasty) == Decision::Admit {
            begun.push(self.streams);
        }
        begun
    }
}

#[test]
fn those_who_wait_are_wanted() {
    let process = Process::new();
    let mut proxy = spent(&process, &shaped("", ""), 100.0);
    proxy.waiting("acme", 95);
    let mut wants = 0.0;
    for _ in 0..45 {
        proxy.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            wants = call.refresh().scopes[0].units[0].wants;
            proxy.worker.handle_answer(token, &call.lend(100.0));
        }
    }
    // None has come for 0.9 s, but a hundred a second went.
    assert!(wants >= 80.0, "{wants}");
}

impl Proxy {
    /// Answers with `lease` of `capacity`, and asks to come back after `refresh_ms`.
    fn answer_in_part(&mut self, lease: f64, capacity: f64, refresh_ms: u64) {
        while let Some((token, call)) = self.host().process.take_call() {
            let mut message = v1::RefreshResponse::decode(&call.lend(lease)[..]).unwrap();
            for unit in &mut message.scopes[0].units {
                (unit.capacity, unit.refresh_interval_ms) = (capacity, refresh_ms);
            }
            self.worker.handle_answer(token, &message.encode_to_vec());
        }
    }
}

/// A tenant that has come last to a group that is all lent: 3 wait.
fn newcomer(process: &Rc<Process>, config: &Config) -> (Proxy, Vec<u32>) {
    let mut proxy = Proxy::new(process, 1, config);
    let mut waiting = proxy.waiting("acme", 1);
    proxy.tick(MS);
    proxy.answer_in_part(0.0, 200.0, 100);
    waiting.extend(proxy.waiting("acme", 2));
    assert!(proxy.gone().is_empty());
    assert_eq!(proxy.worker.engine.queued(), 3);
    (proxy, waiting)
}

#[test]
fn a_newcomer_waits_for_its_share() {
    let process = Process::new();
    let (mut proxy, waiting) = newcomer(&process, &shaped("", ""));
    let hasty = proxy.request(&[("x", "acme"), ("tollgate-max-wait-ms", "0")]);
    assert_eq!(denial(hasty).retry_at, None, "nobody knows");
    for lease in [0.0, 0.0, 2.0] {
        assert!(proxy.run(105).is_empty());
        proxy.answer_in_part(lease, 200.0, 100);
    }
    // At two in a second these would not be in time, but there is more to come.
    let more = proxy.waiting("acme", 40);
    assert!(proxy.run(105).is_empty());
    proxy.answer_in_part(40.0, 200.0, 1000);
    let gone: Vec<u32> = proxy.run(550).into_iter().map(|gone| gone.1).collect();
    assert!((20..=23).contains(&gone.len()), "{}", gone.len());
    assert_eq!(gone, [&waiting[..], &more[..]].concat()[..gone.len()]);
    // The lease is known now: of sixty more only so many wait as will go in time.
    let pass = (0..60).filter(|_| proxy.of("acme") == Decision::Hold);
    let pass = pass.count();
    assert!((18..=22).contains(&pass), "{pass}");
}

#[test]
fn who_stays_without_a_share_is_refused_with_the_reason_when_its_time_is_over() {
    let process = Process::new();
    let (mut proxy, waiting) = newcomer(&process, &shaped("", ""));
    for _ in 0..8 {
        proxy.run(110);
        proxy.answer_in_part(0.0, 200.0, 100);
    }
    assert_eq!(proxy.host().replies.borrow().len(), 0);
    proxy.run(200);
    let replies = proxy.host().replies.borrow().clone();
    let refused: Vec<u32> = replies.iter().map(|reply| reply.0).collect();
    assert_eq!(refused, waiting);
    for (_, status, headers) in &replies {
        let reason = headers["tollgate-reason"].as_str();
        assert_eq!((*status, reason), (429, "tenant/requests"));
    }
    proxy.tick(TICK);
    assert_eq!(process.metric("wait_timeouts"), 3);
}

#[test]
fn who_is_blocked_or_comes_after_more_than_can_pass_is_refused_at_once() {
    for (capacity, refresh_ms) in [(0.0, 100), (0.0, 1000), (200.0, 1000)] {
        let mut proxy = Proxy::new(&Process::new(), 1, &shaped("", ""));
        let first = proxy.waiting("acme", 1);
        proxy.tick(MS);
        proxy.answer_in_part(0.0, capacity, refresh_ms);
        let refused = proxy.host().replies.borrow().clone();
        assert_eq!((refused.len(), refused[0].0), (1, first[0]), "{capacity}");
        assert_eq!(denial(proxy.of("acme")).retry_at, None, "{capacity}");
    }
    // All of the group's capacity in the time that a request may wait.
    let process = Process::new();
    let (mut proxy, _) = newcomer(&process, &shaped("", ""));
    proxy.waiting("acme", 197);
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    proxy.tick(TICK);
    assert_eq!(process.metric("wait_too_long"), 1);
}
