//! Requests of which only their end says what they have cost.

use super::*;
use crate::host::Host;

const RULE: &str = r#"{"coordinator": "c", "max_debt_ms": 60000, "scopes": [{"name": "tenant",
    "key": {"header": "x"}, "final_cost": {"metadata": ["tollgate", "cost"]}}]}"#;

impl Proxy {
    /// The stream ends, and its metadata says what it has cost.
    fn end_at(&mut self, context: u32, cost: &[u8]) {
        let place = "metadata.filter_metadata.tollgate.cost".to_owned();
        self.host()
            .properties
            .borrow_mut()
            .insert(place, cost.to_vec());
        self.host().select(context).unwrap();
        self.worker.forget(context);
        self.host().properties.borrow_mut().clear();
    }

    fn pause(&mut self, tenant: &str) -> Duration {
        let now = self.host().now();
        let retry_at = denial(self.of(tenant)).retry_at.unwrap();
        retry_at.saturating_since(now)
    }

    /// Answers all calls, and says what the last one wanted, if there was one.
    fn wanted(&mut self) -> Option<f64> {
        let mut wanted = None;
        while let Some((token, call)) = self.host().process.take_call() {
            wanted = Some(call.refresh().scopes[0].units[0].wants);
            self.worker.handle_answer(token, &call.lend(100.0));
        }
        wanted
    }
}

/// A proxy with a lease of 100 tokens a second for `acme` and all of its burst but one.
fn leased() -> Proxy {
    let mut proxy = Proxy::new(&Process::new(), 1, &config(RULE));
    proxy.lease("acme", 100.0);
    proxy
}

#[test]
fn what_a_request_has_cost_is_a_debt_that_the_next_one_waits_for() {
    let mut proxy = leased();
    assert_eq!(proxy.of("acme"), Decision::Admit);
    let context = proxy.streams;
    assert!(proxy.worker.remembers(context));
    // Two of the burst of 100 are spent: 98 pay, 401 are owed, and one more is needed.
    proxy.end_at(context, &500.0_f64.to_le_bytes());
    assert_eq!(proxy.pause("acme"), Duration::from_millis(4020));
    proxy
        .host()
        .process
        .advance(Duration::from_millis(4020) - Duration::from_nanos(1));
    assert!(matches!(proxy.of("acme"), Decision::Deny(_)));
    proxy.host().process.advance(Duration::from_nanos(1));
    assert_eq!(proxy.of("acme"), Decision::Admit);
    assert_eq!(
        proxy.worker.engine.streams_open(),
        2,
        "the first, which was held, and this"
    );
}

#[test]
fn a_refusal_after_the_end_knows_of_the_debt() {
    let mut proxy = leased();
    assert_eq!(proxy.of("acme"), Decision::Admit);
    let context = proxy.streams;
    assert_eq!(proxy.admitted("acme", 200), 98);
    assert_eq!(proxy.pause("acme"), Duration::from_millis(10));
    proxy.end_at(context, b"101");
    assert_eq!(proxy.pause("acme"), Duration::from_millis(1010));
}

#[test]
fn what_was_paid_counts_and_nothing_is_given_back() {
    let mut proxy = leased();
    for cost in [&b"1"[..], b"0", b"", b"-5", &f64::NAN.to_le_bytes()] {
        assert_eq!(proxy.of("acme"), Decision::Admit);
        let context = proxy.streams;
        proxy.end_at(context, cost);
    }
    proxy.tick(TICK);
    assert_eq!(proxy.host().process.metric("invalid_costs"), 3);
    // Six are spent, and two have come in since.
    assert_eq!(proxy.admitted("acme", 200), 96);
}

#[test]
fn a_debt_is_bounded_by_the_configuration() {
    let json = RULE.replace("60000", "2000");
    let mut proxy = Proxy::new(&Process::new(), 1, &config(&json));
    proxy.lease("acme", 100.0);
    assert_eq!(proxy.of("acme"), Decision::Admit);
    let context = proxy.streams;
    proxy.end_at(context, b"99999999999999");
    assert_eq!(proxy.pause("acme"), Duration::from_millis(2010));
}

#[test]
fn refused_requests_want_what_they_would_have_cost() {
    let mut proxy = leased();
    let mut wants = 0.0;
    let mut passed = 0;
    // Ten requests a second for five seconds, at 20 each.
    for tick in 0..250 {
        if tick % 5 == 0 {
            passed += usize::from(proxy.of("acme") == Decision::Admit);
            let context = proxy.streams;
            proxy.end_at(context, b"20");
        }
        proxy.tick(TICK);
        wants = proxy.wanted().unwrap_or(wants);
    }
    // The burst and five seconds of the lease are worth 30.
    assert!((27..=33).contains(&passed), "{passed}");
    assert!((180.0..=230.0).contains(&wants), "{wants}");
}

#[test]
fn without_metadata_and_without_the_rule_nothing_is_charged() {
    let mut proxy = leased();
    assert_eq!(proxy.of("acme"), Decision::Admit);
    let context = proxy.streams;
    proxy.worker.forget(context);
    assert_eq!(proxy.admitted("acme", 200), 98);

    let mut plain = Proxy::new(&Process::new(), 1, &one_rule(""));
    plain.lease("acme", 100.0);
    assert_eq!(plain.of("acme"), Decision::Admit);
    let context = plain.streams;
    assert!(!plain.worker.remembers(context));
    plain.end_at(context, b"500");
    assert_eq!(plain.admitted("acme", 200), 98);
}
