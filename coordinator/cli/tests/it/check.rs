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
fn a_filters_configuration_is_checked_by_its_own_parser() {
    let rows = [
        (
            "{\"coordinator\": \"c\",\n \"scopes\": [{\"name\": \"a\", \"key\": {\"header\": \"x\"},\n  \"when\": {\"pth\": 1}}]}",
            json!([3, 19, "scopes[0].when.pth"]),
            "3:19: scopes[0].when.pth (did you mean path?) is not known",
        ),
        (
            "{\"coordinator\": \"c\", \"scopes\": [{\"name\": \"a\"}]}",
            json!([1, 33, "scopes[0].key"]),
            "1:33: scopes[0].key is required: an object with one of header",
        ),
        (
            "{\"coordinator\": \"c\",\n \"scopes\": [}",
            json!([2, 13, null]),
            "2:13: the configuration is not JSON",
        ),
    ];
    for (text, place, message) in rows {
        let (code, report) = report(text);
        let finding = &report["findings"][0];
        let found = json!([finding["line"], finding["column"], finding["field"]]);
        assert_eq!((code, found), (2, place), "{report}");
        let text = finding["message"].as_str().unwrap();
        assert!(text.starts_with(message), "{text}");
    }
    // Within an Envoy's configuration, in a block of text and in an object.
    let envoy = |config: &str| {
        file(&format!(
            "filters:\n- '@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n  \
             config:\n    configuration:\n{config}"
        ))
    };
    let text = "      value: |\n        {\"coordinator\": \"c\",\n         \"scopes\": 7}\n";
    let object = "      value: {coordinator: c, scopes: 7}\n";
    for (config, place) in [(text, "7:20"), (object, "5:39")] {
        let file = envoy(config);
        let path = file.path().to_str().unwrap();
        let (code, _, err) = run(&["check", path]);
        let want = format!("{path}:{place}: scopes is 7: must be a list of 1 to 16 scope rules\n");
        assert_eq!(
            (code, err.lines().last()),
            (2, want.lines().last()),
            "{err}"
        );
        let (code, _, err) = run(&["check", path, "--scope", "tenant/acme"]);
        assert!(code == 2 && err.contains("has no limits"), "{err}");
    }
}

#[test]
fn listeners_of_a_process_that_define_a_rule_differently_are_warned_of_once() {
    let listener = |enforced: u8, vm: &str| {
        let rule = format!("{{name: a, key: {{header: x}}, enforced_percent: {enforced}}}");
        format!(
            "- '@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n  \
             config:\n    vm_config: {{vm_id: {vm}}}\n    configuration:\n      value:\n        \
             {{coordinator: c, scopes: [{rule}]}}\n"
        )
    };
    let check = |second: u8, vm: &str| {
        let all = [listener(100, "a"), listener(100, "a"), listener(second, vm)];
        let file = file(&format!("filters:\n{}", all.concat()));
        run(&["check", file.path().to_str().unwrap()])
    };
    let (code, out, err) = check(0, "a");
    let warning =
        ":19:34: rule a: enforced_percent is 100 and 0: an Envoy has one rule of each name\n";
    assert!(code == 0 && err.ends_with(warning), "{out}{err}");
    assert!(err.starts_with("tollgate: 1 warning in "), "{err}");
    for (second, vm) in [(100, "a"), (0, "b")] {
        let (code, out, err) = check(second, vm);
        assert!(code == 0 && err.is_empty(), "{out}{err}");
    }
}

#[test]
fn every_envoy_of_the_examples_has_a_good_filter() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../envoy"));
    let mut good = 0;
    for folder in [
        "quickstart",
        "demo/quickstart",
        "examples/jwt",
        "examples/matcher",
        "examples/dynamic-module",
        "examples/tls",
    ]
    .map(|name| folder.join(name))
    {
        let path = folder.join("envoy.yaml");
        let (code, out, err) = run(&["check", path.to_str().unwrap()]);
        assert!(
            code == 0 && out.contains(": good, "),
            "{}: {out}{err}",
            path.display()
        );
        good += 1;
    }
    assert_eq!(good, 6);
}

#[test]
fn a_limit_that_is_never_used_is_warned_of_and_the_file_is_good() {
    let text = "limits:\n\
                - {match: 'tenant/*', requests: {rate: 5}}\n\
                - {match: 'tenant/a*', requests: {rate: 1}}\n";
    let warned = file(text);
    let path = warned.path().to_str().unwrap();
    let (code, out, err) = run(&["check", path]);
    let good = format!("{path}: good, 2 limits\n");
    assert!(code == 0 && out.starts_with(&good), "{out}");
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
fn the_fallback_of_each_limit_is_shown() {
    let text = "limits:\n\
                - {match: 'login/*', requests: {rate: 0.05, burst: 3}, concurrency: {max: 2}}\n\
                - {match: tenant/acme, requests: {rate: 1000, safe: 20}}\n\
                - {match: tenant/bolt, requests: {rate: 1000, burst: 5}}\n\
                - {match: tenant/coda, request_bytes: {rate: 50MiB, safe: dynamic}}\n\
                - {match: '*', requests: {rate: unlimited}}\n\
                groups: {gold: {requests: {rate: 6}}}\n\
                attach: {tenants: {dora: gold}}\n";
    let file = file(text);
    let (code, out, err) = run(&["check", file.path().to_str().unwrap()]);
    let (_, table) = out.split_once('\n').unwrap();
    let want = "\
WITHOUT A LEASE  UNIT           EACH ENVOY    AT ONCE  WHY
tenant/acme      requests               20         20  safe
tenant/bolt      requests               10          5  for want of safe, unless its filter says otherwise
tenant/coda      request_bytes       50MiB      50MiB  at most: the limit over the known Envoys
login/*          requests             0.05          1  the whole limit, for want of safe
login/*          concurrency             2          -  the whole limit, for want of safe
*                requests        unlimited  unlimited  there is no limit
group/gold       requests                6          6  the whole limit, for want of safe
";
    assert_eq!((code, table, err.as_str()), (0, want, ""));
    let (_, report) = report(text);
    let first = &report["fallbacks"][0];
    assert_eq!(
        (&first["of"], &first["each_envoy"]),
        (&json!("tenant/acme"), &json!(20.0))
    );
}

/// Of many limits the first are enough for a person.
#[test]
fn of_many_fallbacks_the_first_are_shown() {
    let limit = |i| format!("- {{match: tenant/{i:03}, requests: {{rate: 5}}}}\n");
    let limits: String = (0..100).map(limit).collect();
    let file = file(&format!("limits:\n{limits}"));
    let (_, out, _) = run(&["check", file.path().to_str().unwrap()]);
    assert_eq!(out.lines().count(), 1 + 1 + 20 + 1, "{out}");
    assert!(out.ends_with("and 80 more; --json has all\n"), "{out}");
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

const GROUPS: &str = "
limits:
- {match: tenant/acme, requests: {rate: 100, burst: 20}}
- {match: 'tenant/a*', requests: {rate: 200}}
- {match: 'tenant/*', request_bytes: {rate: 5MiB}}
- {match: '*', requests: {rate: unlimited}}
groups:
  gold: {requests: {rate: 20k}, concurrency: {max: 50}}
  pool: {requests: {rate: 300}, fair_between: clients}
attach:
  tenants: {acme: {group: gold, weight: 3}, bee: pool}
";

#[test]
fn each_limit_of_a_scope_is_shown_with_its_origin_and_the_reason() {
    let limits = file(GROUPS);
    let path = limits.path().to_str().unwrap();
    let (code, out, err) = run(&["check", "--config", path, "--scope", "tenant/acme"]);
    let want = "\
UNIT                LIMIT  BURST  FROM               WHY
requests              100     20  match tenant/acme  names it; comes before tenant/a*, tenant/*, *
requests            20000  20000  group gold         divided between the group's members; weight 3
request_bytes   unlimited      -  default            match tenant/acme decides for all units and does not name this one
response_bytes  unlimited      -  default            match tenant/acme decides for all units and does not name this one
concurrency            50      -  group gold         divided between the group's members; weight 3
";
    assert_eq!((code, out.as_str(), err.as_str()), (0, want, ""));
}

#[test]
fn programs_get_the_limits_of_a_scope_too() {
    let limits = file(GROUPS);
    let path = limits.path().to_str().unwrap();
    let explain = |scope: &str| -> Vec<(Value, Value, Value, Value)> {
        let (code, out, err) = run(&["check", path, "--scope", scope, "--json"]);
        assert_eq!((code, err.as_str()), (0, ""));
        let answer: Value = serde_json::from_str(&out).unwrap();
        let limits = answer["limits"].as_array().unwrap().iter();
        let requests = limits.filter(|one| one["unit"] == "requests");
        let parts = requests.map(|one| {
            let capacity = one["limit"]["capacity"].clone();
            (
                capacity,
                one["from"]["kind"].clone(),
                one["from"].clone(),
                one["why"].clone(),
            )
        });
        parts.collect()
    };
    let one = |scope: &str| {
        let mut all = explain(scope);
        assert_eq!(all.len(), 1, "{scope}: {all:?}");
        all.remove(0)
    };
    let (capacity, _, from, why) = one("tenant/ant");
    assert_eq!(
        (capacity, &from["match"]),
        (json!(200.0), &json!("tenant/a*"))
    );
    assert_eq!(
        why,
        "the first pattern that matches; comes before tenant/*, *"
    );
    let (capacity, _, from, why) = one("tenant/bee");
    assert_eq!((capacity, &from["name"]), (json!(300.0), &json!("pool")));
    assert_eq!(why, "all members of the group use it together");
    let (capacity, kind, _, why) = one("route/x");
    assert_eq!((capacity, kind), (Value::Null, json!("default")));
    assert_eq!(why, "match * says unlimited");
    let (capacity, kind, _, why) = one("group/gold");
    assert_eq!((capacity, kind), (json!(20000.0), json!("group")));
    assert_eq!(why, "it is the group's own scope");

    let namespace = explain("namespace/acme/orders");
    let rows: Vec<_> = namespace
        .iter()
        .map(|(capacity, kind, ..)| (capacity, kind))
        .collect();
    let want = [
        (json!(100.0), json!("file")),
        (json!(20000.0), json!("group")),
    ];
    assert_eq!(rows, want.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
    assert_eq!(
        namespace[0].3,
        "requests of namespace/acme/orders count for tenant/acme, too"
    );
}

#[test]
fn a_scope_is_explained_only_from_a_good_file() {
    let bad = file("limits: [{match: a, requests: {rate: -5}}]");
    let path = bad.path().to_str().unwrap();
    let (code, _, err) = run(&["check", path, "--scope", "a"]);
    assert!(code == 2 && err.contains("-5 is negative"), "{err}");
    let (code, out, _) = run(&["check", path, "--scope", "a", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["good"]), (2, &json!(false)));
    let good = file(GOOD);
    let path = good.path().to_str().unwrap();
    let (code, _, err) = run(&["check", path, "--scope", ""]);
    assert!(code == 2 && err.contains("--scope"), "{err}");
    let (code, _, err) = run(&["check", "--scope", "a"]);
    assert!(code == 2 && err.contains("Usage"), "{err}");
}
