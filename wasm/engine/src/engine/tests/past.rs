//! Rules of configurations that nobody uses any more.

use super::*;
use crate::rules::IN_USE_MAX;

/// Longer than a scope that nobody uses is remembered.
const IDLE: Duration = Duration::from_secs(120);

fn deployed(number: usize) -> EngineConfig {
    rules([safe_rule(&format!("deploy-{number}"), 5)])
}

impl Worker {
    /// Passes the time in which all scopes are forgotten.
    fn idle(&mut self) {
        for _ in 0..30 {
            self.tick(IDLE);
        }
    }
}

#[test]
fn rules_that_come_and_go_take_no_more_ids_than_are_in_use() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &deployed(0));
    // More than there are ids.
    for number in 1..70_000 {
        worker.configure(&deployed(number));
    }
    assert_eq!(worker.engine.rule_stats().count(), 2);
    assert_eq!(worker.admitted("acme", 9), 5);
    let name = worker.engine.rule_stats().map(|(name, _)| name);
    assert!(name.into_iter().any(|name| name == "deploy-69999"));
}

#[test]
fn a_rule_keeps_its_id_until_its_scopes_are_forgotten() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &deployed(0));
    assert_eq!(worker.admitted("acme", 9), 5);
    for number in 1..9 {
        worker.configure(&deployed(number));
        assert_ne!(worker.root.rules, [RuleId(0)]);
    }
    worker.idle();
    worker.configure(&deployed(9));
    assert_eq!(worker.root.rules, [RuleId(0)]);
    assert_eq!(worker.refused("deploy-9").requests.get(), 0);
    assert_eq!(worker.admitted("acme", 9), 5, "a bucket of its own");
}

#[test]
fn a_rule_of_a_listener_that_is_idle_keeps_its_id() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &deployed(0));
    let (idle, _user) = (worker.root.clone(), worker.user.clone());
    for number in 1..9 {
        worker.configure(&deployed(number));
    }
    worker.root = idle;
    assert_eq!(worker.admitted("acme", 9), 5);
    assert_eq!(worker.refused("deploy-0").requests.get(), 4);
}

#[test]
fn the_host_fails_for_a_rule_beyond_the_bound() {
    for host_failure in [HostFailure::Open, HostFailure::Closed] {
        let config = |number| EngineConfig {
            host_failure,
            ..deployed(number)
        };
        let mut worker = Worker::new(&FakeProcess::new(), 1, &config(0));
        let mut roots = vec![(worker.root.clone(), worker.user.clone())];
        for number in 1..=IN_USE_MAX {
            worker.configure(&config(number));
            roots.push((worker.root.clone(), worker.user.clone()));
        }
        let without = match host_failure {
            HostFailure::Open => Decision::Admit,
            HostFailure::Closed => Decision::Deny(Refusal::HostFailure),
        };
        assert_eq!(worker.of("acme"), without);
        assert_eq!(worker.stats().host_failures.get(), 2);
        (worker.root, worker.user) = roots.swap_remove(1);
        assert_eq!(worker.admitted("acme", 9), 5);
        drop(roots);
        worker.configure(&config(IN_USE_MAX));
        assert_eq!(worker.admitted("acme", 9), 5);
    }
}
