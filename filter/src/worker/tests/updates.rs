//! Configurations that come and go.

use super::*;
use crate::host::Level;
use crate::metrics::METRICS_MAX;

const TENANT: &str = r#"{"name": "tenant", "key": {"header": "x"}, "enforced_percent": 50}"#;

fn deployed(number: usize) -> Config {
    let rule =
        format!(r#"{{"name": "deploy-{number}", "key": {{"header": "x"}}, "missing": "deny"}}"#);
    config(&format!(r#"{{"coordinator": "c", "scopes": [{rule}]}}"#))
}

impl Proxy {
    fn warnings(&self) -> Vec<String> {
        let logs = self.process().logs.borrow();
        let warnings = logs.iter().filter(|(level, _)| *level == Level::Warn);
        warnings.map(|(_, message)| message.clone()).collect()
    }

    /// Passes so many minutes.
    fn pass_minutes(&mut self, minutes: u64) {
        for _ in 0..60 * minutes {
            self.tick(Duration::from_secs(1));
        }
    }
}

#[test]
fn two_listeners_that_define_a_rule_differently_are_warned_of_once() {
    let mut proxy = Proxy::new(&one_rule(""));
    let other = config(&format!(r#"{{"coordinator": "c", "scopes": [{TENANT}]}}"#));
    let user = InUse::default();
    proxy.worker.configure(&other, &user).unwrap();
    proxy.pass_minutes(14);
    assert_eq!(proxy.warnings(), [""; 0]);
    proxy.pass_minutes(10);
    let [warning] = &proxy.warnings()[..] else {
        panic!("{:?}", proxy.warnings());
    };
    let difference = "rule tenant: enforced_percent is 100 and 50";
    assert!(warning.ends_with(difference), "{warning}");
    drop(user);
}

#[test]
fn nobody_is_warned_of_an_update() {
    let mut proxy = Proxy::new(&one_rule(""));
    let other = config(&format!(r#"{{"coordinator": "c", "scopes": [{TENANT}]}}"#));
    proxy.configure(&other);
    proxy.pass_minutes(30);
    assert_eq!(proxy.warnings(), [""; 0]);
}

#[test]
fn a_rule_with_the_id_of_an_earlier_one_has_metrics_of_its_own() {
    let mut proxy = Proxy::new(&deployed(0));
    for number in 0..4 {
        proxy.configure(&deployed(number));
        for _ in 0..=number {
            proxy.request(&[]);
        }
        proxy.tick(TICK);
        let name = format!("refused.deploy-{number}.missing");
        assert_eq!(proxy.metric(&name), number as i64 + 1);
    }
}

#[test]
fn rules_beyond_the_bound_of_metrics_are_limited_all_the_same() {
    let mut proxy = Proxy::new(&deployed(0));
    for number in 1..1200 {
        proxy.configure(&deployed(number));
    }
    let defined = proxy.process().names.borrow().len();
    assert!(defined < METRICS_MAX + 20, "{defined}");
    let [warning] = &proxy.warnings()[..] else {
        panic!("{:?}", proxy.warnings());
    };
    assert!(
        warning.starts_with("tollgate: too many metrics: "),
        "{warning}"
    );
    assert!(matches!(proxy.request(&[]), Decision::Deny(_)));
    proxy.configure(&deployed(0));
    proxy.request(&[]);
    proxy.tick(TICK);
    assert_eq!(proxy.metric("refused.deploy-0.missing"), 1);
}
