//! Nudges of a coordinator, and the stream that they come on.

use tollgate_core::lease::ResourceId;

use super::*;

const NOBODY: &str = "tenant/nobody";

/// The resource of a tenant's requests.
fn requests_of(tenant: &str) -> ResourceId {
    resource(tenant, Unit::Requests)
}

fn resource(tenant: &str, unit: Unit) -> ResourceId {
    ResourceId::new(&format!("tenant/{tenant}"), unit).unwrap()
}

impl FakeProcess {
    /// Returns the tokens of the streams that are open.
    fn streams(&self) -> Vec<u32> {
        self.watches.borrow().keys().copied().collect()
    }

    /// Returns the token of the only stream that is open.
    fn stream(&self) -> u32 {
        let streams = self.streams();
        assert_eq!(streams.len(), 1, "{streams:?}");
        streams[0]
    }

    /// Takes the only call that is not answered, and the scopes that it asks for.
    fn take_refresh(&self) -> (u32, OpenCall, Vec<String>) {
        let (token, call) = self.take_call().expect("a call");
        assert!(self.calls.borrow().is_empty());
        let scopes = call.scopes().into_iter().map(|scope| scope.to_string());
        let scopes = scopes.collect();
        (token, call, scopes)
    }
}

impl Worker {
    /// Hands over that the coordinator has named resources.
    fn nudge(&mut self, resources: &[ResourceId]) {
        let token = self.process.stream();
        self.nudge_on(token, resources);
    }

    fn nudge_on(&mut self, token: u32, resources: &[ResourceId]) {
        self.engine.handle_nudge(token, Ok(resources.to_vec()));
        while self.engine.poll_effect().is_some() {}
    }

    /// Lets the stream end with `status`.
    fn end_watch(&mut self, status: u32) {
        let (token, _) = self.process.watches.borrow_mut().pop_first().unwrap();
        self.engine.handle_watch_end(token, status);
    }

    /// Passes a minute in which each of the tenants has a request in each tick, and returns the number of
    /// calls made.
    fn calls_in_a_minute(&mut self, in_use: &[&str]) -> usize {
        let mut calls = 0;
        for _ in 0..60_000 / TICK.as_millis() {
            for tenant in in_use {
                self.of(tenant);
            }
            self.tick(TICK);
            while let Some((token, call)) = self.process.take_call() {
                calls += 1;
                if call.is_refresh() {
                    self.handle_answer(token, call.lend(100.0));
                }
            }
        }
        calls
    }

    /// Ticks until a stream is open, at most so many times, and returns how many ticks that took.
    fn ticks_to_watch(&mut self, most: usize) -> Option<usize> {
        (1..=most).find(|_| {
            self.of("acme");
            self.tick(TICK);
            self.answer(100.0);
            !self.process.streams().is_empty()
        })
    }
}

/// A worker that leads and has leases for `tenants`, asked for a little while ago.
fn leased(tenants: &[&str]) -> Worker {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    for tenant in tenants {
        worker.lease(tenant, 100.0);
    }
    for _ in 0..3 {
        worker.tick(TICK);
        worker.answer(100.0);
    }
    worker
}

#[test]
fn what_is_named_is_asked_for_at_once_and_together() {
    let mut worker = leased(&["acme", "beta", "gamma"]);
    worker.nudge(&[requests_of("acme"), requests_of("gamma")]);
    let (token, call, scopes) = worker.process.take_refresh();
    assert_eq!(scopes, ["tenant/acme", "tenant/gamma"]);
    worker.handle_answer(token, call.lend(50.0));
    assert_eq!(worker.stats().nudges.get(), 2);
    // The new lease holds: a bucket of fifty tokens.
    assert!(worker.admitted("acme", 300) <= 50);
    // The next request has its usual time.
    worker.tick(TICK);
    assert!(worker.process.take_call().is_none());
}

#[test]
fn what_the_process_does_not_use_is_ignored() {
    let mut worker = leased(&["acme"]);
    let unknown = ResourceId::new(NOBODY, Unit::Requests).unwrap();
    let unlimited = resource("acme", Unit::Concurrency);
    worker.nudge(&[unknown, unlimited]);
    worker.tick(TICK);
    assert!(worker.process.take_call().is_none());
    assert_eq!(worker.stats().nudges.get(), 2);
    assert_eq!(worker.engine.sync.nudges_kept(), 0);
}

#[test]
fn a_slot_that_changed_hands_is_not_asked_for() {
    let config = EngineConfig {
        max_scopes: 1,
        ..one_rule()
    };
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.lease("acme", 100.0);
    worker.tick(TICK);
    worker.answer(100.0);
    worker.nudge(&[requests_of("beta")]);
    assert!(worker.process.take_call().is_none());
}

#[test]
fn what_is_named_while_an_answer_is_awaited_is_asked_for_right_after() {
    let mut worker = leased(&["acme"]);
    worker.nudge(&[requests_of("acme")]);
    let (token, call, _) = worker.process.take_refresh();
    worker.process.advance(Duration::from_millis(10));
    worker.nudge(&[requests_of("acme")]);
    assert!(worker.process.take_call().is_none(), "one at a time");
    worker.handle_answer(token, call.lend(80.0));
    let (_, _, scopes) = worker.process.take_refresh();
    assert_eq!(scopes, ["tenant/acme"]);
}

#[test]
fn what_is_named_while_a_call_fails_has_its_time() {
    let mut worker = leased(&["acme"]);
    worker.nudge(&[requests_of("acme")]);
    let (token, ..) = worker.process.take_refresh();
    worker.process.advance(Duration::from_millis(10));
    worker.nudge(&[requests_of("acme")]);
    worker.fail_call(token);
    worker.tick(TICK);
    assert!(worker.process.take_call().is_none(), "the backoff counts");
    assert_eq!(worker.engine.sync.nudges_kept(), 0);
}

#[test]
fn an_answer_that_another_worker_awaits_is_awaited() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    first.lease("other", 100.0);
    first.tick(TICK);
    first.answer(100.0);
    second.of("acme");
    second.tick(Duration::from_millis(1));
    let (token, call, _) = process.take_refresh();
    first.nudge(&[requests_of("acme")]);
    first.tick(TICK);
    assert!(process.take_call().is_none());
    second.handle_answer(token, call.lend(100.0));
    first.tick(TICK);
    let (_, _, scopes) = process.take_refresh();
    assert_eq!(scopes, ["tenant/acme"]);
}

#[test]
fn a_resource_that_is_named_without_end_is_asked_for_every_hundred_milliseconds() {
    let mut worker = leased(&["acme"]);
    let mut calls = 0;
    for n in 0..1000 {
        worker.of("acme");
        worker.process.advance(Duration::from_millis(1));
        if n % 20 == 0 {
            worker.tick(Duration::ZERO);
        }
        worker.nudge(&[requests_of("acme")]);
        calls += worker.process.calls.borrow().len();
        worker.answer(100.0);
    }
    // Four in a row, and one in each interval.
    assert_eq!(calls, 4 + 9);
    // The last one, which came too soon, is not lost.
    let next = (0..5).find(|_| {
        worker.tick(TICK);
        !worker.process.calls.borrow().is_empty()
    });
    assert!(next.is_some());
}

#[test]
fn a_stream_that_floods_is_closed_and_opened_again_later_and_later() {
    let mut worker = leased(&["acme"]);
    let named = [requests_of("acme")];
    let mut waits = Vec::new();
    for floods in 1..=4 {
        let token = worker.process.stream();
        for _ in 0..100_000 {
            worker.nudge_on(token, &named);
        }
        assert_eq!(worker.stats().watch_floods.get(), floods);
        // No stream is closed while its messages are handed over.
        assert_eq!(worker.process.stream(), token);
        worker.tick(TICK);
        assert_eq!(worker.process.streams(), [0; 0]);
        let ticks = worker.ticks_to_watch(2000).expect("a stream");
        waits.push(TICK * ticks as u32);
    }
    for (wait, seconds) in waits.iter().zip([1, 2, 4, 8]) {
        let least = Duration::from_secs(seconds);
        assert!(*wait + TICK >= least && *wait <= least * 2, "{waits:?}");
    }
    let logs = worker.process.logs.borrow();
    let warnings = logs.iter().filter(|(level, _)| *level == Level::Warn);
    assert_eq!(warnings.count(), 1, "{logs:?}");
}

#[test]
fn messages_that_cannot_be_read_are_a_flood_as_well() {
    let mut worker = leased(&["acme"]);
    let token = worker.process.stream();
    for _ in 0..100_000 {
        let unreadable = Err("no scope".to_owned());
        worker.engine.handle_nudge(token, unreadable);
    }
    assert_eq!(worker.stats().watch_floods.get(), 1);
    assert!(worker.stats().nudge_errors.get() <= 20_001);
    // The coordinator may end it before it is closed.
    worker.end_watch(14);
    worker.tick(TICK);
    assert_eq!(worker.process.streams(), [0; 0]);
}

#[test]
fn as_many_messages_as_a_coordinator_sends_are_no_flood() {
    let mut worker = leased(&["acme"]);
    let named = [requests_of("acme")];
    let all: Vec<_> = (0..1000).map(|n| requests_of(&format!("t{n}"))).collect();
    for _ in 0..10 {
        // A change of the limits of ten thousand scopes.
        worker.nudge(&all);
    }
    for _ in 0..20 * 500 {
        worker.of("acme");
        worker.process.advance(Duration::from_millis(2));
        worker.nudge(&named);
        worker.answer(100.0);
    }
    assert_eq!(worker.stats().watch_floods.get(), 0);
}

#[test]
fn however_much_is_named_no_more_is_kept_than_there_are_slots() {
    let mut worker = leased(&["acme", "beta"]);
    let awaited = [requests_of("acme"), requests_of("beta")];
    worker.nudge(&awaited);
    for n in 0..100 {
        let others = (0..1000).map(|i| requests_of(&format!("unseen-{n}-{i}")));
        worker.nudge(&others.chain(awaited.clone()).collect::<Vec<_>>());
    }
    assert_eq!(worker.engine.sync.nudges_kept(), 2);
}

#[test]
fn nudges_do_not_keep_others_from_being_asked_for() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    // Nine calls' worth of scopes, in a rush.
    let tenants: Vec<String> = (0..4500).map(|n| format!("t{n}")).collect();
    for tenants in tenants.chunks(900) {
        for tenant in tenants {
            worker.of(tenant);
        }
        for _ in 0..10 {
            worker.tick(TICK);
            worker.answer(100.0);
        }
    }
    worker.answer(100.0);
    let named: Vec<_> = tenants.iter().map(|tenant| requests_of(tenant)).collect();
    for named in named.chunks(1000) {
        worker.nudge(named);
    }
    let requested: usize = process.calls.borrow().len();
    assert_eq!(requested, 8, "all that may be awaited");
    worker.of("newcomer");
    worker.tick(Duration::from_millis(1));
    let calls = process.calls.borrow();
    assert_eq!(calls.len(), 9);
    let (_, (_, call)) = calls.last_key_value().unwrap();
    let crate::host::Call::Refresh(refresh) = call else {
        panic!("{call:?}");
    };
    assert_eq!(*refresh.scopes[0].scope, *"tenant/newcomer");
}

#[test]
fn the_leader_has_one_stream_to_any_coordinator_and_others_none() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        shards: vec!["s-0".to_owned(), "s-1".to_owned()],
        ..one_rule()
    };
    let mut workers: Vec<Worker> = (1..=3)
        .map(|id| Worker::new(&process, id, &config))
        .collect();
    for worker in &mut workers {
        worker.tick(TICK);
    }
    assert_eq!(process.streams(), [0; 0], "nothing is wanted so far");
    workers[2].of("acme");
    for _ in 0..100 {
        for worker in &mut workers {
            worker.tick(Duration::from_millis(7));
            worker.answer(100.0);
        }
    }
    process.stream();
    let watches: Vec<_> = process.watches.borrow().values().cloned().collect();
    assert_eq!(watches[0].0, "c");
    let opened = workers.iter().map(|worker| worker.stats().watches.get());
    assert_eq!(opened.sum::<u64>(), 1);
    let open = workers
        .iter()
        .filter_map(|worker| worker.engine.process_stats());
    assert_eq!(open.map(|stats| stats.watch_streams).sum::<u64>(), 1);
}

#[test]
fn a_process_that_wants_nothing_any_more_closes_its_stream() {
    let mut worker = leased(&["acme"]);
    worker.process.stream();
    for _ in 0..1000 {
        worker.tick(TICK);
        while let Some((token, call)) = worker.process.take_call() {
            if call.is_refresh() {
                worker.handle_answer(token, call.lend(100.0));
            }
        }
    }
    assert_eq!(worker.process_stats().slots_used, 0);
    assert_eq!(worker.process.streams(), [0; 0]);
    assert_eq!(worker.process_stats().watch_streams, 0);
    // It is opened again at once when something is wanted.
    assert_eq!(worker.ticks_to_watch(2), Some(1));
}

#[test]
fn a_stream_on_which_nothing_comes_costs_no_calls_and_an_idle_process_sends_nothing() {
    let tenants = ["acme", "beta", "gamma"];
    let of_minutes = |pushes: bool| {
        let process = FakeProcess::new();
        process.has_no_streams.set(!pushes);
        let mut worker = Worker::new(&process, 1, &one_rule());
        for tenant in tenants {
            worker.lease(tenant, 100.0);
        }
        let in_use = [(); 2].map(|()| worker.calls_in_a_minute(&tenants));
        assert_eq!(process.streams().len(), usize::from(pushes));
        let releases = worker.calls_in_a_minute(&[]);
        let idle = worker.calls_in_a_minute(&[]);
        let opened = worker.stats().watches.get();
        assert_eq!(opened, u64::from(pushes), "one stream in all that time");
        assert_eq!(process.streams(), [0; 0]);
        (in_use, releases, idle)
    };
    let pushed = of_minutes(true);
    assert_eq!(pushed, of_minutes(false));
    let (in_use, releases, idle) = pushed;
    // A refresh of all scopes each second, and all of them released once.
    assert_eq!((in_use[1], idle), (60, 0), "{in_use:?}, {releases}");
}

#[test]
fn a_worker_that_leads_no_longer_closes_its_stream_and_drops_late_messages() {
    let process = FakeProcess::new();
    let mut first = Worker::new(&process, 1, &one_rule());
    let mut second = Worker::new(&process, 2, &one_rule());
    first.lease("acme", 100.0);
    first.tick(TICK);
    let old = process.stream();
    // The first worker is stuck for a second, and another one takes over.
    second.of("acme");
    second.tick(Duration::from_secs(1));
    assert_eq!(process.streams().len(), 2);
    second.answer(100.0);
    first.tick(Duration::ZERO);
    assert_ne!(process.stream(), old);
    first.nudge_on(old, &[requests_of("acme")]);
    assert!(process.take_call().is_none());
    assert_eq!(first.stats().nudges.get(), 0);
    second.nudge(&[requests_of("acme")]);
    assert!(process.take_call().is_some());
    // The end of a stream that was closed is none of the new one's.
    second.engine.handle_watch_end(old, 10);
    assert_eq!(second.process_stats().watch_streams, 1);
}

#[test]
fn a_stream_that_ends_is_opened_again_later_and_later() {
    let mut worker = leased(&["acme"]);
    let mut waits = Vec::new();
    for _ in 0..5 {
        worker.end_watch(14);
        assert_eq!(worker.process_stats().watch_streams, 0);
        let ticks = worker.ticks_to_watch(2000).expect("a stream");
        waits.push(TICK * ticks as u32);
    }
    for (wait, seconds) in waits.iter().zip([1, 2, 4, 8, 16]) {
        let least = Duration::from_secs(seconds);
        assert!(*wait >= least && *wait <= least * 2, "{waits:?}");
    }
    let logs = worker.process.logs.borrow();
    assert!(logs.iter().all(|(level, _)| *level == Level::Debug));
}

#[test]
fn an_old_coordinator_is_asked_for_a_stream_once_a_minute_without_a_warning() {
    let mut worker = leased(&["acme"]);
    worker.end_watch(12);
    let ticks = worker.ticks_to_watch(6000).expect("a stream");
    assert!((3000..4600).contains(&ticks), "{ticks}");
    assert_eq!(worker.stats().refresh_errors.get(), 0);
    let logs = worker.process.logs.borrow();
    assert!(logs.iter().all(|(level, _)| *level == Level::Debug));
}

#[test]
fn a_stream_that_cannot_be_opened_is_tried_again_later() {
    let process = FakeProcess::new();
    process.has_no_streams.set(true);
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 100.0);
    assert_eq!(worker.ticks_to_watch(10), None);
    // Not now is no failure.
    process.has_no_streams.set(false);
    assert_eq!(worker.ticks_to_watch(2), Some(1));
    worker.engine.close_watch();
    process.calls_fail.set(true);
    worker.tick(TICK);
    process.calls_fail.set(false);
    let ticks = worker.ticks_to_watch(100).expect("a stream");
    assert!(ticks > 45, "{ticks}");
    assert_eq!(worker.stats().watches.get(), 2);
}

#[test]
fn a_message_that_cannot_be_read_is_counted_and_the_stream_goes_on() {
    let mut worker = leased(&["acme"]);
    let token = worker.process.stream();
    worker
        .engine
        .handle_nudge(token, Err("no scope".to_owned()));
    assert_eq!(worker.stats().nudge_errors.get(), 1);
    worker.nudge(&[requests_of("acme")]);
    assert!(worker.process.take_call().is_some());
    let logs = worker.process.logs.borrow();
    assert!(logs.iter().all(|(level, _)| *level == Level::Debug));
}
