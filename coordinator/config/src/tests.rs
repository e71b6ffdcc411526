use std::time::Duration;

use tollgate_core::lease::{Priority, Unit};
use tollgate_core::limit::{Algorithm, Limit, Part, SafeCapacity};
use tollgate_core::units::{Capacity, RatePeriod, Tokens};

use super::*;

mod groups;
mod limits;
mod listen;
mod rls;
mod shape;

/// Returns all errors of `text`, or "good".
fn errors(text: &str) -> String {
    match Config::parse(text) {
        Ok(_) => "good".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

/// Returns all errors of one limit of all scopes.
fn limit_errors(requests: &str) -> String {
    errors(&format!("limits:\n- match: '*'\n  requests: {requests}\n"))
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
fn too_many_limits_and_too_large_files_are_refused() {
    let limit = "- {match: a, requests: {rate: 5}}\n";
    let text = format!("limits:\n{}", limit.repeat(ENTRIES_MAX + 1));
    assert_eq!(
        errors(&text),
        "2:3: limits: has 10001 entries, more than 10000"
    );
    let text = "#".repeat(FILE_LEN_MAX + 1);
    assert_eq!(errors(&text), "the file has more than 8388608 bytes");
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
fn a_rate_with_a_period_admits_so_much_at_once() {
    let yaml = "limits:
- {match: a, requests: {rate: 10/min}}
- {match: b, requests: {rate: 10/min, burst: 3}}
- {match: c, requests: {rate: 0.5/h}}
- {match: d, requests: {rate: 20/s}}
- {match: e, requests: {rate: 1M/day}}
- {match: f, requests: {rate: 20}}";
    let config = Config::parse(yaml).unwrap();
    let limit = |scope: &str| {
        let matched = config.catalog.limits.exact(scope).unwrap();
        let limit = matched.limits.get(Unit::Requests).unwrap();
        (limit.burst, limit.period)
    };
    let rows = [
        ("a", 10, Some(RatePeriod::Minute)),
        ("b", 3, Some(RatePeriod::Minute)),
        ("c", 1, Some(RatePeriod::Hour)),
        ("d", 20, Some(RatePeriod::Second)),
        ("e", 1_000_000, Some(RatePeriod::Day)),
        ("f", 20, None),
    ];
    for (scope, burst, period) in rows {
        assert_eq!(limit(scope), (Tokens::from_whole(burst), period), "{scope}");
    }
    let other = Config::parse("limits: [{match: a, requests: {rate: 1/week}}]").unwrap_err();
    let want = "limits[0].requests.rate: \"1/week\" ends in /week, which is none of /s, /min, /h, /d, /sec, \
                /second, /minute, /hour and /day";
    assert!(other.to_string().contains(want), "{other}");
    let above =
        Config::parse("limits: [{match: a, requests: {rate: 10/min, safe: 20}}]").unwrap_err();
    let want = "limits[0].requests.safe: 20 is more than the capacity, 10/min";
    assert!(above.to_string().contains(want), "{above}");
}
