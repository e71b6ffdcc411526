use std::time::Duration;

use tollgate_net::tls::ClientFiles;

use super::*;
use crate::{Config, EtcdConfig, Flags, Login, SourceFile};

const ETCD: &str = "etcd: {endpoints: ['http://127.0.0.1:2379']}";

/// Everything that is said about `cluster: {...}`.
fn errors(cluster: &str) -> String {
    match Config::parse(&format!("cluster: {{{cluster}}}\nlimits: []")) {
        Ok(_) => "good".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn a_node_alone_has_no_cluster() {
    assert_eq!(Config::parse("limits: []").unwrap().cluster, None);
}

#[test]
fn a_node_that_others_are_told_to_find_at_loopback_is_known() {
    let rows = [
        ("", "", true),
        ("grpc: '10.0.0.1:7710', http: '10.0.0.1:7711', ", "", false),
        ("grpc: '10.0.0.1:7710', ", "", true),
        ("", "grpc: 'one:7710', http: 'one.internal:7711'", false),
        ("", "grpc: '[::1]:7710', http: 'one:7711'", true),
    ];
    for (listen, advertise, want) in rows {
        let config = Config::parse(&format!(
            "listen: {{{listen}insecure_grpc: true}}\nadmin: {{insecure: true}}\n\
             cluster: {{node: a, advertise: {{{advertise}}}, {ETCD}}}\nlimits: []"
        ));
        let config = config.unwrap();
        let peer = config.listen.peer(&config.cluster.unwrap(), &config.tls);
        assert_eq!(peer.is_on_loopback(), want, "{listen} {advertise}");
    }
}

#[test]
fn what_a_cluster_says_by_default_and_in_full() {
    let parse = |text: &str| Config::parse(text).unwrap().cluster.unwrap();
    let least = parse(&format!("cluster: {{node: a, {ETCD}}}\nlimits: []"));
    let want = ClusterConfig {
        node: "a".to_owned(),
        advertise: Advertise::default(),
        shards: NonZeroU16::MIN,
        etcd: EtcdConfig {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/tollgate".to_owned(),
            lease: Duration::from_secs(3),
            tls: None,
            login: None,
        },
        tls: None,
        shared_config: false,
    };
    assert_eq!(least, want);
    let full = SourceFile {
        path: "/srv/tollgate.yaml".into(),
        content: b"
listen: {grpc: '0.0.0.0:7710', http: '[::]:7711', insecure_grpc: true}
admin: {insecure: true}
cluster:
  node: node-1.eu_west
  advertise: {grpc: 'node-1:7710', http: '[::1]:7711'}
  shards: 64
  etcd:
    endpoints: ['https://one:2379/', 'https://two:2379']
    prefix: /teams/edge
    lease: 1m
    tls: {ca: ca.crt, cert: /etc/node.crt, key: node.key}
    user: tollgate
    password_file: password
  tls: {ca: nodes.crt, cert: a.crt, key: a.key, server_name: nodes.internal}
limits: []"
            .to_vec(),
    };
    let full = Config::of_file(full, Flags::default()).unwrap();
    let full = full.cluster.unwrap();
    let want = ClusterConfig {
        node: "node-1.eu_west".to_owned(),
        advertise: Advertise {
            grpc: Some("node-1:7710".to_owned()),
            http: Some("[::1]:7711".to_owned()),
        },
        shards: NonZeroU16::new(64).unwrap(),
        etcd: EtcdConfig {
            endpoints: vec!["https://one:2379".to_owned(), "https://two:2379".to_owned()],
            prefix: "/teams/edge".to_owned(),
            lease: Duration::from_secs(60),
            tls: Some(ClientFiles {
                ca: "/srv/ca.crt".into(),
                identity: Some(("/etc/node.crt".into(), "/srv/node.key".into())),
                server_name: None,
            }),
            login: Some(Login {
                user: "tollgate".to_owned(),
                password_file: "/srv/password".into(),
            }),
        },
        tls: Some(ClientFiles {
            ca: "/srv/nodes.crt".into(),
            identity: Some(("/srv/a.crt".into(), "/srv/a.key".into())),
            server_name: Some("nodes.internal".to_owned()),
        }),
        shared_config: false,
    };
    assert_eq!(full, want);
}

#[test]
fn what_is_wrong_with_a_node_names_field_value_and_rule() {
    let long = "n".repeat(65);
    let rows = [
        ("node: a".to_owned(), "1:10: cluster.etcd: is missing"),
        (
            format!("node: a/b, {ETCD}"),
            "1:17: cluster.node: \"a/b\" is not 1 to 64 letters, digits or any of `.-_`",
        ),
        (format!("node: {}, {ETCD}", &long[..64]), "good"),
        (
            format!("node: a, shards: 65, {ETCD}"),
            "1:28: cluster.shards: \"65\" is not a number of shards, 1 to 64",
        ),
        (
            format!("node: a, shards: 0, {ETCD}"),
            "1:28: cluster.shards: \"0\" is not a number of shards, 1 to 64",
        ),
        (
            format!("node: a, advertise: {{grpc: '0.0.0.0:7710'}}, {ETCD}"),
            "1:38: cluster.advertise.grpc: \"0.0.0.0:7710\" is not an address that others can \
             reach, like 10.0.0.1:7710 or host:7710",
        ),
        (
            format!("node: a, advertise: {{http: 'host:0'}}, {ETCD}"),
            "1:38: cluster.advertise.http: \"host:0\" is not an address that others can reach, \
             like 10.0.0.1:7710 or host:7710",
        ),
        (
            format!("nodes: 3, {ETCD}"),
            "1:11: cluster.nodes: unknown field, did you mean `node`? Expected one of node, advertise, shards, etcd, \
             tls, shared_config",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&text), want, "{text}");
    }
    assert!(errors(&format!("node: {long}, {ETCD}")).contains("1 to 64 letters"));
}

#[test]
fn a_node_that_listens_everywhere_is_where_its_name_says() {
    let text = |node: &str| {
        format!(
            "listen: {{grpc: '0.0.0.0:7710', insecure_grpc: true}}\n\
             cluster: {{{node}, {ETCD}}}\nlimits: []"
        )
    };
    let grpc = |node: &str| {
        let config = Config::parse(&text(node)).unwrap();
        config.cluster.unwrap().advertise.grpc
    };
    assert_eq!(grpc("node: node-1").as_deref(), Some("node-1:7710"));
    let other = grpc("node: a, advertise: {grpc: 'b:7'}");
    assert_eq!(other.as_deref(), Some("b:7"));
    let errors = Config::parse(&text("node: no_host")).unwrap_err();
    let want = "2:10: cluster.advertise.grpc: is missing, and others cannot reach a node at \
                0.0.0.0:7710, where it listens";
    assert_eq!(errors.to_string(), want);
}

#[test]
fn what_is_wrong_with_etcd_names_field_value_and_rule() {
    let one = "endpoints: ['http://a:1']";
    let many = vec!["'http://a:1'"; 17].join(",");
    let rows = [
        ("{}", "1:26: cluster.etcd.endpoints: is missing"),
        (
            "{endpoints: []}",
            "1:38: cluster.etcd.endpoints: has 0 endpoints, not 1 to 16",
        ),
        (
            &format!("{{endpoints: [{many}]}}"),
            "1:38: cluster.etcd.endpoints: has 17 endpoints, not 1 to 16",
        ),
        (
            "{endpoints: ['a:2379']}",
            "1:39: cluster.etcd.endpoints[0]: \"a:2379\" is not an endpoint like \
             http://127.0.0.1:2379 or https://etcd:2379",
        ),
        (
            "{endpoints: ['http://u@a:1']}",
            "1:39: cluster.etcd.endpoints[0]: \"http://u@a:1\" is not an endpoint like \
             http://127.0.0.1:2379 or https://etcd:2379",
        ),
        (
            "{endpoints: ['https://a:1']}",
            "1:39: cluster.etcd.endpoints[0]: is https, which needs cluster.etcd.tls.ca",
        ),
        (
            "{endpoints: ['http://a:1', 'https://b:1'], tls: {ca: x}}",
            "1:53: cluster.etcd.endpoints[1]: is https where others are http: all endpoints must \
             be one or the other",
        ),
        (
            "{endpoints: ['http://a:1'], tls: {ca: x}}",
            "1:59: cluster.etcd.tls: is for https, but the endpoints are http",
        ),
        (
            "{endpoints: ['https://a:1'], tls: {}}",
            "1:60: cluster.etcd.tls.ca: is missing",
        ),
        (
            "{endpoints: ['https://a:1'], tls: {ca: x, cert: y}}",
            "1:74: cluster.etcd.tls.key: is missing: cert and key belong together",
        ),
        (
            &format!("{{{one}, user: u}}"),
            "1:60: cluster.etcd.password_file: is missing: user and password_file belong together",
        ),
        (
            &format!("{{{one}, lease: 1500ms}}"),
            "1:61: cluster.etcd.lease: \"1500ms\" is not a whole number of seconds from 1s to 60s",
        ),
        (
            &format!("{{{one}, lease: 61s}}"),
            "1:61: cluster.etcd.lease: \"61s\" is not a whole number of seconds from 1s to 60s",
        ),
        (
            &format!("{{{one}, prefix: /a/}}"),
            "1:62: cluster.etcd.prefix: \"/a/\" is not a prefix: `/`, then up to 200 letters, \
             digits or any of `/._-`, not ending with `/`",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&format!("node: a, etcd: {text}")), want, "{text}");
    }
}

#[test]
fn what_is_wrong_with_the_tls_of_nodes_names_field_value_and_rule() {
    let text = |listeners: &str, tls: &str| {
        let cluster = format!("cluster: {{node: a, {ETCD}{tls}}}");
        format!("{cluster}\ntls: {{{listeners}}}\nlimits: []")
    };
    let listener = "{cert: c, key: k}";
    let mutual = "{cert: c, key: k, client_ca: ca}";
    let missing = |listener: &str| {
        format!(
            "1:10: cluster.tls: is missing: {listener} is there, so the nodes speak TLS with each other, \
             and need to know whose certificates to accept"
        )
    };
    let no_certificate = |listener: &str| {
        format!(
            "1:71: cluster.tls.cert: is missing: {listener}.client_ca asks clients for a \
             certificate, other nodes as well"
        )
    };
    let good = || "good".to_owned();
    let rows = [
        ("", ", tls: {ca: x}", good()),
        (&*format!("grpc: {listener}"), "", missing("tls.grpc")),
        (&*format!("http: {listener}"), "", missing("tls.http")),
        (&*format!("grpc: {listener}"), ", tls: {ca: x}", good()),
        (
            &*format!("grpc: {mutual}"),
            ", tls: {ca: x}",
            no_certificate("tls.grpc"),
        ),
        (
            &*format!("grpc: {listener}, http: {mutual}"),
            ", tls: {ca: x}",
            no_certificate("tls.http"),
        ),
        (
            &*format!("grpc: {mutual}"),
            ", tls: {ca: x, cert: y, key: z}",
            good(),
        ),
        (
            "",
            ", tls: {cert: y, key: z}",
            "1:71: cluster.tls.ca: is missing".to_owned(),
        ),
        ("", ", tls: {ca: ''}", "1:76: cluster.tls.ca: is empty".to_owned()),
        (
            "",
            ", tls: {ca: x, key: z}",
            "1:84: cluster.tls.cert: is missing: cert and key belong together".to_owned(),
        ),
        (
            "",
            ", tls: {ca: x, server_name: 'a:1'}",
            "1:92: cluster.tls.server_name: \"a:1\" is neither the name of a host nor an IP address, \
             without a port"
                .to_owned(),
        ),
        (
            "",
            ", tls: {ca: x, name: a}",
            "1:79: cluster.tls.name: unknown field, expected one of ca, cert, key, server_name".to_owned(),
        ),
    ];
    for (listeners, tls, want) in rows {
        let message = Config::parse(&text(listeners, tls));
        let message = message.map_or_else(|errors| errors.to_string(), |_| "good".to_owned());
        assert_eq!(message, want, "{listeners} {tls}");
    }
}

#[test]
fn what_is_shared_is_in_etcd_and_not_in_the_file_of_a_node() {
    let node = |rest: &str| {
        let cluster = format!("cluster: {{node: a, shared_config: true, {ETCD}}}");
        Config::parse(&format!("{cluster}\n{rest}"))
    };
    let rows = [
        ("limits: []", "2:9: limits: "),
        ("groups: {}", "2:9: groups: "),
        ("attach: {}", "attach: "),
        ("doorman: {}", "doorman: "),
        ("rls: {}", "rls: "),
        ("rlqs: {}", "rlqs: "),
    ];
    for (section, place) in rows {
        let message = node(section).unwrap_err().to_string();
        let rule = "is in etcd, the same for all nodes, because of `cluster.shared_config`";
        assert_eq!(message, format!("{place}{rule}"));
    }
    let node = node("bounds: {max_groups: 7}").unwrap();
    let text = "limits: [{match: a, requests: {rate: 5}}]\ngroups: {g: {}}\n\
                attach: {tenants: {t: g}}\ndoorman: {scopes: {x: a}}\n\
                rlqs: {domains: {edge: {scope: 'tenant/{tenant}'}}}";
    let shared = node.with_shared(text.as_bytes()).unwrap();
    assert_eq!(shared.catalog.limits.count(), 1);
    assert_eq!(shared.rlqs.len(), 1);
    assert_eq!(shared.catalog.bounds.max_groups, 7);
    assert_eq!(
        (shared.catalog.groups.len(), shared.catalog.tenants.len()),
        (1, 1)
    );
    // And stays when the node's own file changes, unless that no longer shares.
    let again = node.clone().instead_of(&shared).unwrap();
    assert_eq!(again.catalog.limits.count(), 1);
    let alone = Config::parse("limits: []").unwrap().instead_of(&shared);
    let message = alone.unwrap_err().to_string();
    assert_eq!(
        message,
        "cluster.shared_config: can only change with a restart"
    );

    let rows = [
        ("", "limits: is missing"),
        (
            "listen: {}",
            "1:1: listen: unknown field, expected one of limits, groups, attach, doorman, \
             rls, rlqs",
        ),
        (
            "limits: [{match: a, requests: {rate: -1}}]",
            "1:38: limits[0].requests.rate: -1 is negative",
        ),
    ];
    for (text, want) in rows {
        let message = node.with_shared(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(message, want, "{text}");
    }
    assert!(node.with_shared(b"\xff").is_err());
}
