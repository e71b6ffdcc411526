use tollgate_config::Config;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

use super::*;

const DOMAINS: &str = "limits: []
rls:
  domains:
    edge:
      scopes:
      - {scope: 'slow/{tenant}', values: {generic_key: slow}, name: slow, replaces: [usual]}
      - {scope: 'namespace/{tenant}/{ns}'}
      - {scope: 'tenant/{tenant}', name: usual}";

/// Keys and values of a descriptor.
type Pairs<'a> = &'a [(&'a str, &'a str)];

fn descriptor(entries: Pairs<'_>) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

/// Returns the scopes that a request asks for, or its error.
fn scopes(request: &RateLimitRequest) -> Result<Vec<Option<String>>, String> {
    scopes_in(DOMAINS, request)
}

fn scopes_in(config: &str, request: &RateLimitRequest) -> Result<Vec<Option<String>>, String> {
    let config = Config::parse(config).unwrap();
    let ask = Ask::new(&config.rls, request).map_err(|error| error.to_string())?;
    let descriptors = ask.descriptors.into_iter();
    Ok(descriptors.map(|ask| ask.map(|ask| ask.scope)).collect())
}

#[test]
fn the_first_rule_that_fits_makes_the_scope_of_a_descriptor() {
    let rows: [(Pairs<'_>, Option<&str>); 7] = [
        (&[("tenant", "acme")], Some("tenant/acme")),
        (&[("ns", "b"), ("tenant", "a")], Some("namespace/a/b")),
        (&[("tenant", "a"), ("tenant", "b")], Some("tenant/a")),
        (&[("generic_key", "slow"), ("tenant", "a")], Some("slow/a")),
        (&[("generic_key", "fast"), ("tenant", "a")], None),
        (&[("tenant", "a"), ("path", "/login")], None),
        (&[("user", "u")], None),
    ];
    for (entries, want) in rows {
        let requested = scopes(&request("edge", vec![descriptor(entries)])).unwrap();
        assert_eq!(requested, [want.map(str::to_owned)], "{entries:?}");
    }
    // A domain that the configuration does not have limits nothing.
    let other = request("other", vec![descriptor(&[("tenant", "acme")])]);
    assert_eq!(scopes(&other), Ok(vec![None]));
}

/// Checks the scope that a domain of one rule makes of a descriptor.
fn assert_scope(rule: &str, entries: Pairs<'_>, want: Option<&str>) {
    let config = format!("limits: []\nrls: {{domains: {{edge: {{scopes: [{{{rule}}}]}}}}}}");
    let found = scopes_in(&config, &request("edge", vec![descriptor(entries)]));
    let want = Ok(vec![want.map(str::to_owned)]);
    assert_eq!(found, want, "{rule} {entries:?}");
}

/// The first table of docs/rls.md, and more.
#[test]
fn a_rule_fits_its_own_keys_and_more_only_if_it_says_so() {
    let path: Pairs<'_> = &[("tenant", "a"), ("path", "/b")];
    let tenant = &path[..1];
    for (rule, of_tenant, of_path) in [
        ("scope: 't/{tenant}'", Some("t/a"), None),
        (
            "scope: 't/{tenant}', more_keys: true",
            Some("t/a"),
            Some("t/a"),
        ),
        ("scope: 'p/{tenant}/{path}'", None, Some("p/a/%2Fb")),
        (
            "scope: 'p/{path}/{tenant}', more_keys: true",
            None,
            Some("p/%2Fb/a"),
        ),
        ("scope: 'l/{tenant}', values: {path: /b}", None, Some("l/a")),
        ("scope: 'l/{tenant}', values: {path: /c}", None, None),
        ("scope: l/all, values: {path: /b}", None, None),
        (
            "scope: 'l/{path}', values: {path: /b}, more_keys: true",
            None,
            Some("l//b"),
        ),
        ("scope: all/all", None, None),
        (
            "scope: all/all, more_keys: true",
            Some("all/all"),
            Some("all/all"),
        ),
    ] {
        assert_scope(rule, tenant, of_tenant);
        assert_scope(rule, path, of_path);
    }
}

/// The second one.
#[test]
fn a_key_that_is_there_several_times_matches_by_any_value_and_stands_in_order() {
    let both: Pairs<'_> = &[("m", "post"), ("m", "api")];
    let one = &both[..1];
    for (rule, of_one, of_both) in [
        (
            "scope: a/all, values: {m: post}",
            Some("a/all"),
            Some("a/all"),
        ),
        ("scope: a/all, values: {m: api}", None, Some("a/all")),
        ("scope: a/all, values: {m: get}", None, None),
        ("scope: 'a/{m}'", Some("a/post"), Some("a/post")),
        ("scope: 'a/{m}/{m}'", None, Some("a/post/api")),
        ("scope: 'a/{m}/{m}/{m}'", None, None),
    ] {
        assert_scope(rule, one, of_one);
        assert_scope(rule, both, of_both);
    }
}

#[test]
fn a_rule_replaces_those_it_names_in_the_same_request() {
    let usual = || descriptor(&[("tenant", "acme")]);
    let slow = descriptor(&[("generic_key", "slow"), ("tenant", "acme")]);
    let both = request("edge", vec![usual(), slow]);
    assert_eq!(scopes(&both), Ok(vec![None, Some("slow/acme".to_owned())]));
    let alone = request("edge", vec![usual()]);
    assert_eq!(scopes(&alone), Ok(vec![Some("tenant/acme".to_owned())]));
}

#[test]
fn hits_are_of_the_descriptor_else_of_the_request_else_one() {
    let rows = [
        (0, None, false, Hits::Take(1)),
        (5, None, false, Hits::Take(5)),
        (5, Some(0), false, Hits::Look),
        (5, Some(0), true, Hits::Look),
        (5, Some(3), false, Hits::Take(3)),
        (5, Some(3), true, Hits::GiveBack(3)),
        (0, None, true, Hits::GiveBack(1)),
        (0, Some(u64::MAX), false, Hits::Take(u64::MAX)),
    ];
    for (of_request, own, is_negative, want) in rows {
        let descriptor = RateLimitDescriptor {
            hits_addend: own,
            is_negative_hits: is_negative,
            ..RateLimitDescriptor::default()
        };
        let hits = Hits::new(of_request, &descriptor);
        assert_eq!(hits, want, "{of_request} {own:?} {is_negative}");
    }
}

#[test]
fn a_limit_of_the_descriptor_comes_along() {
    let rows = [
        (1, Some(1)),
        (2, Some(60)),
        (3, Some(3600)),
        (4, Some(86_400)),
        (5, Some(2_592_000)),
        (6, Some(31_536_000)),
        (0, None),
        (7, None),
    ];
    let config = Config::parse(DOMAINS).unwrap();
    for (unit, want) in rows {
        let descriptor = RateLimitDescriptor {
            limit: Some(RateLimitOverride {
                requests_per_unit: 9,
                unit,
            }),
            ..descriptor(&[("tenant", "acme")])
        };
        let request = request("edge", vec![descriptor]);
        let requested = Ask::new(&config.rls, &request);
        let Some(seconds) = want else {
            assert_eq!(requested, Err(AskError::Unit { index: 0, unit }));
            continue;
        };
        let limit = requested.unwrap().descriptors[0].as_ref().unwrap().limit;
        let window = Duration::from_secs(seconds);
        assert_eq!(
            limit,
            Some(OwnLimit {
                requests: 9,
                window
            })
        );
    }
}

#[test]
fn a_request_without_its_parts_or_with_too_many_is_refused() {
    let one = || descriptor(&[("tenant", "acme")]);
    let many = |count| (0..count).map(|_| one()).collect();
    let entries = |count| descriptor(&vec![("tenant", "acme"); count]);
    let rows = [
        (request("", vec![one()]), "domain: is empty"),
        (request("edge", vec![]), "descriptors: is empty"),
        (
            request("edge", many(DESCRIPTORS_MAX + 1)),
            "descriptors: has 65 entries, more than 64",
        ),
        (
            request("edge", vec![one(), entries(RLS_ENTRIES_MAX + 1)]),
            "descriptors[1].entries: has 33 entries, more than 32",
        ),
    ];
    for (request, want) in rows {
        assert_eq!(scopes(&request), Err(want.to_owned()));
    }
    assert!(scopes(&request("edge", many(DESCRIPTORS_MAX))).is_ok());
    assert!(scopes(&request("edge", vec![entries(RLS_ENTRIES_MAX)])).is_ok());
    // No entries fit no rule.
    assert_eq!(
        scopes(&request("edge", vec![descriptor(&[])])),
        Ok(vec![None])
    );
}
