//! `tollgate import`: descriptors of envoyproxy/ratelimit as our configuration.

use std::fs;
use std::time::Duration;

use tempfile::NamedTempFile;
use tollgate_core::lease_server::Start;
use tollgate_net::wire::RateLimitServiceClient;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tonic::transport::{Channel, Endpoint};

use crate::binary::{file, run};
use crate::harness::Coordinator;

const EDGE: &str = "\
domain: edge
descriptors:
- key: tenant
  rate_limit: {unit: minute, requests_per_unit: 7}
- key: tenant
  value: acme
  rate_limit: {unit: HOUR, requests_per_unit: 11, name: acme}
- {key: tenant, value: internal}
- key: generic_key
  value: slow
  descriptors:
  - {key: path, value: '/api/*', rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: path, value: '/api/v[1]', rate_limit: {unit: second, requests_per_unit: 5}}
- key: generic_key
  descriptors:
  - key: path
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1, replaces: [{name: acme}]}
  - {key: path, value: /free, rate_limit: {unlimited: true}}
";

const TRANSLATED: &str = r#"# Translated by `tollgate import ratelimit FILE`.
rls:
  domains:
    edge:
      scopes:
      - {scope: "generic_key-path/{generic_key}/{path}", values: {generic_key: slow}}
      - {scope: "generic_key-path/{generic_key}/{path}", values: {path: /free}}
      - {scope: "generic_key-path/{generic_key}/{path}", replaces: [acme], shadow: true}
      - {scope: "tenant/{tenant}", values: {tenant: acme}, name: acme}
      - {scope: "tenant/{tenant}"}
limits:
- {match: tenant/acme, requests: {rate: 11/h}}
- {match: tenant/internal, requests: {rate: unlimited}}
- {match: tenant/*, requests: {rate: 7/min}}
- {match: "generic_key-path/slow/%2Fapi%2Fv\\[1\\]", requests: {rate: 5/s}}
- {match: generic_key-path/slow/%2Fapi%2F*, requests: {rate: 3/s}}
- {match: generic_key-path/slow/*, requests: {rate: unlimited}}
- {match: generic_key-path/*/%2Ffree, requests: {rate: unlimited}}
- {match: generic_key-path/*/*, requests: {rate: 1/min}}
"#;

/// Returns the new configuration and the messages on what is not in it.
#[track_caller]
fn import(text: &str) -> (String, String) {
    let source = file(text);
    let path = source.path().to_str().unwrap();
    let (code, out, err) = run(&["import", "ratelimit", path]);
    assert_eq!(code, 0, "{err}");
    (out.replace(path, "FILE"), err.replace(path, "FILE"))
}

/// Returns the error of a file that cannot be translated.
#[track_caller]
fn refusal(text: &str) -> String {
    let source = file(text);
    let path = source.path().to_str().unwrap();
    let (code, out, err) = run(&["import", "ratelimit", path]);
    assert_eq!((code, out.as_str()), (2, ""), "{text}: {err}");
    err.replace(path, "FILE")
}

/// Checks a new configuration, which has nothing that is without effect.
#[track_caller]
fn check(text: &str) {
    let config = file(text);
    let (code, _, err) = run(&["check", config.path().to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""), "{text}");
}

#[test]
fn descriptors_become_rules_of_scopes_and_their_limits() {
    let (out, err) = import(EDGE);
    assert_eq!((out.as_str(), err.as_str()), (TRANSLATED, ""));
    check(&out);
    // Into a file.
    let source = file(EDGE);
    let target = NamedTempFile::new().unwrap();
    let paths = [&source, &target].map(|file| file.path().to_str().unwrap());
    let (code, out, err) = run(&["import", "ratelimit", paths[0], "-o", paths[1]]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let written = fs::read_to_string(paths[1]).unwrap();
    assert_eq!(written.replace(paths[0], "FILE"), TRANSLATED);
    let (code, _, err) = run(&["import", "ratelimit", paths[0], "-o", "/no/such/folder/x"]);
    assert!(
        code == 1 && err.contains("cannot write /no/such/folder/x"),
        "{err}"
    );
}

/// Returns a domain whose second descriptor is `second`.
fn after_another(second: &str) -> String {
    let first = "{key: a, rate_limit: {unit: minute, requests_per_unit: 7}}";
    format!("domain: d\ndescriptors:\n- {first}\n- {second}\n")
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 5}";

/// Descriptors beside another one, and the field that is left out of them with the reason.
const UNTRANSLATED: [(&str, &str); 12] = [
    (
        "{key: b, detailed_metric: true, LIMIT}",
        "descriptors[1].detailed_metric: metrics do",
    ),
    (
        "{key: b, value_to_metric: true, LIMIT}",
        "descriptors[1].value_to_metric: metrics do",
    ),
    (
        "{key: b, metadata: {x: [1]}, LIMIT}",
        "descriptors[1].metadata: answers carry no",
    ),
    (
        "{key: b, shadow_mode: true}",
        "descriptors[1].shadow_mode: has no effect without",
    ),
    (
        "{key: b, quota_mode: true}",
        "descriptors[1].quota_mode: has no effect without",
    ),
    (
        "{key: b, value: 'x*', share_threshold: true, LIMIT}",
        "descriptors[1].share_threshold: each value has the limit for itself",
    ),
    (
        "{key: 'b*', LIMIT}",
        "descriptors[1].key: a `*` has a meaning in a value only",
    ),
    (
        "{key: 'b}', LIMIT}",
        "rate_limit: its keys make no scope: b_/{b}} has a `{` without",
    ),
    (
        "{key: b, rate_limit: {unit: second, requests_per_unit: 5, replaces: [{name: x}]}}",
        "rate_limit.replaces: \"x\" is the name of no limit here",
    ),
    (
        "{key: a, value: 'x*', shadow_mode: true, LIMIT}",
        "value: a rule asks for no value with `*`, nor of a key that is there twice; shadow_mode, \
         quota_mode, name and replaces are those of the other values, and the limit is left out",
    ),
    (
        "{key: b, descriptors: [{key: c, LIMIT}]}\n- {key: c, descriptors: [{key: b, LIMIT}]}",
        "rate_limit: others have the same keys in another order, and a rule fits any order",
    ),
    (
        "{key: b, value: '*', LIMIT}\n- {key: b, LIMIT}",
        "is never used: line 4 matches every value before it",
    ),
];

#[test]
fn what_has_no_translation_is_named_with_its_place_and_the_reason() {
    for (more, want) in UNTRANSLATED {
        let (out, err) = import(&after_another(&more.replace("LIMIT", LIMIT)));
        let reason = err.strip_prefix("tollgate: not translated: 1 field\n");
        let reason = reason.unwrap_or_else(|| panic!("{more}: {err}"));
        assert!(reason.contains(&format!(": {want}")), "{more}: {reason}");
        assert!(
            reason.starts_with("FILE:4:") || more.contains('\n'),
            "{reason}"
        );
        assert!(
            out.contains(&format!("\n# Not translated:\n# - {reason}")),
            "{out}"
        );
        check(&out);
    }
    let many: String = (0..20)
        .map(|i| format!("- {{key: k{i}, {LIMIT}}}\n"))
        .collect();
    let (out, err) = import(&format!("domain: d\ndescriptors:\n{many}"));
    assert!(
        err.starts_with("tollgate: not translated: 4 fields\n"),
        "{err}"
    );
    check(&out);
    let names: String = (0..150)
        .map(|i| {
            format!(
                "- {{key: k, value: v{i}, {}}}\n",
                LIMIT.replace("5", &format!("5, name: n{i}"))
            )
        })
        .collect();
    let err = refusal(&format!("domain: d\ndescriptors:\n{names}"));
    assert!(err.contains("a domain has no more than 100 rules"), "{err}");
}

#[test]
fn an_input_that_envoyproxy_ratelimit_refuses_is_an_error_with_its_place() {
    let rows = [
        ("{value: b}", "descriptors[1].key: is missing"),
        ("{key: ''}", "descriptors[1].key: is empty"),
        (
            "{key: b, ratelimit: {}}",
            "descriptors[1].ratelimit: unknown field, did you mean `rate_limit`?",
        ),
        (
            "{key: a}",
            "descriptors[1]: has the key and the value of the one in line 3",
        ),
        (
            "{key: b, rate_limit: {unit: fortnight, requests_per_unit: 1}}",
            "descriptors[1].rate_limit.unit: \"fortnight\" is none of second, minute, hour",
        ),
        (
            "{key: b, rate_limit: {requests_per_unit: 1}}",
            "descriptors[1].rate_limit.unit: is missing",
        ),
        (
            "{key: b, rate_limit: {unit: day}}",
            "descriptors[1].rate_limit.requests_per_unit: is missing",
        ),
        (
            "{key: b, rate_limit: {unit: day, unlimited: true}}",
            "descriptors[1].rate_limit.unit: stands beside `unlimited`",
        ),
        (
            "{key: b, rate_limit: {unit: day, requests_per_unit: -1}}",
            "descriptors[1].rate_limit.requests_per_unit: `-1` is not a whole number from 0",
        ),
        (
            "{key: b, rate_limit: {unlimited: true, name: x, replaces: [{name: x}]}}",
            "descriptors[1].rate_limit.replaces: is empty, or the limit's own name",
        ),
        (
            "{key: b, share_threshold: true}",
            "descriptors[1].share_threshold: needs a value with `*`",
        ),
    ];
    for (second, want) in rows {
        let err = refusal(&after_another(second));
        assert!(
            err.starts_with("tollgate: 1 error in FILE\nFILE:4:"),
            "{second}: {err}"
        );
        assert!(err.contains(want), "{second}: {err}");
    }
    assert!(refusal("descriptors: []").contains("domain: is missing"));
    assert!(refusal("domain: ''").contains("domain: is empty"));
    assert!(refusal("domain: d").contains("FILE: has no limit that can be translated"));
    let (code, _, err) = run(&["import", "ratelimit", "/no/such/file"]);
    assert!(
        code == 2 && err.contains("/no/such/file: No such file"),
        "{err}"
    );
}

/// Client of the rate limit service of a coordinator.
struct Proxy(RateLimitServiceClient<Channel>);

impl Proxy {
    fn of(coordinator: &Coordinator) -> Self {
        let address = format!("http://{}", coordinator.grpc);
        let channel = Endpoint::try_from(address).unwrap().connect_lazy();
        Self(RateLimitServiceClient::new(channel))
    }

    /// Asks for hits of a descriptor once its scope has a lease; 0 only looks.
    async fn ask(&self, entries: &[(&str, &str)], hits: u64) -> DescriptorStatus {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        let descriptor = RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            hits_addend: Some(hits),
            ..RateLimitDescriptor::default()
        };
        let request = RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let answer = self.0.clone().should_rate_limit(request).await.unwrap();
        answer.into_inner().statuses.remove(0)
    }

    /// Returns the limit of a descriptor as requests and the number of the unit.
    async fn limit(&self, entries: &[(&str, &str)]) -> Option<(u32, i32)> {
        loop {
            let limit = self.ask(entries, 0).await.current_limit?;
            // Of a node that has no lease yet.
            if (limit.requests_per_unit, limit.unit) != (10, SECOND) {
                return Some((limit.requests_per_unit, limit.unit));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const SECOND: i32 = 1;
const MINUTE: i32 = 2;
const HOUR: i32 = 3;

#[tokio::test]
async fn an_imported_descriptor_is_limited_as_before() {
    let (config, _) = import(EDGE);
    let coordinator = Coordinator::with(&config, Start::Fresh).await;
    let proxy = Proxy::of(&coordinator);
    let long = "x".repeat(198);
    let path = |generic: &'static str, path| [("generic_key", generic), ("path", path)];
    let rows: [(&[(&str, &str)], _); 10] = [
        (&[("tenant", "zed")], Some((7, MINUTE))),
        (&[("tenant", "acme")], Some((11, HOUR))),
        (&[("tenant", "internal")], None),
        (&[("other", "zed")], None),
        (&path("slow", "/api/v2/x"), Some((3, SECOND))),
        (&path("slow", "/api/v[1]"), Some((5, SECOND))),
        (&path("slow", "/web"), None),
        (&path("fast", "/web"), Some((1, MINUTE))),
        (&path("fast", "/free"), None),
        (&path("fast", &long), Some((1, MINUTE))),
    ];
    for (entries, want) in rows {
        assert_eq!(proxy.limit(entries).await, want, "{entries:?}");
    }
    for tenant in ["zed", "zoe"] {
        let tenant = [("tenant", tenant)];
        proxy.limit(&tenant).await;
        for left in (0..7).rev() {
            let status = proxy.ask(&tenant, 1).await;
            assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
        }
        assert_eq!(proxy.ask(&tenant, 1).await.code(), Code::OverLimit);
    }
    // In shadow mode.
    for _ in 0..3 {
        assert_eq!(proxy.ask(&path("fast", "/web"), 1).await.code(), Code::Ok);
    }
}
