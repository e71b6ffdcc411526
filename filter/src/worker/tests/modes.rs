//! Rules that refuse less than they could, or are not about every request.

use super::*;

/// A rule that has ten tokens and never gets a lease.
fn rule(fields: &str) -> Config {
    config(&format!(
        r#"{{"coordinator": "c", "first_lease_wait_ms": 0, "max_scopes": 20, "scopes": [
            {{"name": "tenant", "key": {{"header": "x"}}, {fields}}}]}}"#
    ))
}

#[test]
fn a_shadow_counts_what_it_would_refuse_and_lets_it_pass() {
    let process = Process::new();
    let mut proxy = Proxy::new(
        &process,
        1,
        &rule(r#""enforced_percent": 0, "missing": "deny""#),
    );
    assert_eq!(proxy.admitted("acme", 25), 25);
    assert_eq!(proxy.request(&[]), Decision::Admit);
    proxy.tick(TICK);
    assert_eq!(process.metric("shadowed.tenant.requests"), 15);
    assert_eq!(process.metric("shadowed.tenant.missing"), 1);
    assert_eq!(process.metric("refused.tenant.requests"), 0);
    assert_eq!(process.metric("allowed"), 26);
    let notes = proxy.host().notes.borrow();
    let note = notes.get(&(0, "tollgate.shadow".to_owned()));
    assert_eq!(note.map(String::as_str), Some("tenant/missing"));
    let logs = process.logs.borrow();
    let told = logs.iter().filter(|(_, line)| line.contains("(shadow)"));
    assert_eq!(told.count(), 1);
}

#[test]
fn a_shadow_holds_nobody_and_asks_for_its_lease_all_the_same() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "tenant", "key": {"header": "x"}, "enforced_percent": 0}]}"#;
    let mut proxy = Proxy::new(&Process::new(), 1, &config(json));
    assert_eq!(proxy.of("acme"), Decision::Admit);
    proxy.tick(Duration::from_millis(1));
    assert_eq!(proxy.host().process.calls.borrow().len(), 1);
}

#[test]
fn a_shadow_counts_a_request_once_that_another_rule_holds() {
    let json = r#"{"coordinator": "c", "scopes": [
        {"name": "strict", "key": {"header": "x"}},
        {"name": "shadow", "key": {"header": "x"}, "safe_capacity": 0, "enforced_percent": 0}]}"#;
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &config(json));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(50));
    assert_eq!(*proxy.host().resumed.borrow(), [101]);
    proxy.tick(TICK);
    assert_eq!(process.metric("shadowed.shadow.requests"), 1);
    let notes = proxy.host().notes.borrow();
    let note = notes.get(&(101, "tollgate.shadow".to_owned()));
    assert_eq!(note.map(String::as_str), Some("shadow/requests"));
}

#[test]
fn a_shadow_beside_a_rule_in_force_changes_nothing_for_it() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "strict", "key": {"header": "x"}, "safe_capacity": 5},
        {"name": "shadow", "key": {"header": "x"}, "safe_capacity": 2, "enforced_percent": 0}]}"#;
    let mut proxy = Proxy::new(&Process::new(), 1, &config(json));
    assert_eq!(proxy.admitted("acme", 20), 5);
    assert!(matches!(
        proxy.of("acme"),
        Decision::Deny(Refusal::Denied {
            rule: RuleId(0),
            ..
        })
    ));
}

#[test]
fn a_part_of_the_refusals_can_be_in_force() {
    let process = Process::new();
    let mut proxy = Proxy::new(&process, 1, &rule(r#""enforced_percent": 25"#));
    assert_eq!(proxy.admitted("acme", 10), 10);
    let passed = proxy.admitted("acme", 4000);
    assert!((2900..3100).contains(&passed), "{passed}");
    proxy.tick(TICK);
    let shadowed = process.metric("shadowed.tenant.requests");
    assert_eq!(usize::try_from(shadowed).unwrap(), passed);
    assert_eq!(process.metric("refused.tenant.requests"), 4000 - shadowed);
}

/// Half of what `a`, which has nothing, would refuse goes on to `b`, where it waits.
#[test]
fn who_was_spared_once_is_spared_at_its_turn() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "missing": "skip", "safe_capacity": 0,
         "enforced_percent": 50},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 50, "on_limit": "shape"}]}"#;
    let process = Process::new();
    process.calls_fail.set(true);
    let mut proxy = Proxy::new(&process, 1, &config(json));
    while proxy.request(&[("y", "busy")]) == Decision::Admit {}
    let mut waiting = vec![proxy.streams];
    for _ in 0..60 {
        if proxy.request(&[("x", "1"), ("y", "busy")]) == Decision::Hold {
            waiting.push(proxy.streams);
        }
    }
    assert!((20..40).contains(&waiting.len()), "{waiting:?}");
    for n in 0..1000 {
        proxy.tick(Duration::from_millis(1));
        // A request that comes meanwhile and needs nothing of `a` has no shadowed refusal.
        proxy.host().select(0).unwrap();
        assert_eq!(proxy.request(&[("y", &format!("{n}"))]), Decision::Admit);
    }
    assert_eq!(*proxy.host().resumed.borrow(), waiting);
    assert!(proxy.host().replies.borrow().is_empty());
    let notes = proxy.host().notes.borrow();
    let shadowed = |context: u32| notes.get(&(context, "tollgate.shadow".to_owned()));
    assert_eq!((shadowed(0), shadowed(waiting[0])), (None, None));
    for context in &waiting[1..] {
        assert_eq!(shadowed(*context).map(String::as_str), Some("a/requests"));
    }
    let shadowed = waiting.len() as i64 - 1;
    assert_eq!(process.metric("shadowed.a.requests"), shadowed);
    assert_eq!(process.metric("refused.a.requests"), 60 - shadowed);
}

#[test]
fn who_was_spared_without_a_scope_and_then_waits_is_noted_when_it_goes_on() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "missing": "deny", "enforced_percent": 0},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 50, "on_limit": "shape"}]}"#;
    let mut proxy = Proxy::new(&Process::new(), 1, &config(json));
    while proxy.request(&[("y", "busy")]) == Decision::Admit {}
    let waits = proxy.streams;
    proxy.host().select(0).unwrap();
    for _ in 0..100 {
        proxy.tick(Duration::from_millis(1));
    }
    assert_eq!(*proxy.host().resumed.borrow(), [waits]);
    let notes = proxy.host().notes.borrow();
    let noted = notes.get(&(waits, "tollgate.shadow".to_owned()));
    assert_eq!(noted.map(String::as_str), Some("a/missing"));
}

#[test]
fn scopes_without_a_slot_share_pass_or_are_refused() {
    for (fields, passes) in [
        (r#""on_overflow": "share""#, 10),
        (r#""on_overflow": "pass""#, 200),
        (r#""on_overflow": "refuse""#, 0),
    ] {
        let mut proxy = Proxy::new(&Process::new(), 1, &rule(fields));
        for n in 0..20 {
            proxy.of(&format!("known-{n}"));
        }
        let strangers = (0..200).filter(|n| proxy.of(&format!("stranger-{n}")) == Decision::Admit);
        assert_eq!(strangers.count(), passes, "{fields}");
    }
}

#[test]
fn a_rule_is_about_those_that_its_condition_means() {
    let fields = r#""when": {"methods": ["POST"], "path_prefix": "/api/"}, "safe_capacity": 0"#;
    let mut proxy = Proxy::new(&Process::new(), 1, &rule(fields));
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
fn a_disabled_filter_limits_nothing_and_keeps_its_balances() {
    let mut proxy = Proxy::new(&Process::new(), 1, &rule(r#""safe_capacity": 3"#));
    assert_eq!(proxy.admitted("acme", 10), 3);
    let mut off = rule(r#""safe_capacity": 3"#);
    off.engine.enabled = false;
    proxy.rules = proxy.worker.configure(&off).unwrap();
    assert_eq!(proxy.admitted("acme", 100), 100);
    proxy.rules = proxy
        .worker
        .configure(&rule(r#""safe_capacity": 3"#))
        .unwrap();
    assert_eq!(proxy.admitted("acme", 10), 0);
}
