use std::time::Duration;

use tollgate_core::lease::{Priority, Unit};
use tollgate_core::limit::{Algorithm, Limit, Part, SafeCapacity};
use tollgate_core::units::{Capacity, Tokens};

use super::*;

mod groups;
mod shape;

/// Everything that is said about `text`.
fn errors(text: &str) -> String {
    match Config::parse(text) {
        Ok(_) => "good".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

/// Everything that is said about one limit of all scopes.
fn limit_errors(requests: &str) -> String {
    errors(&format!("limits:\n- match: '*'\n  requests: {requests}\n"))
}

#[test]
fn bad_amounts_name_line_field_and_rule() {
    let rows = [
        ("{}", "3:13: limits[0].requests.rate: is missing"),
        (
            "",
            "2:3: limits[0]: names no unit; one of requests, request_bytes, response_bytes and \
             concurrency is needed",
        ),
        ("7", "3:13: limits[0].requests: `7` is not a mapping"),
        (
            "{rate: [5]}",
            "3:20: limits[0].requests.rate: is a list, not a single value",
        ),
        (
            "{rate: -5}",
            "3:20: limits[0].requests.rate: -5 is negative",
        ),
        (
            "{rate: nan}",
            "3:20: limits[0].requests.rate: NaN is not a finite number",
        ),
        (
            "{rate: .nan}",
            "3:20: limits[0].requests.rate: \".nan\" is neither a number nor `unlimited`",
        ),
        (
            "{rate: Unlimited}",
            "3:20: limits[0].requests.rate: \"Unlimited\" is neither a number nor `unlimited`",
        ),
        (
            "{rate: 1e13}",
            "3:20: limits[0].requests.rate: 10000000000000 is more than the largest capacity, 1e12",
        ),
        (
            "{rate: 5, burst: unlimited}",
            "3:30: limits[0].requests.burst: \"unlimited\" is not a number",
        ),
        (
            "{rate: 5, safe: -1}",
            "3:29: limits[0].requests.safe: -1 is negative",
        ),
        (
            "{rate: 5, safe: 6}",
            "3:29: limits[0].requests.safe: 6 is more than the capacity, 5",
        ),
        (
            "{rate: 5, safe: half}",
            "3:29: limits[0].requests.safe: \"half\" is neither a number nor `dynamic`",
        ),
        (
            "{rate: 5MiB}",
            "3:20: limits[0].requests.rate: \"5MiB\" is a number of bytes, but requests are counted \
             here",
        ),
        (
            "{rate: 5x}",
            "3:20: limits[0].requests.rate: \"5x\" ends in \"x\", which is none of k, M, G, T, Ki, Mi, \
             Gi, Ti",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn bad_durations_name_line_field_and_rule() {
    let rows = [
        (
            "{rate: 5, lease: 10}",
            "3:30: limits[0].requests.lease: \"10\" is not a duration like 10s or 100ms: time unit \
             needed, for example 10sec or 10ms",
        ),
        (
            "{rate: 5, lease: -1s}",
            "3:30: limits[0].requests.lease: \"-1s\" is not a duration like 10s or 100ms: expected \
             number at 0",
        ),
        (
            "{rate: 5, refresh: 1500us}",
            "3:32: limits[0].requests.refresh: \"1500us\" is not a whole number of milliseconds",
        ),
        (
            "{rate: 5, lease: 0s}",
            "3:30: limits[0].requests.lease: must be longer than zero",
        ),
        (
            "{rate: 5, lease: 25h}",
            "3:30: limits[0].requests.lease: 90000s is longer than a day",
        ),
        (
            "{rate: 5, lease: 1s}",
            "3:30: limits[0].requests.refresh: 1s is not shorter than the lease, 1s",
        ),
        (
            "{rate: 5, refresh: 20s}",
            "3:32: limits[0].requests.refresh: 20s is not shorter than the lease, 10s",
        ),
        (
            "{rate: 5, min_refresh: 2s}",
            "3:36: limits[0].requests.min_refresh: 2s is longer than refresh, 1s",
        ),
        (
            "{rate: 5, min_refresh: 0s}",
            "3:36: limits[0].requests.min_refresh: must be longer than zero",
        ),
        (
            "{rate: 5, learning: 9s}",
            "3:23: limits[0].requests.learning: unknown field, removed: learning mode lasts as \
             long as a lease",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn bad_parts_and_words_name_line_field_and_rule() {
    let rows = [
        (
            "{rate: 5, headroom: 1.5}",
            "3:33: limits[0].requests.headroom: \"1.5\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, headroom: half}",
            "3:33: limits[0].requests.headroom: \"half\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, reserve: 2}",
            "3:32: limits[0].requests.reserve: \"2\" is not a part between 0 and 1",
        ),
        (
            "{rate: 5, algorithm: fairshare}",
            "3:34: limits[0].requests.algorithm: \"fairshare\" is none of fair_share, \
             proportional_share, static, none",
        ),
        (
            "{rate: 5, guaranteed: {16: 1}}",
            "3:40: limits[0].requests.guaranteed.16: \"16\" is not a band, a whole number from 0 to 15",
        ),
        (
            "{rate: 5, guaranteed: {3: 4, 9: 2}}",
            "3:39: limits[0].requests.guaranteed: the bands' sum of 6 is more than the capacity, 5",
        ),
        (
            "{rate: 5, burts: 6}",
            "3:23: limits[0].requests.burts: unknown field, did you mean `burst`? Expected one of rate, burst, safe, lease, refresh, \
             min_refresh, headroom, reserve, algorithm, guaranteed",
        ),
    ];
    for (requests, want) in rows {
        assert_eq!(limit_errors(requests), want, "{requests}");
    }
}

#[test]
fn a_burst_below_one_token_is_refused() {
    let said = limit_errors("{rate: 5, burst: 0.5}");
    assert!(
        said.starts_with("3:30: limits[0].requests.burst: "),
        "{said}"
    );
    assert!(said.ends_with("less than one token"), "{said}");
}

#[test]
fn matches_are_checked_against_each_other() {
    let rows: [(&[&str], &str); 7] = [
        (
            &["tenant/a", "tenant/a", "*"],
            "3:11: limits[1].match: \"tenant/a\" is matched by limits[0] already",
        ),
        (
            &["tenant/*", "tenant/b", "tenant/*", "*"],
            "4:11: limits[2].match: \"tenant/*\" is matched by limits[0] already",
        ),
        (&["tenant/*"], "good"),
        (
            &["*", "tenant/a", "tenant/b"],
            "2:11: limits[0].match: `*` matches every scope, so it must be the last limit; 2 come \
             after it",
        ),
        (&["", "*"], "2:11: limits[0].match: is empty"),
        (
            &["tenant/[a", "*"],
            "2:11: limits[0].match: error parsing glob 'tenant/[a': unclosed character class; \
             missing ']'",
        ),
        (&["tenant/*", "tenant/a", "*"], "good"),
    ];
    for (patterns, want) in rows {
        let limit = |pattern: &&str| format!("- {{match: '{pattern}', requests: {{rate: 5}}}}\n");
        let limits: String = patterns.iter().map(limit).collect();
        assert_eq!(errors(&format!("limits:\n{limits}")), want, "{patterns:?}");
    }
}

#[test]
fn addresses_and_bounds_are_checked() {
    let rows = [
        (
            "listen: {grpc: localhost:7710}",
            "1:16: listen.grpc: \"localhost:7710\" is not an address like 127.0.0.1:7710",
        ),
        (
            "listen: {http: 127.0.0.1:70000}",
            "1:16: listen.http: \"127.0.0.1:70000\" is not an address like 127.0.0.1:7710",
        ),
        (
            "listen: {http: 127.0.0.1:7710}",
            "1:16: listen.http: is the same address as listen.grpc",
        ),
        (
            "bounds: {max_resources: 0}",
            "1:25: bounds.max_resources: \"0\" is not a whole number from 1 to 1000000000",
        ),
        (
            "bounds: {max_clients_per_resource: 1e3}",
            "1:36: bounds.max_clients_per_resource: \"1e3\" is not a whole number from 1 to \
             1000000000",
        ),
    ];
    for (line, want) in rows {
        let text = format!("{line}\nlimits: [{{match: '*', requests: {{rate: 5}}}}]\n");
        assert_eq!(errors(&text), want, "{line}");
    }
}

#[test]
fn all_errors_are_said_at_once_in_the_order_of_the_file() {
    let text = "
listen: {grpc: here}
limits:
- match: 'tenant/a'
  requests: {rate: -5, lease: soon, headroom: 2}
- match: 'tenant/a'
  requests: {burst: 5}
";
    let want = [
        "2:16: listen.grpc: \"here\" is not an address like 127.0.0.1:7710",
        "5:20: limits[0].requests.rate: -5 is negative",
        "5:31: limits[0].requests.lease: \"soon\" is not a duration like 10s or 100ms: expected \
         number at 0",
        "5:47: limits[0].requests.headroom: \"2\" is not a part between 0 and 1",
        "6:10: limits[1].match: \"tenant/a\" is matched by limits[0] already",
        "7:13: limits[1].requests.rate: is missing",
    ];
    assert_eq!(errors(text), want.join("\n"));
}

#[test]
fn all_fields_that_do_not_go_together_are_reported() {
    let said = limit_errors("{rate: 5, burst: 0.5, safe: 6, lease: 2s, refresh: 3s}");
    let want = [
        "3:30: limits[0].requests.burst: 0.5 is less than one token",
        "3:41: limits[0].requests.safe: 6 is more than the capacity, 5",
        "3:64: limits[0].requests.refresh: 3s is not shorter than the lease, 2s",
    ];
    assert_eq!(said, want.join("\n"));
    // Not beside a default in the place of what cannot be read.
    let said = limit_errors("{rate: 5, lease: 1x, refresh: 20s}");
    assert!(
        said.contains(".lease: ") && !said.contains(".refresh: "),
        "{said}"
    );
}

#[test]
fn an_admin_api_that_is_open_is_refused_where_it_listens() {
    let text = "limits: []\nlisten: {http: '0.0.0.0:80'}\n";
    assert_eq!(
        errors(text),
        "2:16: listen.http: 0.0.0.0:80 can be reached from other machines, and that needs TLS and a \
         token (admin.tokens); to serve without, say `admin.insecure: true` or --insecure-admin"
    );
    assert_eq!(errors(&format!("{text}admin: {{insecure: true}}")), "good");
    // Not beside a default in the place of what cannot be read.
    let rows = [
        ("tls: {http: {cert: a}}\n", "tls.http.key"),
        (
            "admin: {tokens: [{name: a, role: root}]}\n",
            "admin.tokens[0]",
        ),
        ("admin: {insecure: yes}\n", "admin.insecure"),
    ];
    for (more, field) in rows {
        let said = errors(&format!("{text}{more}"));
        assert!(
            said.contains(field) && !said.contains("listen.http"),
            "{said}"
        );
    }
}

#[test]
fn a_grpc_listener_in_plain_text_is_refused_beyond_loopback() {
    let text =
        |address: &str, more: &str| format!("limits: []\nlisten: {{grpc: '{address}'{more}}}\n");
    let far = text("0.0.0.0:80", "");
    let want = "2:16: listen.grpc: 0.0.0.0:80 can be reached from other machines, and that needs \
                TLS (tls.grpc.cert and tls.grpc.key); to serve without, say \
                `listen.insecure_grpc: true` or --insecure-grpc";
    assert_eq!(errors(&far), want);
    // TLS of another listener, or of what this one calls, is none of this one.
    let parent = "parent: {name: a, addresses: ['https://root:7710'], tls: {ca: c}}\n";
    let http = "tls: {http: {cert: a, key: b}}\n";
    for more in [parent, http, "admin: {insecure: true}\n"] {
        assert_eq!(errors(&format!("{far}{more}")), want, "{more}");
    }
    let grpc = "tls: {grpc: {cert: a, key: b}}\n";
    let good = [
        format!("{far}{grpc}"),
        text("0.0.0.0:80", ", insecure_grpc: true"),
        text("127.0.0.7:80", ""),
        text("[::1]:80", ""),
        text("[::ffff:127.0.0.1]:80", ""),
    ];
    for text in good {
        assert_eq!(errors(&text), "good", "{text}");
    }
    for far in ["10.0.0.1:80", "[::]:80", "[2001:db8::1]:80"] {
        let said = errors(&text(far, ", insecure_grpc: false"));
        assert!(
            said.contains(&format!("listen.grpc: {far} can be")),
            "{said}"
        );
    }
    // Not beside a default in the place of what cannot be read.
    let said = errors(&text("0.0.0.0:80", ", insecure_grpc: yes"));
    assert_eq!(
        said,
        "2:45: listen.insecure_grpc: \"yes\" is neither `true` nor `false`"
    );
}

#[test]
fn too_many_limits_and_too_large_files_are_refused() {
    let limit = "- {match: a, requests: {rate: 5}}\n";
    let text = format!("limits:\n{}", limit.repeat(ENTRIES_MAX + 1));
    assert_eq!(
        errors(&text),
        "2:3: limits: has 10001 entries, more than 10000"
    );
    let text = "#".repeat(FILE_LEN_MAX + 1);
    assert_eq!(
        errors(&text),
        "the file has 8388609 bytes, more than 8388608"
    );
}

#[test]
fn a_good_file_says_what_it_says_and_the_rest_has_defaults() {
    let text = "
listen: {grpc: '0.0.0.0:0', http: '[::1]:80', insecure_grpc: true}
bounds: {max_resources: 5}
limits:
- match: tenant/acme
  requests: {rate: 1.5e3, burst: 200, safe: 0.5, lease: 1m, refresh: 5s, min_refresh: 250ms,
             headroom: 0.25}
- match: tenant/*
  requests: {rate: 0, lease: 20s}
- match: '*'
  requests: {rate: unlimited}
";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.listen.grpc, "0.0.0.0:0".parse().unwrap());
    assert_eq!(config.listen.http, "[::1]:80".parse().unwrap());
    assert_eq!(config.bounds.max_resources, 5);
    assert_eq!(config.bounds.max_clients_per_resource, 100_000);
    let acme = Limit {
        capacity: Capacity::from_whole(1500),
        burst: Tokens::from_whole(200),
        safe: SafeCapacity::Fixed(Capacity::from_micros(500_000)),
        lease: Duration::from_secs(60),
        refresh: Duration::from_secs(5),
        min_refresh: Duration::from_millis(250),
        learning: Duration::from_secs(60),
        headroom: Part::try_from_f64(0.25).unwrap(),
        ..Limit::new(Capacity::ZERO)
    };
    let find = |scope: &str| {
        let limits = &config.catalog.limits;
        let matched = limits.exact(scope).or_else(|| limits.by_glob(scope));
        matched.unwrap().limits.get(Unit::Requests).unwrap().clone()
    };
    assert_eq!(find("tenant/acme"), acme);
    let other = Limit {
        lease: Duration::from_secs(20),
        learning: Duration::from_secs(20),
        ..Limit::new(Capacity::ZERO)
    };
    assert_eq!(find("tenant/umbrella"), other);
    assert_eq!(find("route/x"), Limit::new(Capacity::UNLIMITED));
}

#[test]
fn every_unit_has_its_own_limit() {
    let text = "
limits:
- match: tenant/acme
  requests: {rate: 1.5k, safe: dynamic, reserve: 0.1, algorithm: proportional_share,
             guaranteed: {0: 100, 15: 0.5k}}
  request_bytes: {rate: 50MiB, burst: 100MB}
  response_bytes: {rate: 2G}
  concurrency: {max: 64, safe: 2}
";
    let config = Config::parse(text).unwrap();
    let matched = config.catalog.limits.exact("tenant/acme").unwrap();
    let get = |unit| matched.limits.get(unit).unwrap();
    let requests = get(Unit::Requests);
    assert_eq!(requests.capacity, Capacity::from_whole(1500));
    assert_eq!(requests.safe, SafeCapacity::Dynamic);
    assert_eq!(Some(requests.reserve), Part::try_from_f64(0.1));
    assert_eq!(requests.algorithm, Algorithm::ProportionalShare);
    let guaranteed = |priority| requests.guaranteed.of(priority);
    assert_eq!(guaranteed(Priority::LOWEST), Capacity::from_whole(100));
    assert_eq!(guaranteed(Priority::HIGHEST), Capacity::from_whole(500));
    let bytes = get(Unit::RequestBytes);
    assert_eq!(bytes.capacity, Capacity::from_whole(50 << 20));
    assert_eq!(bytes.burst, Tokens::from_whole(100_000_000));
    let bytes = get(Unit::ResponseBytes);
    assert_eq!(bytes.capacity, Capacity::from_whole(2_000_000_000));
    let concurrency = get(Unit::Concurrency);
    assert_eq!(concurrency.capacity, Capacity::from_whole(64));
    assert_eq!(
        concurrency.safe,
        SafeCapacity::Fixed(Capacity::from_whole(2))
    );
    let units: Vec<_> = matched.limits.iter().map(|(unit, _)| unit).collect();
    assert_eq!(units, Unit::ALL);
}

#[test]
fn where_the_store_is() {
    let store = |section: &str| {
        let config = Config::parse(&format!("limits: []\n{section}\n")).unwrap();
        let file = Some(Path::new("/etc/tollgate/tollgate.yaml"));
        config
            .store
            .path(file)
            .map(|(path, now)| (path.display().to_string(), now))
    };
    let at = |path: &str, now| Some((path.to_owned(), now));
    assert_eq!(store(""), at("/etc/tollgate/tollgate.redb", false));
    assert_eq!(store("store: {path: memory}"), None);
    assert_eq!(store("store: {path: /var/x.redb}"), at("/var/x.redb", true));
    assert_eq!(
        store("store: {path: x.redb}"),
        at("/etc/tollgate/x.redb", true)
    );
    assert_eq!(StoreConfig::default().path(None), None);
    assert_eq!(
        errors("limits: []\nstore: {path: ''}"),
        "2:15: store.path: is empty"
    );
    let cluster = "cluster: {node: a, etcd: {endpoints: ['http://127.0.0.1:2379']}}";
    let both = format!("limits: []\n{cluster}\nstore: {{path: x.redb}}");
    assert_eq!(
        errors(&both),
        "3:15: store.path: cannot be here together with `cluster.etcd`, in which a cluster keeps \
         objects that are written through the API"
    );
}

#[test]
fn the_quickstart_says_the_defaults() {
    let text = include_str!("../../../envoy/quickstart/tollgate.yaml");
    let config = Config::parse(text).unwrap();
    assert_eq!(config.listen, Listen::default());
    let defaults = Config::parse("limits: [{match: '*', requests: {rate: 1}}]").unwrap();
    assert_eq!(config.bounds, defaults.bounds);
}

#[test]
fn a_listener_with_tls_needs_a_certificate_and_a_key() {
    let rest = "limits: []";
    let rows = [
        ("tls: {}", "good"),
        ("tls: {grpc: {cert: a, key: b}}", "good"),
        ("tls: {http: {cert: a, key: b, client_ca: c}}", "good"),
        ("tls: {grpc: {cert: a}}", "1:13: tls.grpc.key: is missing"),
        (
            "tls: {http: {cert: a, key: b, client_ca: ''}}",
            "1:42: tls.http.client_ca: is empty",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&format!("{text}\n{rest}")), want, "{text}");
    }
    let config = Config::parse("tls: {grpc: {cert: tls.crt, key: /etc/tls.key}}\nlimits: []");
    let tls = config.unwrap().tls.beside(Path::new("/srv/tollgate.yaml"));
    let files = tls.grpc.unwrap();
    assert_eq!(files.cert, Path::new("/srv/tls.crt"));
    assert_eq!(files.key, Path::new("/etc/tls.key"));
}

/// Limits with these globs, one a line.
fn globs(globs: impl Iterator<Item = String>) -> String {
    let limit = |glob| format!("\n- {{match: '{glob}', requests: {{rate: 5}}}}");
    format!("limits:{}", globs.map(limit).collect::<String>())
}

#[test]
fn globs_that_need_a_huge_matcher_are_refused_with_their_line() {
    let at_most = "?".repeat(64);
    assert_eq!(errors(&globs([at_most.clone()].into_iter())), "good");
    let rows = [
        format!("{at_most}?"),
        "[!a]*".repeat(13),
        "{a,b}".repeat(33),
    ];
    for (glob, count) in rows.into_iter().zip([65, 65, 66]) {
        let text = globs(["tenant/*".to_owned(), glob].into_iter());
        let want = format!(
            "3:11: limits[1].match: has {count} wildcards, classes and alternatives, more than 64; \
             a class counts as 4"
        );
        assert_eq!(errors(&text), want);
    }
    let many = globs((0..700).map(|i| format!("{i}{at_most}")));
    let want = "627:11: limits[625].match: with this glob there are 40064 wildcards, classes and \
                alternatives in all globs, more than 40000; a class counts as 4";
    assert_eq!(errors(&many), want);
    let long = "x".repeat(200);
    let large = (0..5000).map(|i| match i {
        700 => format!("{i}{long}**?"),
        _ => format!("{i}{long}*x"),
    });
    let said = errors(&globs(large));
    let want = "702:11: limits[700].match: is the largest of all globs, and the matcher of all is \
                too large: ";
    assert!(said.starts_with(want), "{said}");
}
