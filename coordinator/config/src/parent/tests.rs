use std::path::Path;
use std::time::Duration;

use crate::{Config, Flags, SourceFile};

const TLS: &str = "tls: {ca: ca.pem, cert: c.pem, key: k.pem}";

fn parsed(parent: &str) -> Config {
    Config::parse(&format!("parent: {{{parent}}}\nlimits: []")).unwrap()
}

#[test]
fn what_is_said_and_what_is_not() {
    let parent = parsed("addresses: ['root:7710', 'http://10.0.0.1:7710']")
        .parent
        .unwrap();
    assert_eq!(
        parent.addresses,
        ["http://root:7710", "http://10.0.0.1:7710"]
    );
    assert_eq!(
        (parent.name, parent.timeout),
        (None, Duration::from_secs(1))
    );
    let parent = parsed(&format!(
        "name: eu, timeout: 300ms, addresses: ['root:7710'], {TLS}"
    ));
    let parent = parent.parent.unwrap();
    assert_eq!(parent.addresses, ["https://root:7710"]);
    assert_eq!(parent.name.as_deref(), Some("eu"));
    assert_eq!(parent.timeout, Duration::from_millis(300));
    assert!(parent.tls.unwrap().identity.is_some());
    assert!(Config::parse("limits: []").unwrap().parent.is_none());
}

#[test]
fn what_is_wrong_names_line_field_and_rule() {
    let rows = [
        ("name: eu", "1:9: parent.addresses: is missing"),
        (
            "addresses: []",
            "1:21: parent.addresses: has 0 addresses, not 1 to 16",
        ),
        (
            "addresses: [root]",
            "1:22: parent.addresses[0]: \"root\" is not an address like root:7710, \
             http://root:7710 or https://root:7710",
        ),
        (
            "addresses: ['http://root:7710/x']",
            "1:22: parent.addresses[0]: \"http://root:7710/x\" is not an address like root:7710, \
             http://root:7710 or https://root:7710",
        ),
        (
            "addresses: ['https://root:7710']",
            "1:9: parent.addresses: does not go with parent.tls.ca: addresses are https if that is \
             there, and only then",
        ),
        (
            "name: 'a b', addresses: ['root:7710']",
            "1:16: parent.name: \"a b\" is not 1 to 64 letters, digits or any of `.-_:`",
        ),
        (
            "timeout: 1h, addresses: ['root:7710']",
            "1:19: parent.timeout: \"1h\" is not a time from 50ms to 30s",
        ),
        (
            "addresses: ['root:7710'], tls: {cert: c.pem, ca: ca.pem}",
            "1:48: parent.tls.key: is missing: cert and key belong together",
        ),
        (
            "addresses: ['root:7710'], tls: {ca: ca.pem, server_name: ''}",
            "1:67: parent.tls.server_name: \"\" is neither the name of a host nor an IP address, \
             without a port",
        ),
    ];
    for (parent, want) in rows {
        let errors = Config::parse(&format!("parent: {{{parent}}}\nlimits: []")).unwrap_err();
        assert_eq!(errors.0[0].to_string(), want, "{parent}");
    }
}

#[test]
fn the_nodes_of_a_cluster_have_one_name() {
    let cluster = "cluster: {node: a, etcd: {endpoints: ['http://127.0.0.1:2379']}}";
    let wrong = Config::parse(&format!(
        "{cluster}\nparent: {{addresses: ['root:7710']}}\nlimits: []"
    ));
    let want = "2:9: parent.name: is missing: the parent must know all nodes of a cluster by the same name";
    assert_eq!(wrong.unwrap_err().0[0].to_string(), want);
    let good = Config::parse(&format!(
        "{cluster}\nparent: {{name: eu, addresses: ['root:7710']}}\nlimits: []"
    ));
    assert!(good.is_ok());
}

#[test]
fn the_command_line_has_the_last_word() {
    let source = |text: &str| SourceFile {
        path: Path::new("x.yaml").to_owned(),
        content: text.into(),
    };
    let flags = Flags {
        parents: vec!["http://other:7710".to_owned()],
        ..Flags::default()
    };
    for text in [
        "limits: []",
        "parent: {addresses: ['root:7710']}\nlimits: []",
    ] {
        let config = Config::of_file(source(text), flags.clone()).unwrap();
        assert_eq!(
            config.parent.unwrap().addresses,
            ["http://other:7710"],
            "{text}"
        );
    }
}
