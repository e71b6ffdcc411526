//! Addresses, TLS and tokens of the listeners.

use super::*;

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
        let message = errors(&format!("{text}{more}"));
        assert!(
            message.contains(field) && !message.contains("listen.http"),
            "{message}"
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
        let message = errors(&text(far, ", insecure_grpc: false"));
        assert!(
            message.contains(&format!("listen.grpc: {far} can be")),
            "{message}"
        );
    }
    // Not beside a default in the place of what cannot be read.
    let message = errors(&text("0.0.0.0:80", ", insecure_grpc: yes"));
    assert_eq!(
        message,
        "2:45: listen.insecure_grpc: \"yes\" is neither `true` nor `false`"
    );
}

#[test]
fn names_of_children_need_those_of_nodes_in_a_cluster() {
    let text = |names: &str| {
        format!(
            "tls: {{grpc: {{cert: a, key: b, client_ca: c, children: {{eu: [eu.example]}}{names}}}}}\n\
             cluster: {{node: a, etcd: {{endpoints: ['http://e:2379']}}, \
             tls: {{ca: c, cert: d, key: e}}}}\nlimits: []"
        )
    };
    assert_eq!(errors(&text(", nodes: [tollgate.example]")), "good");
    assert_eq!(
        errors(&text("")),
        "1:55: tls.grpc.nodes: is missing: in a cluster tls.grpc.children needs it, for what a \
         coordinator below asks comes through other nodes as well"
    );
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
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu: [EU.example, 'spiffe://a/eu']}}}",
            "good",
        ),
        (
            "tls: {grpc: {cert: a, key: b, children: {eu: [eu.example]}}}",
            "1:41: tls.grpc.children: needs tls.grpc.client_ca: without it nobody shows a certificate",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: []}}",
            "1:52: tls.grpc.nodes: is empty: no certificate would do",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu: ['a b']}}}",
            "1:61: tls.grpc.children.eu[0]: \"a b\" is neither a DNS name nor a URI like \
             spiffe://example/eu, as certificates have them",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu: ['*.eu.example']}}}",
            "1:61: tls.grpc.children.eu[0]: \"*.eu.example\" is a pattern: each name must be there as \
             it is",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: [10.0.0.7]}}",
            "1:53: tls.grpc.nodes[0]: \"10.0.0.7\" is an IP address, which is no name of a coordinator",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, nodes: ['fd00::7']}}",
            "1:53: tls.grpc.nodes[0]: \"fd00::7\" is an IP address, which is no name of a coordinator",
        ),
        (
            "tls: {grpc: {cert: a, key: b, client_ca: c, children: {eu/0: [eu.example]}}}",
            "1:62: tls.grpc.children: \"eu/0\" is not 1 to 64 letters, digits or any of `.-_:`",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&format!("{text}\n{rest}")), want, "{text}");
    }
    let source = SourceFile {
        path: "/srv/tollgate.yaml".into(),
        content: b"tls: {grpc: {cert: tls.crt, key: /etc/tls.key}}\nlimits: []".to_vec(),
    };
    let config = Config::of_file(source, Flags::default()).unwrap();
    let files = config.tls.grpc.unwrap();
    assert_eq!(files.cert, Path::new("/srv/tls.crt"));
    assert_eq!(files.key, Path::new("/etc/tls.key"));
}
