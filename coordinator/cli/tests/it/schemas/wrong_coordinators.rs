//! Files that the coordinator refuses, and its schema with it.

use super::*;

/// Wrong sections of a coordinator's file.
const OF_FILE: [&str; 63] = [
    "limit: []",
    "listen: {grpc: localhost:7710}",
    "listen: {http: 127.0.0.1:70000}",
    "listen: {grpc: {}}",
    "listen: {insecure_grpc: yes}",
    "listen: {port: 5}",
    "tls: {grpc: {cert: a}}",
    "tls: {http: {cert: a, key: b, client_ca: ''}}",
    "tls: {http: {cert: a, key: b, nodes: [c]}}",
    "tls: {grpc: {cert: a, key: b, children: {eu: [eu.example]}}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: []}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: [10.0.0.7]}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: ['fd00::7']}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu: ['a b']}}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu: ['*.eu.example']}}}",
    "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu/0: [eu.example]}}}",
    "admin: s3cret",
    "admin: {tokens: [{name: a, role: root, sha256: x}]}",
    "admin: {tokens: [{name: a, role: admin, sha256: s3cret}]}",
    "admin: {tokens: [{name: a, role: admin}]}",
    "admin: {public: [pages]}",
    "admin: {insecure: yes}",
    "cluster: 3",
    "cluster: {node: a}",
    "cluster: {node: a, etcd: {endpoints: []}}",
    "cluster: {node: a, etcd: {endpoints: [etcd]}}",
    "cluster: {node: a b, etcd: {endpoints: ['http://e:2379']}}",
    "cluster: {node: a, shards: 65, etcd: {endpoints: ['http://e:2379']}}",
    "cluster: {node: a, etcd: {endpoints: ['http://e:2379'], prefix: a}}",
    "cluster: {node: a, etcd: {endpoints: ['http://e:2379'], user: u}}",
    "cluster: {node: a, etcd: {endpoints: ['http://e:2379'], lease: 5}}",
    "cluster: {node: a, advertise: {grpc: '0.0.0.0:7710'}, etcd: {endpoints: ['http://e:2379']}}",
    "cluster: {node: a, etcd: {endpoints: ['http://e:2379']}, shared_config: true}",
    "parent: x",
    "parent: {name: eu}",
    "parent: {name: eu/0, addresses: ['root:7710']}",
    "parent: {addresses: [root]}",
    "parent: {addresses: ['root:7710'], timeout: 5}",
    "parent: {addresses: ['root:7710'], tls: {cert: c}}",
    "store: {path: ''}",
    "bounds: {max_resources: 0}",
    "bounds: {max_leases: many}",
    "bounds: {max_raises: 1000000001}",
    "connections: {max_grpc: 0}",
    "connections: {max_call_bytes: 8388607}",
    "connections: {max_call_bytes: 64Mb}",
    "connections: {idle_timeout: 5}",
    "groups: {a/b: {}}",
    "groups: {gold: {requests: 3}}",
    "groups: {gold: {fair_between: all}}",
    "groups: {gold: {concurrency: {}}}",
    "attach: {tenants: {a: 5}}",
    "groups: {g: {}}\nattach: {tenants: {a: {weight: 0}}}",
    "groups: {g: {}}\nattach: {tenants: {a: {group: g, wieght: 2}}}",
    "groups: {g: {}}\nattach: {namespaces: {a: g}}",
    "doorman: {scopes: {a: ''}}",
    "rls: {domains: {edge: {}}}",
    "rls: {domains: {edge: {scopes: [{name: x}]}}}",
    "rls: {domains: {edge: {scopes: [{scope: tenant}]}}}",
    "rls: {domains: {edge: {scopes: [{scope: 'a/{b'}]}}}",
    "rls: {domains: {edge: {scopes: [{scope: a/b, more_keys: maybe}]}}}",
    "rlqs: {domains: {edge: {}}}",
    "rlqs: {domains: {edge: {scope: 'a/{b}', abandon_after: 60}}}",
];

/// Wrong limits of a coordinator's file.
const OF_LIMIT: [&str; 31] = [
    "match: ''",
    "request: {}",
    "requests: 7",
    "requests: {}",
    "requests: {rate: [5]}",
    "requests: {rate: -5}",
    "requests: {rate: nan}",
    "requests: {rate: Unlimited}",
    "requests: {rate: dynamic}",
    "requests: {rate: 1e13}",
    "requests: {rate: 5MiB}",
    "requests: {rate: 5x}",
    "requests: {rate: 5/m}",
    "requests: {rate: 5, burst: 0.5}",
    "requests: {rate: 5, burst: unlimited}",
    "requests: {rate: 5, safe: -1}",
    "requests: {rate: 5, safe: half}",
    "requests: {rate: 5, lease: 10}",
    "requests: {rate: 5, lease: -1s}",
    "requests: {rate: 5, refresh: 1x}",
    "requests: {rate: 5, headroom: 1.5}",
    "requests: {rate: 5, headroom: half}",
    "requests: {rate: 5, algorithm: fairshare}",
    "requests: {rate: 5, guaranteed: {16: 1}}",
    "requests: {rate: 5, guaranteed: {3: [6]}}",
    "requests: {rate: 5, burts: 6}",
    "request_bytes: {rate: 50Mib}",
    "concurrency: {rate: 5}",
    "concurrency: {max: 2.5}",
    "concurrency: {max: 5, algorithm: max_rate}",
    "concurrency: {max: 5, burst: 6}",
];

/// Wrong limits for which a schema has no words.
const LIMIT_WITHOUT_WORDS: [(&str, &str); 8] = [
    ("a comparison of two fields", "requests: {rate: 5, safe: 6}"),
    (
        "a comparison of two times",
        "requests: {rate: 5, lease: 1s}",
    ),
    ("a range of texts", "requests: {rate: 5, lease: 25h}"),
    (
        "a part of a millisecond",
        "requests: {rate: 5, refresh: 1500us}",
    ),
    ("a sum", "requests: {rate: 5, guaranteed: {3: 4, 9: 2}}"),
    ("a number that is none, near zero", "requests: {rate: 1e-9}"),
    ("the syntax of globs", "match: '[a', requests: {rate: 5}"),
    ("a way to write a number", "requests: {rate: '1e13'}"),
];

/// Wrong sections for which a schema has no words.
const FILE_WITHOUT_WORDS: [(&str, &str); 7] = [
    (
        "two addresses that differ",
        "listen: {http: '127.0.0.1:7710'}",
    ),
    ("a way to write a number", "bounds: {max_leases: 1e3}"),
    ("a range of texts", "connections: {idle_timeout: 44s}"),
    ("a name that is elsewhere", "attach: {tenants: {a: gold}}"),
    (
        "a name that is elsewhere",
        "rls: {domains: {edge: {scopes: [{scope: a/b, replaces: [c]}]}}}",
    ),
    (
        "two sections that exclude each other",
        "store: {path: x}\ncluster: {node: a, etcd: {endpoints: ['http://e:2379']}}",
    ),
    (
        "a scheme that another field asks for",
        "parent: {addresses: ['https://root:7710']}",
    ),
];

#[test]
fn wrong_coordinators_are_refused_by_parser_and_schema() {
    let schema = validator(COORDINATOR);
    let fits = |text: &str| {
        let value = value(text).unwrap_or_else(|| panic!("{text} is no YAML"));
        schema.is_valid(&value)
    };
    let file = |sections: &str| format!("{sections}\nlimits: []");
    let limits = |fields: &str| {
        if fields.starts_with("match") {
            format!("limits: [{{{fields}}}]")
        } else {
            format!("limits: [{{match: a, {fields}}}]")
        }
    };
    let none = [
        "".to_owned(),
        "limits: 5".to_owned(),
        "groups: {}".to_owned(),
    ];
    let rows = OF_FILE.map(file).into_iter().chain(OF_LIMIT.map(limits));
    for text in rows.chain(none) {
        assert!(parse(&text).is_err() && !fits(&text), "{text}");
    }
    let sections = FILE_WITHOUT_WORDS.map(|(rule, text)| (rule, file(text)));
    let all = LIMIT_WITHOUT_WORDS.map(|(rule, text)| (rule, limits(text)));
    for (rule, text) in sections.into_iter().chain(all) {
        assert!(parse(&text).is_err() && fits(&text), "{rule}: {text}");
    }
    assert!(parse("limits: []").is_ok() && fits("limits: []"));
}
