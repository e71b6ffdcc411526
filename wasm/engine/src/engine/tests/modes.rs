//! Rules that refuse less than they could, or are not about every request.

use super::*;

/// A rule that has `safe` tokens and never gets a lease, whose refusals have an effect so often.
fn settings(safe: u64, enforced: u8) -> EngineConfig {
    let rule = RuleConfig {
        enforced,
        ..safe_rule("tenant", safe)
    };
    EngineConfig {
        max_scopes: 20,
        ..rules([rule])
    }
}

fn shadow(rule: RuleConfig) -> RuleConfig {
    RuleConfig {
        enforced: 0,
        ..rule
    }
}

#[test]
fn a_shadow_counts_what_it_would_refuse_and_lets_it_pass() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(10, 0));
    worker.needs_key.insert(RuleId(0));
    assert_eq!(worker.admitted("acme", 25), 25);
    assert_eq!(worker.of(""), Decision::Admit);
    assert_eq!(worker.shadowed("tenant").requests.get(), 15);
    assert_eq!(worker.shadowed("tenant").missing.get(), 1);
    assert_eq!(worker.refused("tenant").requests.get(), 0);
    assert_eq!(worker.stats().allowed.get(), 26);
    let missing = Refusal::Missing { rule: RuleId(0) };
    assert_eq!(worker.reports[&126].shadowed, Some(missing));
    assert_eq!(worker.reports.len(), 16);
}

#[test]
fn a_shadow_holds_nobody_and_asks_for_its_lease_all_the_same() {
    let config = rules([shadow(rule("tenant"))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    assert_eq!(worker.of("acme"), Decision::Admit);
    worker.tick(Duration::from_millis(1));
    assert_eq!(worker.process.calls.borrow().len(), 1);
}

#[test]
fn a_shadow_counts_a_request_once_that_another_rule_holds() {
    let empty = RuleConfig {
        policy: Policy {
            safe: Capacity::ZERO,
            ..Policy::default()
        },
        ..rule("shadow")
    };
    let config = rules([rule("strict"), shadow(empty)]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    assert_eq!(worker.request(&["acme", "acme"]), Decision::Hold);
    worker.tick(Duration::from_millis(250));
    assert_eq!(worker.resumed, [101]);
    assert_eq!(worker.shadowed("shadow").requests.get(), 1);
    let shadowed = worker.reports[&101].shadowed.unwrap();
    assert_eq!(reason(shadowed), (1, Some(Unit::Requests)));
}

#[test]
fn a_shadow_beside_a_rule_in_force_changes_nothing_for_it() {
    let config = rules([safe_rule("strict", 5), shadow(safe_rule("shadow", 2))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    let both = ["acme", "acme"];
    let admitted = (0..20).filter(|_| worker.request(&both) == Decision::Admit);
    assert_eq!(admitted.count(), 5);
    assert!(matches!(
        worker.request(&both),
        Decision::Deny(Refusal::Denied {
            rule: RuleId(0),
            ..
        })
    ));
}

#[test]
fn a_part_of_the_refusals_can_be_in_force() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(10, 25));
    assert_eq!(worker.admitted("acme", 10), 10);
    let passed = worker.admitted("acme", 4000);
    assert!((2900..3100).contains(&passed), "{passed}");
    let shadowed = worker.shadowed("tenant").requests.get();
    assert_eq!(usize::try_from(shadowed).unwrap(), passed);
    assert_eq!(worker.refused("tenant").requests.get(), 4000 - shadowed);
}

/// Half of what `a`, which has nothing, would refuse goes on to `b`, where it waits.
#[test]
fn a_request_that_was_shadowed_once_is_shadowed_at_its_turn() {
    let half = RuleConfig {
        enforced: 50,
        ..safe_rule("a", 0)
    };
    let config = rules([half, shaped(safe_rule("b", 50))]);
    let process = FakeProcess::new();
    process.calls_fail.set(true);
    let mut worker = Worker::new(&process, 1, &config);
    while worker.request(&["", "busy"]) == Decision::Admit {}
    let mut waiting = vec![worker.streams];
    for _ in 0..60 {
        if worker.request(&["1", "busy"]) == Decision::Hold {
            waiting.push(worker.streams);
        }
    }
    assert!((20..40).contains(&waiting.len()), "{waiting:?}");
    for n in 0..1000 {
        worker.tick(Duration::from_millis(1));
        // A request that comes meanwhile and needs nothing of `a` has no shadowed refusal.
        assert_eq!(worker.request(&["", &n.to_string()]), Decision::Admit);
        assert!(!worker.reports.contains_key(&worker.streams));
    }
    assert_eq!(worker.resumed, waiting);
    assert!(worker.denied.is_empty());
    let shadowed = |stream: u32| worker.reports[&stream].shadowed.map(reason);
    assert_eq!(shadowed(waiting[0]), None);
    for stream in &waiting[1..] {
        assert_eq!(shadowed(*stream), Some((0, Some(Unit::Requests))));
    }
    let shadowed = waiting.len() as u64 - 1;
    assert_eq!(worker.shadowed("a").requests.get(), shadowed);
    assert_eq!(worker.refused("a").requests.get(), 60 - shadowed);
}

#[test]
fn a_request_shadowed_before_any_scope_is_noted_when_it_goes_on_after_a_wait() {
    let config = rules([shadow(safe_rule("a", 10)), shaped(safe_rule("b", 50))]);
    let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
    worker.needs_key.insert(RuleId(0));
    while worker.request(&["", "busy"]) == Decision::Admit {}
    let waits = worker.streams;
    for _ in 0..100 {
        worker.tick(Duration::from_millis(1));
    }
    assert_eq!(worker.resumed, [waits]);
    let shadowed = worker.reports[&waits].shadowed;
    assert_eq!(shadowed, Some(Refusal::Missing { rule: RuleId(0) }));
}

#[test]
fn scopes_without_a_slot_share_pass_or_are_refused() {
    for (on_overflow, passes) in [
        (Overflow::Share, 10),
        (Overflow::Pass, 200),
        (Overflow::Refuse, 0),
    ] {
        let mut config = settings(10, 100);
        config.rules[0].on_overflow = on_overflow;
        let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
        for n in 0..20 {
            worker.of(&format!("known-{n}"));
        }
        assert_eq!(worker.admitted("unseen", 200), passes, "{on_overflow:?}");
    }
}

#[test]
fn a_key_like_an_overflow_scope_is_limited_as_any_other() {
    for on_overflow in [Overflow::Share, Overflow::Pass, Overflow::Refuse] {
        let mut config = settings(10, 100);
        config.rules[0].on_overflow = on_overflow;
        let mut worker = Worker::new(&FakeProcess::new(), 1, &config);
        for key in ["~overflow-zz", "~overflow-0", "~overflow-"] {
            assert_eq!(worker.admitted(key, 200), 10, "{on_overflow:?} {key}");
        }
    }
}

#[test]
fn nobody_chooses_an_overflow_scope() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(10, 100));
    for n in 0..40 {
        worker.of(&format!("unseen-{n}"));
    }
    let keys = (0..256).map(|n| format!("~overflow-{n}"));
    let admission = &worker.engine.admission;
    let is_known = |key: &String| admission.entry_of(RuleId(0), key.as_bytes()).is_some();
    let known: Vec<_> = keys.filter(is_known).collect();
    assert!(!known.is_empty());
    let settings = worker.root.settings;
    for key in known {
        let mut request = worker.engine.begin(settings, 1, Tokens::ONE);
        assert!(!worker.engine.add(&mut request, RuleId(0), key.as_bytes()));
    }
}

#[test]
fn a_disabled_engine_limits_nothing_and_keeps_its_balances() {
    let mut worker = Worker::new(&FakeProcess::new(), 1, &settings(3, 100));
    assert_eq!(worker.admitted("acme", 10), 3);
    let off = EngineConfig {
        enabled: false,
        ..settings(3, 100)
    };
    worker.configure(&off);
    assert_eq!(worker.admitted("acme", 100), 100);
    worker.configure(&settings(3, 100));
    assert_eq!(worker.admitted("acme", 10), 0);
}
