//! Requests that wait for their turn.

use super::*;
use crate::config::Shape;
use tollgate_core::lease::{Answer, UnitAnswer};
use tollgate_core::message::ScopeAnswer;

mod deadlines;
mod groups;

const MS: Duration = Duration::from_millis(1);

/// A rule that makes requests wait.
fn waits() -> EngineConfig {
    rules([shaped(rule("tenant"))])
}

/// The same, so long at most.
fn waits_for(max_wait: Duration) -> EngineConfig {
    let mut config = waits();
    config.rules[0].shape = Some(Shape {
        max_wait,
        max_waiting: 1000,
    });
    config
}

/// A worker that has a lease of `capacity` for acme and has spent all tokens.
fn spent(process: &Rc<FakeProcess>, config: &EngineConfig, capacity: f64) -> Worker {
    let mut worker = Worker::new(process, 1, config);
    worker.lease("acme", capacity);
    while worker.hasty("acme") == Decision::Admit {}
    worker
}

impl Worker {
    /// The contexts of `requests` that all wait.
    fn waiting(&mut self, tenant: &str, requests: usize) -> Vec<u32> {
        let stream = |_| {
            assert_eq!(self.of(tenant), Decision::Hold);
            self.streams
        };
        (0..requests).map(stream).collect()
    }

    /// Streams that have gone on since the last time.
    fn went_on(&mut self) -> Vec<u32> {
        self.resumed.drain(..).collect()
    }

    /// Runs ticks of a millisecond; returns the streams that go on, and in which.
    fn run(&mut self, millis: u64) -> Vec<(u64, u32)> {
        let mut gone = Vec::new();
        for ms in 1..=millis {
            self.tick(MS);
            gone.extend(self.went_on().into_iter().map(|stream| (ms, stream)));
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
    let process = FakeProcess::new();
    let mut worker = spent(&process, &waits(), 100.0);
    let waiting = worker.waiting("acme", 5);
    assert_eq!(worker.engine.tick_period(), Duration::from_millis(10));
    let gone = worker.run(60);
    let want: Vec<(u64, u32)> = (1..).map(|n| n * 10).zip(waiting.clone()).collect();
    assert_eq!(gone, want);
    assert_eq!(worker.engine.tick_period(), TICK);
    let waited = |n: usize| worker.waited[&waiting[n]];
    assert_eq!([waited(0).time, waited(4).time], [10 * MS, 50 * MS]);
    assert!(waited(0).queued);
    assert_eq!(worker.stats().waited.get(), 5);
    assert!(worker.engine.queues.is_empty());
    // The one that would not wait is the only one that was refused.
    assert_eq!(worker.refused("tenant").requests.get(), 1);
}

#[test]
fn who_would_wait_too_long_is_refused_at_once_and_told_how_long() {
    let process = FakeProcess::new();
    let mut worker = spent(&process, &waits(), 100.0);
    worker.waiting("acme", 99);
    let refused = worker.of("acme");
    let pause = worker.pause_told(refused);
    assert_eq!(pause.as_nanos().div_ceil(1_000_000), 1000, "{pause:?}");
    for max_wait in [999, 800] {
        let refused = worker.request_within(&["acme"], max_wait);
        assert!(matches!(refused, Decision::Deny(_)), "{max_wait}");
    }
    worker.tick(TICK);
    assert_eq!(worker.stats().wait_too_long.get(), 4);
    assert_eq!(worker.refused("tenant").requests.get(), 4);
    assert_eq!(worker.engine.queues.len(), 97);
    let dear = denial(worker.at("acme", 5));
    assert_eq!(dear.need, Tokens::from_whole(5));
    let gone = worker.run(980).len();
    assert_eq!(gone, 99, "nobody was let down");
}

#[test]
fn who_leaves_costs_nothing_and_the_others_go_sooner() {
    let mut worker = spent(&FakeProcess::new(), &waits(), 100.0);
    let [a, b, c, d] = worker.waiting("acme", 4)[..] else {
        panic!()
    };
    worker.end(b);
    worker.end(b);
    // Envoy may know of an end before the filter does.
    worker.gone.push(c);
    assert_eq!(worker.run(60), [(10, a), (30, d)]);
    assert_eq!(worker.of("acme"), Decision::Admit);
    worker.waiting("beta", 1);
}

/// Those that are held for the first answer go on the next tick after it, or after the wait for it.
#[test]
fn no_request_overtakes_pending_ones() {
    let mut config = waits();
    config.rules[0].policy.safe = Capacity::from_whole(1000);
    for answered in [false, true] {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
        let mut held = worker.waiting("acme", 40);
        if answered {
            worker.tick(MS);
            worker.process.advance(MS);
            worker.answer(1000.0);
        } else {
            worker.process.advance(50 * MS)
        }
        held.extend(worker.waiting("acme", 1));
        let gone = worker.run(1000);
        let gone: Vec<u32> = gone.into_iter().map(|(_, stream)| stream).collect();
        assert_eq!(gone, held, "answered: {answered}");
    }
}

#[test]
fn no_request_overtakes_queued_ones() {
    let mut worker = spent(&FakeProcess::new(), &waits(), 100.0);
    let at = |worker: &mut Worker, cost| {
        let decision = worker.at("acme", cost);
        assert!(matches!(decision, Decision::Queue(_)), "{decision:?}");
        worker.streams
    };
    let dear = at(&mut worker, 3);
    assert!(worker.run(15).is_empty());
    // There is a token for this one, but it is not its turn.
    let cheap = at(&mut worker, 1);
    assert_eq!(worker.run(40), [(15, dear), (25, cheap)]);
}

#[test]
fn a_raised_limit_lets_all_go_in_every_worker() {
    let process = FakeProcess::new();
    let config = waits_for(Duration::from_secs(30));
    let mut one = spent(&process, &config, 1.0);
    let mut two = Worker::new(&process, 2, &config);
    let (first, second) = (one.waiting("acme", 5), two.waiting("acme", 3));
    process.calls.borrow_mut().clear();
    for _ in 0..100 {
        one.tick(TICK);
        if !process.calls.borrow().is_empty() {
            break;
        }
    }
    let late = first.len() - one.went_on().len();
    one.answer(10_000.0);
    one.tick(MS);
    assert_eq!(one.went_on().len(), late);
    // The other worker sees it on its next tick.
    two.tick(TICK);
    assert_eq!(two.went_on(), second);
}

#[test]
fn a_lowered_limit_refuses_at_the_deadline_with_the_reason() {
    let process = FakeProcess::new();
    let mut worker = spent(&process, &waits_for(4000 * MS), 1.0);
    let waiting = worker.waiting("acme", 2);
    assert_eq!(worker.request_within(&["acme"], 3040), Decision::Hold);
    let hasty = worker.streams;
    process.calls.borrow_mut().clear();
    let mut passed = 0;
    while process.calls.borrow().is_empty() {
        worker.tick(MS);
        passed += 1;
    }
    worker.answer(0.0);
    let lucky = worker.went_on().len();
    // It is told in time, rather than running into its client's deadline.
    worker.run(3040 - 1 - passed);
    assert_eq!(worker.denied.len(), 0);
    worker.run(1);
    assert_eq!(worker.denied.pop().unwrap().0, hasty);
    worker.run(959);
    assert_eq!(worker.denied.len(), 0);
    worker.run(1);
    let replies = worker.denied.clone();
    assert_eq!(replies.len(), waiting.len() - lucky);
    for (stream, refusal) in &replies {
        assert!(waiting.contains(stream));
        assert_eq!(reason(*refusal), (0, Some(Unit::Requests)));
        let denial = denial(Decision::Deny(*refusal));
        assert_eq!(denial.retry_at, None, "nobody knows");
        assert_eq!(worker.waited[stream].time, 4000 * MS);
    }
    assert!(worker.went_on().is_empty());
    worker.tick(TICK);
    assert_eq!(worker.stats().wait_timeouts.get(), replies.len() as u64 + 1);
    assert!(worker.engine.queues.is_empty());
}

#[test]
fn only_so_many_wait_of_one_key_and_of_all() {
    let process = FakeProcess::new();
    let mut config = waits();
    config.max_waiting = 4;
    config.rules[0].shape = Some(Shape {
        max_wait: Duration::from_secs(1),
        max_waiting: 3,
    });
    let mut worker = spent(&process, &config, 100.0);
    worker.lease("beta", 20.0);
    while worker.hasty("beta") == Decision::Admit {}
    let waiting = worker.waiting("acme", 3);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    let beta = worker.waiting("beta", 1);
    assert!(matches!(worker.of("beta"), Decision::Deny(_)));
    let gone: Vec<u32> = worker.run(30).into_iter().map(|gone| gone.1).collect();
    assert_eq!(gone, waiting);
    worker.end(beta[0]);
    worker.tick(TICK);
    assert_eq!(worker.stats().wait_full.get(), 2);
    assert!(!worker.engine.is_hurried());
    let none = EngineConfig {
        max_waiting: 0,
        ..waits()
    };
    let mut worker = spent(&FakeProcess::new(), &none, 100.0);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
}

#[test]
fn a_rule_in_shadow_mode_lets_no_request_wait() {
    let config = rules([RuleConfig {
        enforced: 0,
        ..shaped(safe_rule("tenant", 10))
    }]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    assert_eq!(worker.admitted("acme", 50), 50);
    worker.tick(TICK);
    assert_eq!(worker.shadowed("tenant").requests.get(), 40);
}

#[test]
fn switched_off_all_go_on_in_small_parts() {
    let mut worker = spent(&FakeProcess::new(), &waits(), 100.0);
    let waiting = worker.waiting("acme", 70);
    let off = EngineConfig {
        enabled: false,
        ..waits()
    };
    worker.configure(&off);
    let gone = worker.run(3);
    let order: Vec<u32> = gone.iter().map(|gone| gone.1).collect();
    assert_eq!(order, waiting);
    assert_eq!(gone.iter().filter(|(ms, _)| *ms == 1).count(), 32);
}

#[test]
fn who_is_short_elsewhere_at_its_turn_waits_there_in_the_order_of_arrival() {
    let config = rules([shaped(safe_rule("a", 5)), shaped(safe_rule("b", 2))]);
    let process = FakeProcess::new();
    process.calls_fail.set(true);
    let mut worker = Worker::new(&process, 1, &config);
    let both = ["1", "1"];
    for _ in 0..2 {
        assert_eq!(worker.request(&both), Decision::Admit);
    }
    assert_eq!(worker.request(&both), Decision::Hold);
    let early = worker.streams;
    let mut others = Vec::new();
    for n in 0..6 {
        let decision = worker.request(&["1", &format!("other-{n}")]);
        assert_eq!(decision == Decision::Admit, n < 3, "{n}");
        others.push(worker.streams);
    }
    // At 500 ms b has a token and a has none: what it gets at 600 ms is for the one that came first.
    let want = [
        (200, others[3]),
        (400, others[4]),
        (600, early),
        (800, others[5]),
    ];
    assert_eq!(worker.run(900), want);
}

#[test]
fn requests_wait_for_permits() {
    let all = [terms(
        "tenant/",
        &[(Unit::Requests, 1e6), (Unit::Concurrency, 4.0)],
    )];
    let mut worker = Worker::new(&FakeProcess::new(), 1, &waits());
    worker.meet("acme", &all);
    let begun = worker.waiting_for_permits();
    assert_eq!(begun.len(), 4);
    let waiting = worker.waiting("acme", 2);
    assert!(worker.run(50).is_empty());
    worker.end(begun[0]);
    let gone = worker.run(10);
    assert_eq!(
        gone.iter().map(|gone| gone.1).collect::<Vec<_>>(),
        waiting[..1]
    );
    // The one that goes on holds the permit, and the other one is refused when its time is over.
    worker.run(1000);
    assert_eq!(worker.denied.len(), 1);
    worker.end(waiting[0]);
    assert_eq!(worker.of("acme"), Decision::Admit);
    assert_eq!(worker.of("acme"), Decision::Hold);
}

impl Worker {
    fn waiting_for_permits(&mut self) -> Vec<u32> {
        let mut begun = Vec::new();
        while self.hasty("acme") == Decision::Admit {
            begun.push(self.streams);
        }
        begun
    }
}

#[test]
fn those_who_wait_are_wanted() {
    let process = FakeProcess::new();
    let mut worker = spent(&process, &waits(), 100.0);
    worker.waiting("acme", 95);
    let mut wants = 0.0;
    for _ in 0..45 {
        worker.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            wants = call.wants();
            worker.handle_answer(token, call.lend(100.0));
        }
    }
    // None has come for 0.9 s, but a hundred a second went.
    assert!(wants >= 80.0, "{wants}");
}

impl Worker {
    /// Answers with `lease` of `capacity`, and asks to come back after `refresh_ms`.
    fn answer_in_part(&mut self, lease: f64, capacity: f64, refresh_ms: u64) {
        let in_part = |unit: UnitAnswer| UnitAnswer {
            answer: Answer {
                capacity: Capacity::try_from_f64(capacity).unwrap(),
                refresh_interval: Duration::from_millis(refresh_ms),
                ..unit.answer
            },
            ..unit
        };
        while let Some((token, call)) = self.process.take_call() {
            let answer = call.answer(|asked| {
                let ScopeAnswer { outcome, .. } = lent(asked, lease);
                let units = outcome.map(|units| units.into_iter().map(in_part).collect());
                ScopeAnswer {
                    outcome: units,
                    ..lent(asked, lease)
                }
            });
            self.handle_answer(token, answer);
        }
    }
}

/// A tenant that has come last to a group that is all lent: 3 wait.
fn newcomer(process: &Rc<FakeProcess>, config: &EngineConfig) -> (Worker, Vec<u32>) {
    let mut worker = Worker::new(process, 1, config);
    let mut waiting = worker.waiting("acme", 1);
    worker.tick(MS);
    worker.answer_in_part(0.0, 200.0, 100);
    waiting.extend(worker.waiting("acme", 2));
    assert!(worker.went_on().is_empty());
    assert_eq!(worker.engine.queues.len(), 3);
    (worker, waiting)
}

#[test]
fn a_newcomer_waits_for_its_share() {
    let process = FakeProcess::new();
    let (mut worker, waiting) = newcomer(&process, &waits());
    assert_eq!(denial(worker.hasty("acme")).retry_at, None, "nobody knows");
    for lease in [0.0, 0.0, 2.0] {
        assert!(worker.run(105).is_empty());
        worker.answer_in_part(lease, 200.0, 100);
    }
    // At two in a second these would not be in time, but there is more to come.
    let more = worker.waiting("acme", 40);
    assert!(worker.run(105).is_empty());
    worker.answer_in_part(40.0, 200.0, 1000);
    let gone: Vec<u32> = worker.run(550).into_iter().map(|gone| gone.1).collect();
    assert!((20..=23).contains(&gone.len()), "{}", gone.len());
    assert_eq!(gone, [&waiting[..], &more[..]].concat()[..gone.len()]);
    // The lease is known now: of sixty more only so many wait as will go in time.
    let pass = (0..60).filter(|_| worker.of("acme") == Decision::Hold);
    let pass = pass.count();
    assert!((18..=22).contains(&pass), "{pass}");
}

#[test]
fn who_stays_without_a_share_is_refused_with_the_reason_when_its_time_is_over() {
    let process = FakeProcess::new();
    let (mut worker, waiting) = newcomer(&process, &waits());
    for _ in 0..8 {
        worker.run(110);
        worker.answer_in_part(0.0, 200.0, 100);
    }
    assert_eq!(worker.denied.len(), 0);
    worker.run(200);
    let replies = worker.denied.clone();
    let refused: Vec<u32> = replies.iter().map(|reply| reply.0).collect();
    assert_eq!(refused, waiting);
    for (_, refusal) in replies {
        assert_eq!(reason(refusal), (0, Some(Unit::Requests)));
    }
    worker.tick(TICK);
    assert_eq!(worker.stats().wait_timeouts.get(), 3);
}

#[test]
fn who_is_blocked_or_comes_after_more_than_can_pass_is_refused_at_once() {
    for (capacity, refresh_ms) in [(0.0, 100), (0.0, 1000), (200.0, 1000)] {
        let mut worker = Worker::new(&FakeProcess::new(), 1, &waits());
        let first = worker.waiting("acme", 1);
        worker.tick(MS);
        worker.answer_in_part(0.0, capacity, refresh_ms);
        let refused = worker.denied.clone();
        assert_eq!((refused.len(), refused[0].0), (1, first[0]), "{capacity}");
        assert_eq!(denial(worker.of("acme")).retry_at, None, "{capacity}");
    }
    // All of the group's capacity in the time that a request may wait.
    let process = FakeProcess::new();
    let (mut worker, _) = newcomer(&process, &waits());
    worker.waiting("acme", 196);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    worker.tick(TICK);
    assert_eq!(worker.stats().wait_too_long.get(), 1);
}

#[test]
fn when_all_have_left_by_themselves_nothing_is_due() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &waits());
    worker.engine.queues.has_backlog = true;
    assert!(worker.engine.queues.next_wake().is_some());
    worker.tick(MS);
    assert_eq!(worker.engine.queues.next_wake(), None);
}
