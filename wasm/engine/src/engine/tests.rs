//! Decisions of an engine, through its callbacks: its worker is one of a fake process, whose clock
//! and coordinator the tests play.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use tollgate_core::client::Policy;
use tollgate_core::lease::Unit;
use tollgate_core::units::{Capacity, Tokens};

use crate::config::{EngineConfig, HostFailure, Overflow, RuleConfig, RuleId};
use crate::decision::Decision;
use crate::engine::Engine;
use crate::host::{Host, Level};
use crate::refusal::{Denial, Refusal};
use crate::shared_table::codec::{self, DirtyQueue};
use crate::testing::FakeProcess;

mod adjust;
mod calls;
mod clocks;
mod conditions;
mod contention;
mod draws;
mod epochs;
mod fallback;
mod final_cost;
mod limit_status;
mod modes;
mod nudges;
mod order;
mod passes;
mod past;
mod pending;
mod permits;
mod process;
mod queues;
mod roots;
mod settings;
mod straight;
mod two_processes;
mod units;
mod visitors;
mod worker;

use calls::{OpenCall, Terms, lent, terms};
use settings::{one_rule, pessimistic, rule, rules, safe_rule, shaped};
use worker::Worker;

const TICK: Duration = Duration::from_millis(20);
/// The cause of a call that failed.
const DOWN: &str = "gRPC status 14 (UNAVAILABLE)";

fn denial(decision: Decision) -> Denial {
    match decision {
        Decision::Deny(Refusal::Denied { denial, .. }) => denial,
        other => panic!("{other:?}"),
    }
}

/// The rule that refuses, and the exhausted unit; none for want of a key.
fn reason(refusal: Refusal) -> (u16, Option<Unit>) {
    match refusal {
        Refusal::Denied { rule, denial, .. } => (rule.0, Some(denial.unit)),
        Refusal::Missing { rule } => (rule.0, None),
        Refusal::HostFailure => panic!("{refusal:?}"),
    }
}

#[test]
fn the_lease_is_enforced_and_the_pause_is_true() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    let burst = worker.admitted("acme", 300);
    assert!(burst <= 100, "{burst}");
    let denial = denial(worker.of("acme"));
    assert_eq!(denial.limit, 100_000_000, "millionths");
    assert!(!denial.without_lease);
    let pause = denial
        .retry_at
        .unwrap()
        .saturating_since(worker.host().now());
    assert!(
        pause > Duration::ZERO && pause <= Duration::from_millis(10),
        "{pause:?}"
    );
    worker.process.advance(pause - Duration::from_nanos(1));
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
    worker.process.advance(Duration::from_nanos(1));
    assert_eq!(worker.of("acme"), Decision::Admit);
}

#[test]
fn one_second_of_overload_admits_the_rate() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    worker.lease("acme", 100.0);
    worker.admitted("acme", 300);
    let mut passed = 0;
    for _ in 0..1000 {
        worker.process.advance(Duration::from_millis(1));
        passed += worker.admitted("acme", 3);
        if passed % 20 == 0 {
            worker.tick(Duration::ZERO);
            worker.answer(100.0);
        }
    }
    assert!((95..=105).contains(&passed), "{passed}");
}

#[test]
fn a_request_whose_token_cache_suffices_reads_no_shared_data() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 1_000_000.0);
    assert_eq!(worker.of("acme"), Decision::Admit);
    worker.host().shared_data_fails.set(true);
    assert_eq!(worker.admitted("acme", 1000), 1000);
}

#[test]
fn all_buckets_or_none_are_charged_and_the_strictest_is_named() {
    let config = rules([safe_rule("a", 5), safe_rule("b", 2)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let both = ["1", "1"];
    let passed = (0..10)
        .filter(|_| worker.request(&both) == Decision::Admit)
        .count();
    assert_eq!(passed, 2);
    let Decision::Deny(refusal) = worker.request(&both) else {
        panic!("b refuses");
    };
    assert_eq!(refusal.rule(), Some(RuleId(1)));
    // The three requests that b refused cost a nothing.
    let left = (0..10).filter(|n| worker.request(&["1", &format!("other-{n}")]) == Decision::Admit);
    assert_eq!(left.count(), 3);
}

#[test]
fn a_refused_scope_does_not_go_to_shared_data_for_each_request() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &rules([safe_rule("tenant", 10)]));
    worker.admitted("acme", 50);
    let writes = process.writes.get();
    assert_eq!(worker.admitted("acme", 1000), 0);
    assert!(process.writes.get() - writes <= 1);
}

#[test]
fn unseen_keys_leave_and_make_room_for_a_newcomer() {
    let process = FakeProcess::new();
    let config = EngineConfig {
        max_scopes: 20,
        ..one_rule()
    };
    let mut worker = Worker::new(&process, 1, &config);
    for n in 0..40 {
        worker.of(&format!("unseen-{n}"));
    }
    for _ in 0..(90_000 / 20) {
        worker.tick(TICK);
        while let Some((token, call)) = process.take_call() {
            if call.is_refresh() {
                worker.handle_answer(token, call.lend(1.0));
            }
        }
    }
    worker.lease("newcomer", 100.0);
    assert!(worker.engine.scope(RuleId(0), b"newcomer").is_some());
}

#[test]
fn a_new_configuration_keeps_the_balances() {
    let process = FakeProcess::new();
    let mut worker = Worker::new(&process, 1, &one_rule());
    worker.lease("acme", 100.0);
    worker.admitted("acme", 300);
    let changed = EngineConfig {
        max_pending: 1,
        ..one_rule()
    };
    worker.configure(&changed);
    assert!(matches!(worker.of("acme"), Decision::Deny(_)));
}

#[test]
fn when_the_host_fails_the_configuration_decides() {
    let rows = [
        (HostFailure::Open, Decision::Admit),
        (HostFailure::Closed, Decision::Deny(Refusal::HostFailure)),
    ];
    for (host_failure, want) in rows {
        let process = FakeProcess::new();
        let config = EngineConfig {
            host_failure,
            ..one_rule()
        };
        let mut worker = Worker::new(&process, 1, &config);
        worker.host().shared_data_fails.set(true);
        for _ in 0..100 {
            assert_eq!(worker.of("acme"), want);
            worker.tick(Duration::ZERO);
        }
        assert_eq!(process.logs.borrow().len(), 1);
        worker.host().shared_data_fails.set(false);
        assert_eq!(worker.of("acme"), Decision::Hold);
    }
}

#[test]
fn rules_keep_apart_however_many_names_there_have_been() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &one_rule());
    for n in 0..300 {
        worker.configure(&rules([rule(&format!("r{n}"))]));
    }
    assert_eq!(worker.of("acme"), Decision::Hold);
    worker.tick(Duration::from_millis(1));
    let (_, call) = worker.process.take_call().unwrap();
    assert_eq!(*call.scopes()[0], *"r299/acme");
}
