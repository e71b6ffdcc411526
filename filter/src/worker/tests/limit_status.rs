//! Limit status of admitted requests.

use super::*;

impl Proxy {
    /// The latest note of that name, taken away.
    fn noted(&self, name: &str) -> Option<String> {
        let mut notes = self.host().notes.borrow_mut();
        let found = notes.keys().find(|(_, other)| other == name).cloned()?;
        notes.remove(&found)
    }
}

#[test]
fn admitted_requests_are_told_what_is_left_and_refused_ones_are_not() {
    let config = one_rule(r#", "admitted_headers": ["ietf", "draft03"]"#);
    let mut proxy = Proxy::new(&Process::new(), 1, &config);
    proxy.lease("acme", 100.0);
    let told = proxy.noted("tollgate.ratelimit");
    assert_eq!(told.as_deref(), Some(r#""tenant";r=99;t=1"#), "it was held");
    for left in (0..99).rev() {
        assert_eq!(proxy.of("acme"), Decision::Admit);
        let told = proxy.noted("tollgate.ratelimit");
        assert_eq!(told, Some(format!(r#""tenant";r={left};t=1"#)));
        let told = proxy.noted("tollgate.x_ratelimit_remaining");
        assert_eq!(told, Some(left.to_string()));
    }
    let policy = proxy.noted("tollgate.ratelimit_policy");
    assert_eq!(policy.as_deref(), Some(r#""tenant";q=100;w=1"#));
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    assert_eq!(proxy.noted("tollgate.ratelimit"), None);
}

#[test]
fn what_a_worker_has_drawn_ahead_is_left_too() {
    let config = one_rule(r#", "admitted_headers": ["draft03"]"#);
    let mut proxy = Proxy::new(&Process::new(), 1, &config);
    proxy.lease("acme", 10_000.0);
    for left in (9800..9999).rev() {
        assert_eq!(proxy.of("acme"), Decision::Admit);
        let told = proxy.noted("tollgate.x_ratelimit_remaining");
        assert_eq!(told, Some(left.to_string()));
    }
}

#[test]
fn nothing_is_told_unless_it_is_asked_for() {
    let mut proxy = Proxy::new(&Process::new(), 1, &one_rule(""));
    proxy.lease("acme", 100.0);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(proxy.noted("tollgate.ratelimit"), None);
    let scope = proxy.worker.engine.scope(RuleId(0), b"acme").unwrap();
    assert!(!scope.has_limit_status);
}
