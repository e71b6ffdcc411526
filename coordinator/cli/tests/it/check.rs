//! `tollgate check`: errors and warnings, for people and for programs.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::binary::{GOOD, file, run};

/// Returns the exit code and the report about `text`.
fn report(text: &str) -> (i32, Value) {
    let file = file(text);
    let path = file.path().to_str().unwrap();
    let (code, out, err) = run(&["check", path, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out} {err}"));
    assert_eq!(report["file"], path);
    (code, report)
}

#[test]
fn programs_get_each_error_in_its_parts() {
    let (code, report) = report(GOOD);
    assert_eq!(
        (code, &report["good"], &report["findings"]),
        (0, &json!(true), &json!([]))
    );

    let wrong = "limits: [{match: a, requests: {rate: -5, burst: 0.5}}]\n\
                 admin: {tokens: [{name: ci, role: boss, sha256: s3cret}]}";
    let (code, report) = self::report(wrong);
    assert_eq!((code, &report["good"]), (2, &json!(false)));
    let want = json!({
        "severity": "error", "line": 1, "column": 38, "field": "limits[0].requests.rate",
        "value": "-5", "rule": "-5 is negative",
        "message": "1:38: limits[0].requests.rate: -5 is negative",
    });
    assert_eq!(report["findings"][0], want);
    assert!(!report.to_string().contains("s3cret"), "{report}");

    let (_, report) = self::report("limits: [{match: a, requests: 100}]");
    let finding = &report["findings"][0];
    assert_eq!(finding["value"], "100");
    assert_eq!(
        finding["rule"],
        "`100` is not a mapping; write `requests: {rate: 100}`"
    );

    let (code, out, err) = run(&["check", "/no/such/file", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, err.as_str()),
        (2, "tollgate: 1 error in /no/such/file\n")
    );
    let rule = report["findings"][0]["rule"].as_str().unwrap();
    assert!(rule.starts_with("No such file"), "{rule}");

    let tls = format!("parent: {{addresses: ['root:7710'], tls: {{ca: /no/ca.pem}}}}\n{GOOD}");
    let (code, report) = self::report(&tls);
    assert_eq!(
        (code, &report["findings"][0]["field"]),
        (2, &json!("parent.tls"))
    );
}

#[test]
fn a_limit_that_is_never_used_is_warned_of_and_the_file_is_good() {
    let text = "limits:\n\
                - {match: 'tenant/*', requests: {rate: 5}}\n\
                - {match: 'tenant/a*', requests: {rate: 1}}\n";
    let warned = file(text);
    let path = warned.path().to_str().unwrap();
    let (code, out, err) = run(&["check", path]);
    assert_eq!((code, out), (0, format!("{path}: good, 2 limits\n")));
    let want = format!(
        "tollgate: 1 warning in {path}\n{path}:3:11: limits[1].match: \"tenant/a*\" is never used: \
         limits[0] matches every scope that it does, and the first match decides\n"
    );
    assert_eq!(err, want);

    let (code, report) = report(text);
    assert_eq!((code, &report["good"]), (0, &json!(true)));
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["line"]),
        (&json!("warning"), &json!(3))
    );
    assert_eq!(finding["value"], "tenant/a*");
}

#[test]
fn a_misspelt_group_is_guessed() {
    let text = "limits: []\ngroups: {gold: {requests: {rate: 5}}}\nattach: {tenants: {acme: glod}}";
    let (code, report) = report(text);
    let rule = "there is no group called \"glod\" in this file, did you mean \"gold\"?";
    assert_eq!((code, &report["findings"][0]["rule"]), (2, &json!(rule)));
}

/// Nothing in a configuration that we give out is without effect.
#[test]
fn no_shipped_configuration_has_warnings() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let examples = [
        "envoy/quickstart/tollgate.yaml",
        "coordinator/packaging/tollgate.yaml",
    ];
    for example in examples {
        let path = root.join(example);
        let (code, _, err) = run(&["check", path.to_str().unwrap()]);
        assert_eq!((code, err.as_str()), (0, ""), "{example}");
    }
}
