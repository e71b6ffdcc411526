//! Settings that are refused.

use std::time::Duration;

use tollgate_client::{Client, ClientTlsConfig, Rule, Settings};

#[tokio::test]
async fn an_error_names_setting_value_and_rule() {
    let good = || Settings::new("http://localhost:7710").rule(Rule::new("tenant"));
    let bad_rule = |rule| Settings::new("http://localhost:7710").rule(rule);
    let many = (0..16).fold(good(), |many, i| many.rule(Rule::new(format!("r{i}"))));
    let rows = [
        (
            Settings::new("localhost:7710"),
            "coordinator is \"localhost:7710\": must begin with http",
        ),
        (
            good().or("https://other:1"),
            "coordinator is \"https://other:1\": needs `tls`",
        ),
        (
            good().or("http://no address"),
            "coordinator is \"http://no address\": ",
        ),
        (
            Settings::new("http://localhost:7710"),
            "rules is 0: there must be 1 to 16",
        ),
        (many, "rules is 17: there must be 1 to 16"),
        (
            good().rule(Rule::new("tenant")),
            "rule is tenant: two rules have this name",
        ),
        (good().node(""), "node is \"\": must not be empty"),
        (good().node("x".repeat(300)), "node is xxx"),
        (good().max_scopes(0), "max_scopes is 0: must be 1 to"),
        (
            good().call_timeout(Duration::ZERO),
            "call_timeout is 0 ms: must be",
        ),
        (
            bad_rule(Rule::new("Tenant")),
            "rule is \"Tenant\": must be 1 to 40",
        ),
        (
            bad_rule(Rule::new("t").safe_capacity(f64::NAN)),
            "safe_capacity is NaN: must be",
        ),
        (
            bad_rule(Rule::new("t").safe_capacity(-1.0)),
            "safe_capacity is -1: must be",
        ),
        (
            bad_rule(Rule::new("t").max_wait(Duration::from_secs(61))),
            "max_wait is 61s: ",
        ),
        (
            bad_rule(Rule::new("t").max_debt(Duration::from_secs(61))),
            "max_debt is 61s: ",
        ),
        (
            bad_rule(Rule::new("t").enforced(101)),
            "enforced is 101: must be 0 to 100",
        ),
        (
            bad_rule(Rule::new("t").priority(16)),
            "priority is 16: must be 0 to 15",
        ),
    ];
    for (settings, want) in rows {
        let error = Client::start(&settings).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error} instead of {want}");
    }
    let secured = good().or("https://other:1").tls(ClientTlsConfig::new());
    Client::start(&secured).unwrap();
}
