//! Refusals without effect, and marks.

use super::*;

#[test]
fn shadowed_refusals_are_counted_noted_and_logged_now_and_then() {
    let shadow = r#", "enforced_percent": 0, "missing": "deny""#;
    let mut proxy = Proxy::new(&rule_with(shadow, r#", "first_lease_wait_ms": 0"#));
    assert_eq!(proxy.admitted("acme", 24), 24);
    proxy.host().notes.borrow_mut().clear();
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(proxy.noted(0, "shadow").as_deref(), Some("tenant/requests"));
    proxy.host().notes.borrow_mut().clear();
    assert_eq!(proxy.request(&[]), Decision::Admit);
    proxy.tick(TICK);
    assert_eq!(proxy.metric("shadowed.tenant.requests"), 15);
    assert_eq!(proxy.metric("shadowed.tenant.missing"), 1);
    assert_eq!(proxy.metric("refused.tenant.requests"), 0);
    assert_eq!(proxy.metric("allowed"), 26);
    assert_eq!(proxy.noted(0, "shadow").as_deref(), Some("tenant/missing"));
    let logs = proxy.process().logs.borrow();
    let lines = logs.iter().filter(|(_, line)| line.contains("(shadow)"));
    assert_eq!(lines.count(), 1);
}

#[test]
fn a_mark_is_noted_instead_of_a_refusal_and_a_foreign_one_is_removed() {
    let fields = r#", "first_lease_wait_ms": 0"#;
    let mut proxy = Proxy::new(&rule_with(r#", "on_limit": "mark""#, fields));
    assert_eq!(proxy.admitted("acme", 10), 10);
    assert_eq!(proxy.noted(0, "mark"), None);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(proxy.noted(0, "mark").as_deref(), Some("tenant/requests"));
    assert_eq!(proxy.noted(0, "shadow"), None);
    // Its own mark, left by an earlier filter of the chain, stays.
    proxy.host().set_headers(&[("tollgate-mark", "x")]);
    proxy.host().properties.borrow_mut().insert(
        "filter_state.wasm.tollgate.mark".to_owned(),
        b"a/b".to_vec(),
    );
    proxy.worker.remove_foreign_mark();
    assert_eq!(proxy.noted(0, "mark").as_deref(), Some("tenant/requests"));
    proxy.host().properties.borrow_mut().clear();
    proxy.host().notes.borrow_mut().clear();
    proxy.worker.remove_foreign_mark();
    assert_eq!(proxy.noted(0, "mark").as_deref(), Some(""));
    proxy.tick(TICK);
    assert!(proxy.metric("shadowed.tenant.requests") > 0);
    let logs = proxy.process().logs.borrow();
    assert!(!logs.iter().any(|(_, line)| line.contains("(shadow)")));
}

#[test]
fn a_mark_stays_beside_another_rule_in_shadow_mode() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "on_limit": "mark", "safe_capacity": 1},
        {"name": "b", "key": {"header": "x"}, "enforced_percent": 0, "safe_capacity": 1}]}"#;
    let mut proxy = Proxy::new(&config(json));
    assert_eq!(proxy.admitted("acme", 3), 3);
    proxy.host().notes.borrow_mut().clear();
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(proxy.noted(0, "mark").as_deref(), Some("a/requests"));
    assert_eq!(proxy.noted(0, "shadow").as_deref(), Some("b/requests"));
}

#[test]
fn a_request_shadowed_before_any_scope_is_noted_when_it_goes_on_after_a_wait() {
    let json = r#"{"coordinator": "c", "first_lease_wait_ms": 0, "scopes": [
        {"name": "a", "key": {"header": "x"}, "missing": "deny", "enforced_percent": 0},
        {"name": "b", "key": {"header": "y"}, "safe_capacity": 50, "on_limit": "shape"}]}"#;
    let mut proxy = Proxy::new(&config(json));
    while proxy.request(&[("y", "busy")]) == Decision::Admit {}
    let waits = proxy.streams;
    proxy.host().select(0).unwrap();
    for _ in 0..100 {
        proxy.tick(Duration::from_millis(1));
    }
    assert_eq!(*proxy.host().resumed.borrow(), [waits]);
    assert_eq!(proxy.noted(waits, "shadow").as_deref(), Some("a/missing"));
}
